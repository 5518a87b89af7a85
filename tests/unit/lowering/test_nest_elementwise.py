"""Element-wise blocks, broadcasting, masks and memory layouts, in machine code."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from run_kernels import Kernel, run
from tile_kernels import F32_POINTER, I32_POINTER, TileKernel

from isthmus.ir.types import BF16, F32, I32, I64, PointerType


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("block", [1, 3, 16, 64, 384, 1000])
def test_vector_add_touches_exactly_what_its_mask_allows(block, target):
    k = TileKernel("add", x=F32_POINTER, y=F32_POINTER, out=F32_POINTER, n=I32)
    x, y, out, n = k.args()
    index = k.program_id() * block + k.arange(block)
    inside = index < n
    k.store(out + index, k.load(x + index, inside) + k.load(y + index, inside), inside)
    kernel = Kernel(k.finish(), target)
    for size in (1, block, block + 1, 2 * block + 7):
        a, b = normal(2, size)
        result = np.full(size + 16, 7, np.float32)
        kernel(a, b, result, size, grid=(-(-size // block), 1, 1))
        np.testing.assert_array_equal(result[:size], a + b)
        assert (result[size:] == 7).all()


def test_elementwise_kernel_is_one_nest_without_scratch():
    k = TileKernel("scale", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.program_id() * 1024 + k.arange(1024)
    k.store(out + index, k.load(x + index, index < n) * 2.0, index < n)
    kernel = Kernel(k.finish())
    assert kernel.lowered.notes["nests"] == 1
    assert kernel.lowered.scratch_bytes == 0
    assert "gather" not in kernel.text
    assert "scatter" not in kernel.text


@pytest.mark.parametrize(("rows", "columns"), [(16, 64), (3, 5), (1, 384), (384, 1), (7, 33)])
def test_broadcast_rows_and_columns_under_masks(rows, columns, target):
    k = TileKernel(
        "affine", x=F32_POINTER, w=F32_POINTER, b=F32_POINTER, out=F32_POINTER, m=I32, n=I32, ld=I32
    )
    x, w, b, out, m, n, ld = k.args()
    row, column = k.grid(rows, columns)
    offset = row * ld + column
    inside = (row < m) & (column < n)
    value = k.load(x + offset, inside) * k.load(w + column, column < n) + k.load(b + row, row < m)
    k.store(out + offset, value, inside)
    kernel = Kernel(k.finish(), target)
    for m_size, n_size in ((rows, columns), (max(1, rows - 2), max(1, columns - 3))):
        data, scale, shift = normal(m_size, n_size + 3), normal(n_size), normal(m_size)
        result = np.zeros_like(data)
        kernel(data, scale, shift, result, m_size, n_size, n_size + 3)
        expected = np.zeros_like(data)
        expected[:, :n_size] = data[:, :n_size] * scale + shift[:, None]
        np.testing.assert_array_equal(result, expected)


def test_any_strides_negative_zero_and_transposed():
    rows, columns = 9, 21
    k = TileKernel("strided", x=F32_POINTER, out=F32_POINTER, sm=I32, sn=I32)
    x, out, sm, sn = k.args()
    row, column = k.grid(rows, columns)
    value = k.load(x + (row * sm + column * sn))
    k.store(out + k.row_major(rows, columns), value * 2.0 + k.reduce(value, 1)[:, None])
    kernel = Kernel(k.finish())
    data = normal(rows, columns)
    views = (
        data[::-1], data[:, ::-1], np.asfortranarray(data),
        np.broadcast_to(data[:1], data.shape), np.broadcast_to(data[:, :1], data.shape),
    )  # fmt: skip
    for view in views:
        result = np.zeros((rows, columns), np.float32)
        kernel(view, result, view.strides[0] // 4, view.strides[1] // 4)
        expected = view * 2 + view.sum(1, keepdims=True)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_masked_off_lanes_below_the_buffer_are_not_read():
    k = TileKernel("shifted", x=F32_POINTER, out=F32_POINTER)
    x, out = k.args()
    index = k.arange(16) - 4
    k.store(out + k.arange(16), k.load(x + index, index >= 0))
    data, result = normal(16), np.ones(16, np.float32)
    run(k.finish(), data, result)
    np.testing.assert_array_equal(result, np.concatenate([np.zeros(4, np.float32), data[:12]]))


def test_bfloat16_is_rounded_once_per_operation():
    k = TileKernel("narrow", x=PointerType(BF16), out=PointerType(BF16))
    x, out = k.args()
    index = k.arange(50)
    value = k.load(x + index)
    k.store(out + index, value * value + value)
    data = normal(50).astype(ml_dtypes.bfloat16)
    result = np.zeros(50, ml_dtypes.bfloat16)
    run(k.finish(), data, result)
    np.testing.assert_array_equal(result, data * data + data)


def test_truth_values_survive_scratch_and_reshape():
    k = TileKernel("truth", x=F32_POINTER, out=I32_POINTER)
    x, out = k.args()
    positive = k.load(x + k.row_major(4, 6)) > 0.0
    k.store(out + k.row_major(3, 8), k.where(positive.reshape(3, 8), k.full((3, 8), 5, I32), 2))
    data, result = normal(4, 6), np.zeros((3, 8), np.int32)
    run(k.finish(), data, result)
    np.testing.assert_array_equal(result, np.where(data > 0, 5, 2).reshape(3, 8))


def test_rows_by_loaded_index_are_read_as_whole_vectors():
    count, width = 8, 64
    k = TileKernel("embed", w=F32_POINTER, i=PointerType(I64), out=F32_POINTER)
    w, i, out = k.args()
    rows = k.load(i + k.arange(count))
    _, column = k.grid(count, width)
    k.store(
        out + k.row_major(count, width),
        k.load(w + (rows[:, None] * k.scalar(width, I64) + column.to(I64))),
    )
    table, index = normal(20, width), np.random.default_rng(1).integers(0, 20, count)
    result = np.zeros((count, width), np.float32)
    kernel = run(k.finish(), table, index, result)
    np.testing.assert_array_equal(result, table[index])
    assert "masked.gather" not in kernel.text


def test_indices_as_data():
    k = TileKernel("indices", out=F32_POINTER, square=PointerType(I64))
    out, square = k.args()
    index = k.arange(50, start=-3)
    k.store(out + k.arange(53), index.to(F32) * 0.5)
    k.store(square + k.arange(53), (index * index).to(I64))
    result, squares = np.zeros(53, np.float32), np.zeros(53, np.int64)
    run(k.finish(), result, squares)
    np.testing.assert_array_equal(result, np.arange(-3, 50) * 0.5)
    np.testing.assert_array_equal(squares, np.arange(-3, 50) ** 2)


def test_very_deep_expressions():
    k = TileKernel("deep", x=F32_POINTER, out=F32_POINTER)
    x, out = k.args()
    index = k.arange(8)
    value = k.load(x + index)
    for _ in range(1500):
        value = value * 0.5 + 1.0
    k.store(out + index, value)
    result = np.zeros(8, np.float32)
    run(k.finish(), normal(8), result)
    np.testing.assert_allclose(result, 2.0, rtol=1e-6)
