"""Reductions and scans along any axis, with any combine function."""

from __future__ import annotations

import numpy as np
import pytest
from run_kernels import Kernel, run
from tile_kernels import F32_POINTER, I32_POINTER, TileKernel

from isthmus.ir.builder import Builder
from isthmus.ir.core import Value
from isthmus.ir.types import F32, I32


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def larger_first(b: Builder, values: list[Value]) -> list[Value]:
    """argmax: NaN is largest; among equal values the first index wins."""
    left, left_index, right, right_index = values
    left_nan = b.emit("arith.cmpf", left, left, predicate="uno")
    right_nan = b.emit("arith.cmpf", right, right, predicate="uno")
    greater = b.emit("arith.cmpf", left, right, predicate="ogt")
    equal = b.emit("arith.cmpf", left, right, predicate="oeq")
    earlier = b.emit("arith.cmpi", left_index, right_index, predicate="slt")
    number = b.emit("arith.xori", right_nan, b.i1(True))
    same = b.emit("arith.ori", equal, b.emit("arith.andi", left_nan, right_nan))
    wins = b.emit("arith.ori", greater, b.emit("arith.andi", left_nan, number))
    wins = b.emit("arith.ori", wins, b.emit("arith.andi", same, earlier))
    return [
        b.emit("arith.select", wins, left, right),
        b.emit("arith.select", wins, left_index, right_index),
    ]


