"""Program order of loads and stores within one program, and atomics."""

from __future__ import annotations

import numpy as np
from run_kernels import run
from tile_kernels import F32_POINTER, I32_POINTER, TileKernel

from isthmus.ir.types import I32


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_reversal_in_place_reads_everything_first():
    k = TileKernel("reverse", x=F32_POINTER)
    (x,) = k.args()
    index = k.arange(64)
    k.store(x + index, k.load(x + (index * -1 + 63)) * 2.0)
    data = normal(64)
    expected = data[::-1] * 2
    run(k.finish(), data)
    np.testing.assert_array_equal(data, expected)


def test_update_in_place_needs_no_scratch():
    k = TileKernel("update", x=F32_POINTER)
    (x,) = k.args()
    index = k.arange(64)
    k.store(x + index, k.load(x + index) * 2.0)
    data = normal(64)
    expected = data * 2
    kernel = run(k.finish(), data)
    np.testing.assert_array_equal(data, expected)
    assert kernel.lowered.scratch_bytes == 0


def test_halves_exchanged_in_place():
    k = TileKernel("rotate", x=F32_POINTER)
    (x,) = k.args()
    index = k.arange(32)
    first, second = k.load(x + index), k.load(x + (index + 32))
    k.store(x + index, first * 2.0 - second)
    k.store(x + (index + 32), second * 3.0 + first)
    data = normal(64)
    a, b = data[:32].copy(), data[32:].copy()
    run(k.finish(), data)
    np.testing.assert_allclose(data, np.concatenate([a * 2 - b, b * 3 + a]), rtol=1e-6)


def test_value_loaded_before_a_store_is_the_old_one():
    k = TileKernel("pending", x=F32_POINTER, out=F32_POINTER)
    x, out = k.args()
    index = k.arange(64)
    value = k.load(x + index)
    total = k.reduce(value)
    k.store(x + index, value * 0.0)
    k.store(out + index, value + total)
    data, result = normal(64), np.zeros(64, np.float32)
    expected = data + data.sum()
    run(k.finish(), data, result)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert (data == 0).all()


def test_arguments_that_may_overlap():
    size = 64
    k = TileKernel("overlap", x=F32_POINTER, out=F32_POINTER)
    k.may_alias()
    x, out = k.args()
    index = k.arange(size)
    first = k.load(x + index)
    k.store(out + index, first)
    k.store(out + index, k.load(x + (index + 1)) + first)
    memory = np.zeros(2 * size, np.float32)
    memory[: size + 1] = normal(size + 1)
    expected = memory.copy()
    before = expected[:size].copy()
    expected[2 : 2 + size] = before
    expected[2 : 2 + size] = expected[1 : size + 1] + before
    run(k.finish(), memory, memory[2:])
    np.testing.assert_array_equal(memory, expected)


def test_arguments_known_to_start_at_the_same_address():
    k = TileKernel("same", x=F32_POINTER, out=F32_POINTER)
    k.function.arg_attrs[1]["same_as"] = 0
    x, out = k.args()
    index = k.arange(64)
    k.store(out + index, k.load(x + (index * -1 + 63)))
    data = normal(64)
    expected = data[::-1].copy()
    run(k.finish(), data, data)
    np.testing.assert_array_equal(data, expected)


def test_store_in_a_loop_is_seen_after_it():
    k = TileKernel("loop", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(16)
    before = k.load(x + index)
    with k.loop(0, n, 1):
        k.store(x + index, k.load(x + index) + 1.0)
        k.leave()
    k.store(out + index, k.load(x + index) * 10.0 + before)
    data, result = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    run(k.finish(), data, result, 3)
    np.testing.assert_array_equal(result, (np.arange(16) + 3) * 10 + np.arange(16))


def test_scalar_store_then_block_load():
    k = TileKernel("mixed", x=F32_POINTER, out=F32_POINTER)
    x, out = k.args()
    index = k.arange(8)
    before = k.load(x + index)
    k.store(x + k.scalar(3, I32), 100.0)
    k.store(out + index, k.load(x + index) + before)
    data, result = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run(k.finish(), data, result)
    expected = 2 * np.arange(8.0)
    expected[3] = 103
    np.testing.assert_array_equal(result, expected)


def test_atomics_in_lane_order_and_histogram():
    size = 37
    k = TileKernel(
        "count", i=I32_POINTER, weight=F32_POINTER, bins=I32_POINTER, old=I32_POINTER, n=I32
    )
    i, weight, bins, old, n = k.args()
    index = k.arange(size)
    inside = index < n
    value = k.load(i + index, inside, 0)
    k.emit("tile.atomic_rmw", weight + value, k.full((size,), 1.5), inside, kind="fadd")
    k.store(bins + k.arange(8), k.emit("tile.histogram", value, inside, bins=8))
    before = k.emit("tile.atomic_rmw", bins + index % 8, k.full((size,), 1, I32), kind="add")
    k.store(old + index, before)
    values = np.random.default_rng(0).integers(0, 8, size).astype(np.int32)
    sums, counts, seen = np.zeros(8, np.float32), np.zeros(8, np.int32), np.zeros(size, np.int32)
    run(k.finish(), values, sums, counts, seen, 30)
    expected = np.bincount(values[:30], minlength=8)
    np.testing.assert_array_equal(sums, 1.5 * expected)
    for lane in range(size):
        assert seen[lane] == expected[lane % 8]
        expected[lane % 8] += 1
    np.testing.assert_array_equal(counts, expected)
