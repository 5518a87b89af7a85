"""Loops and branches: carried blocks, carried pointers, accumulators in place."""

from __future__ import annotations

import numpy as np
import pytest
from run_kernels import Kernel, run
from tile_kernels import F32_POINTER, Tile, TileKernel

from isthmus.ir.core import Region
from isthmus.ir.types import F32, I32


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_carried_blocks_that_change_places(turns):
    k = TileKernel("fibonacci", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(40)
    value = k.load(x + index)
    with k.loop(0, n, 1, value, k.full((40,), 1.0), k.scalar(0.0)) as loop:
        a, b, total = loop.carried
        k.leave(b, a + b, total + k.reduce(a))
    a, b, total = loop.results
    k.store(out + index, a * 2.0 + b + total + value)
    data, result = normal(40), np.zeros(40, np.float32)
    run(k.finish(), data, result, turns)
    a, b, total = data, np.ones(40), 0.0
    for _ in range(turns):
        a, b, total = b, a + b, total + a.sum()
    np.testing.assert_allclose(result, 2 * a + b + total + data, rtol=1e-5, atol=1e-4)


def test_accumulator_lives_in_one_place():
    k = TileKernel("accumulate", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(256)
    with k.loop(0, n, 1, k.full((256,), 0.0)) as loop:
        k.leave(loop.carried[0] + k.load(x + loop.index * 256 + index))
    k.store(out + index, loop.results[0])
    data, result = normal(7, 256), np.zeros(256, np.float32)
    kernel = run(k.finish(), data, result, 7)
    np.testing.assert_allclose(result, data.sum(0), rtol=1e-5, atol=1e-5)
    assert kernel.lowered.scratch_bytes == 4 * 256
    assert kernel.lowered.notes["nests"] == 3


def test_nested_loops_hand_the_accumulator_down():
    k = TileKernel("nested", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(64)
    with k.loop(0, n, 1, k.full((64,), 1.0)) as outer:
        with k.loop(0, n, 1, outer.carried[0]) as inner:
            place = outer.index * n + inner.index
            k.leave(inner.carried[0] + k.load(x + place * 64 + index))
        k.leave(inner.results[0])
    k.store(out + index, outer.results[0])
    data, result = normal(9, 64), np.zeros(64, np.float32)
    kernel = run(k.finish(), data, result, 3)
    np.testing.assert_allclose(result, data.sum(0) + 1, rtol=1e-5, atol=1e-5)
    assert kernel.lowered.scratch_bytes == 4 * 64


def test_pointers_and_indices_that_move_by_a_scalar_are_not_stored():
    k = TileKernel("walk", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(64)
    with k.loop(0, n, 64, k.full((64,), 0.0), x + index, index) as loop:
        total, pointers, at = loop.carried
        value = k.load(pointers, at < n, 0.0) * at.to(F32)
        k.leave(total + value, pointers + 64, at + 64)
    k.store(out + index, loop.results[0] + loop.results[2].to(F32))
    kernel = Kernel(k.finish())
    assert kernel.lowered.scratch_bytes == 4 * 64
    assert "gather" not in kernel.text
    for size in (1, 64, 100, 300):
        data, result = normal(size), np.zeros(64, np.float32)
        kernel(data, result, size)
        padded = np.zeros(-(-size // 64) * 64)
        padded[:size] = data * np.arange(size)
        after = np.arange(64) + len(padded)
        np.testing.assert_allclose(
            result, padded.reshape(-1, 64).sum(0) + after, rtol=1e-5, atol=1e-4
        )


@pytest.mark.parametrize("flag", [0, 1])
def test_branches_give_blocks_and_scalars(flag):
    k = TileKernel("branch", x=F32_POINTER, out=F32_POINTER, flag=I32)
    x, out, test = k.args()
    index = k.arange(24)
    value = k.load(x + index)
    op = k.builder.if_else((test > 0).value, [value.value.type, F32])
    with k.inside(op.regions[0]):
        k.leave(value * 2.0, k.reduce(value))
    with k.inside(op.regions[1]):
        k.store(x + index, value * 0.0)
        k.leave(value, k.scalar(5.0))
    block, scalar = (Tile(k, result) for result in op.results)
    k.store(out + index, block + scalar + value)
    data, result = normal(24), np.zeros(24, np.float32)
    before = data.copy()
    run(k.finish(), data, result, flag)
    expected = before * 3 + before.sum() if flag else before * 2 + 5
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(data, before if flag else 0 * before)


def test_while_carries_blocks():
    k = TileKernel("double", x=F32_POINTER, out=F32_POINTER)
    x, out = k.args()
    index = k.arange(24)
    value = k.load(x + index)
    types = [value.value.type, I32]
    regions = [Region(types), Region(types)]
    op = k.builder.create("scf.while", value.value, k.builder.i32(0), type=types, regions=regions)
    with k.inside(regions[0]):
        block, count = (Tile(k, arg) for arg in regions[0].args)
        k.leave(k.reduce(block, 0, "maxnumf") < 10.0, block, count, name="scf.condition")
    with k.inside(regions[1]):
        block, count = (Tile(k, arg) for arg in regions[1].args)
        k.leave(block * 2.0, count + 1)
    block, count = (Tile(k, result) for result in op.results)
    k.store(out + index, block + count.to(F32))
    data, result = normal(24), np.zeros(24, np.float32)
    run(k.finish(), data, result)
    expected, turns = data.copy(), 0
    while expected.max() < 10:
        expected, turns = expected * 2, turns + 1
    np.testing.assert_allclose(result, expected + turns)


def test_program_ids_of_a_three_dimensional_grid():
    k = TileKernel("grid", out=F32_POINTER)
    (out,) = k.args()
    place = (k.program_id(2) * 3 + k.program_id(1)) * 2 + k.program_id(0)
    k.store(out + place, place.to(F32))
    result = np.zeros(24, np.float32)
    run(k.finish(), result, grid=(2, 3, 4))
    np.testing.assert_array_equal(result, np.arange(24))