@pytest.mark.parametrize("size", [1, 5, 8, 64, 200, 1000])
@pytest.mark.parametrize("kind", ["addf", "mulf", "maxnumf", "minimumf"])
def test_reduction_to_a_scalar(size, kind, target):
    k = TileKernel("total", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(size)
    filler = {"addf": 0.0, "mulf": 1.0, "maxnumf": -np.inf, "minimumf": np.inf}[kind]
    k.store(out, k.reduce(k.load(x + index, index < n, filler), 0, kind))
    kernel = Kernel(k.finish(), target)
    rule = {"addf": np.sum, "mulf": np.prod, "maxnumf": np.max, "minimumf": np.min}[kind]
    for count in {size, size // 2 + 1}:
        data = 1 + normal(count) / 50
        result = np.zeros(1, np.float32)
        kernel(data, result, count)
        np.testing.assert_allclose(result[0], rule(data.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(16, 64), (33, 40), (5, 3), (64, 1), (1, 9)])
def test_rows_and_columns(rows, columns, target):
    k = TileKernel("both", x=F32_POINTER, down=F32_POINTER, across=F32_POINTER, m=I32, n=I32)
    x, down, across, m, n = k.args()
    row, column = k.grid(rows, columns)
    value = k.load(x + (row * n + column), (row < m) & (column < n), 0.0)
    k.store(down + k.arange(columns), k.reduce(value, 0), k.arange(columns) < n)
    k.store(across + k.arange(rows), k.reduce(value, 1, "maxnumf"), k.arange(rows) < m)
    kernel = Kernel(k.finish(), target)
    for m_size, n_size in ((rows, columns), (max(1, rows - 3), max(1, columns - 2))):
        data = normal(m_size, n_size)
        totals, largest = np.zeros(n_size, np.float32), np.zeros(m_size, np.float32)
        kernel(data, totals, largest, m_size, n_size)
        np.testing.assert_allclose(totals, data.sum(0), rtol=1e-5, atol=1e-5)
        padded = data if n_size == columns else np.pad(data, ((0, 0), (0, 1)))
        np.testing.assert_array_equal(largest, padded.max(1))


@pytest.mark.parametrize(("rows", "size"), [(None, 64), (None, 13), (5, 33), (40, 3)])
def test_argmax_with_ties_and_nan(rows, size, target):
    k = TileKernel("argmax", x=F32_POINTER, out=I32_POINTER, value=F32_POINTER)
    x, out, value = k.args()
    if rows is None:
        data, index = k.load(x + k.arange(size)), k.arange(size)
        place = None
    else:
        data = k.load(x + k.row_major(rows, size))
        index = k.arange(size)[None, :].broadcast_to((rows, size))
        place = k.arange(rows)
    best, where = k.combine("tile.reduce", [data, index], len(data.shape) - 1, larger_first)
    k.store(out if place is None else out + place, where)
    k.store(value if place is None else value + place, best)
    kernel = Kernel(k.finish(), target)
    for case in range(8):
        array = np.round(normal(rows or 1, size, seed=case) * 2) / 2
        if case >= 4:
            array[:, case % size] = np.nan
        if case == 7:
            array[:] = np.nan
        found, largest = np.zeros(rows or 1, np.int32), np.zeros(rows or 1, np.float32)
        kernel(array, found, largest)
        np.testing.assert_array_equal(found, array.argmax(1))
        np.testing.assert_array_equal(largest, array.max(1))


def test_maxnum_ignores_nan_and_all_nan_stays_nan():
    k = TileKernel("largest", x=F32_POINTER, out=F32_POINTER)
    x, out = k.args()
    k.store(out, k.reduce(k.load(x + k.arange(37)), 0, "maxnumf"))
    kernel = Kernel(k.finish())
    data, result = normal(37), np.zeros(1, np.float32)
    data[::3] = np.nan
    kernel(data, result)
    assert result[0] == np.nanmax(data)
    data[:] = np.nan
    kernel(data, result)
    assert np.isnan(result[0])


def test_sum_of_i32_wraps():
    k = TileKernel("wrap", x=I32_POINTER, out=I32_POINTER)
    x, out = k.args()
    k.store(out, k.reduce(k.load(x + k.arange(128)), 0))
    result = np.ones(1, np.int32)
    run(k.finish(), np.full(128, 1 << 30, np.int32), result)
    assert result[0] == 0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"), [((16,), 0), ((5,), 0), ((8, 16), 0), ((8, 16), 1), ((3, 5), 1), ((1, 7), 0)]
)
def test_running_sums(shape, axis, reverse):
    k = TileKernel("running", x=F32_POINTER, out=F32_POINTER)
    x, out = k.args()
    value = k.load(x + k.row_major(*shape)) * 2.0
    k.store(out + k.row_major(*shape), k.scan(value, axis, reverse=reverse) + 1.0)
    data = normal(*shape)
    result = np.zeros_like(data)
    run(k.finish(), data, result)
    turned = np.flip(data, axis) if reverse else data
    expected = np.cumsum(2 * turned, axis)
    expected = np.flip(expected, axis) if reverse else expected
    np.testing.assert_allclose(result, expected + 1, rtol=1e-5, atol=1e-5)


def test_scan_of_a_non_commutative_recurrence():
    """h = a * h + x as a scan of pairs."""

    def chain(b: Builder, values: list[Value]) -> list[Value]:
        a1, x1, a2, x2 = values
        return [
            b.emit("arith.mulf", a1, a2),
            b.emit("arith.addf", b.emit("arith.mulf", a2, x1), x2),
        ]

    steps, width = 12, 20
    k = TileKernel("recurrence", a=F32_POINTER, x=F32_POINTER, out=F32_POINTER)
    a, x, out = k.args()
    offset = k.row_major(steps, width)
    _, state = k.combine("tile.scan", [k.load(a + offset), k.load(x + offset)], 0, chain)
    k.store(out + offset, state)
    decay, inputs = normal(steps, width), normal(steps, width, seed=1)
    result = np.zeros_like(inputs)
    run(k.finish(), decay, inputs, result)
    expected, h = [], np.zeros(width)
    for step in range(steps):
        h = decay[step] * h + inputs[step]
        expected.append(h)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_softmax_rows_store_the_exponentials_once():
    block = 1024
    k = TileKernel("softmax", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index, row = k.arange(block), k.program_id()
    value = k.load(x + row * n + index, index < n, -np.inf)
    power = k.math("exp", value - k.reduce(value, 0, "maxnumf"))
    k.store(out + row * n + index, power / k.reduce(power), index < n)
    kernel = Kernel(k.finish())
    assert kernel.lowered.notes["nests"] == 3
    assert kernel.lowered.scratch_bytes == 4 * block
    for size in (1, 7, 1000, 1024):
        data = normal(5, size)
        result = np.zeros_like(data)
        kernel(data, result, size, grid=(5, 1, 1))
        power = np.exp(data - data.max(1, keepdims=True), dtype=np.float64)
        np.testing.assert_allclose(result, power / power.sum(1, keepdims=True), rtol=2e-6)


def test_layer_norm_recomputes_rather_than_stores():
    block = 256
    k = TileKernel("norm", x=F32_POINTER, w=F32_POINTER, out=F32_POINTER, mean=F32_POINTER, n=I32)
    x, w, out, mean, n = k.args()
    index, row = k.arange(block), k.program_id()
    inside = index < n
    value = k.load(x + row * n + index, inside, 0.0)
    average = k.reduce(value) / n.to(F32)
    centred = k.where(inside, value - average, 0.0)
    scale = k.math("rsqrt", k.reduce(centred * centred) / n.to(F32) + 1e-5)
    k.store(mean + row, average)
    k.store(out + row * n + index, (value - average) * scale * k.load(w + index, inside), inside)
    kernel = Kernel(k.finish())
    assert kernel.lowered.scratch_bytes == 0
    data, weight = normal(4, 250), normal(250)
    result, means = np.zeros_like(data), np.zeros(4, np.float32)
    kernel(data, weight, result, means, 250, grid=(4, 1, 1))
    expected = (data - data.mean(1, keepdims=True)) / np.sqrt(data.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(result, expected * weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(means, data.mean(1), atol=1e-6)
