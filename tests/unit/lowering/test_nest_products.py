"""Kernels around tile.dot: matrix products, attention, accumulators."""

from __future__ import annotations

import numpy as np
import pytest
from run_kernels import Kernel, run
from tile_kernels import F32_POINTER, TileKernel

from isthmus.ir.core import Function
from isthmus.ir.types import F32, I32


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def matmul(block_m: int, block_n: int, block_k: int, added: bool, wrapped: bool) -> Function:
    k = TileKernel(
        "matmul", a=F32_POINTER, b=F32_POINTER, c=F32_POINTER, m=I32, n=I32, depth=I32,
        sa=I32, sb=I32, sc=I32,
    )  # fmt: skip
    a, b, c, m, n, depth, sa, sb, sc = k.args()
    rows = k.program_id(0) * block_m + k.arange(block_m)
    columns = k.program_id(1) * block_n + k.arange(block_n)
    steps = k.arange(block_k)
    row_index, column_index = (rows % m, columns % n) if wrapped else (rows, columns)
    lefts = a + (row_index[:, None] * sa + steps[None, :])
    rights = b + (steps[:, None] * sb + column_index[None, :])
    acc = k.full((block_m, block_n), 0.0)
    with k.loop(0, depth, block_k, acc, lefts, rights) as loop:
        acc, lefts, rights = loop.carried
        inside = steps < depth - loop.index
        left_mask, right_mask = inside[None, :], inside[:, None]
        if not wrapped:
            left_mask = left_mask & (rows[:, None] < m)
            right_mask = right_mask & (columns[None, :] < n)
        left, right = k.load(lefts, left_mask, 0.0), k.load(rights, right_mask, 0.0)
        acc = acc + k.dot(left, right) if added else k.dot(left, right, acc)
        k.leave(acc, lefts + block_k, rights + sb * block_k)
    k.store(
        c + (rows[:, None] * sc + columns[None, :]),
        loop.results[0],
        (rows[:, None] < m) & (columns[None, :] < n),
    )
    return k.finish()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("added", [False, True])
def test_matmul_at_all_edges(added, wrapped, target):
    kernel = Kernel(matmul(32, 32, 16, added, wrapped), target)
    for m, n, depth in ((32, 32, 16), (45, 70, 33), (1, 1, 1), (64, 96, 64)):
        a, b = normal(m, depth + 2), normal(depth, n + 1, seed=1)
        c = np.zeros((m, n + 3), np.float32)
        kernel(a, b, c, m, n, depth, depth + 2, n + 1, n + 3, grid=(-(-m // 32), -(-n // 32), 1))
        expected = a[:, :depth].astype(np.float64) @ b[:, :n]
        np.testing.assert_allclose(c[:, :n], expected, rtol=1e-4, atol=1e-4)
        assert (c[:, n:] == 0).all()


def test_masked_operands_are_read_in_place():
    kernel = Kernel(matmul(32, 32, 16, added=True, wrapped=False))
    assert kernel.lowered.notes["nests"] == 2  # clear the accumulator, store the result
    assert kernel.lowered.notes["products"] == 1


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_running_maximum(causal, target):
    block_m, block_n, width = 32, 16, 32
    k = TileKernel(
        "attention", q=F32_POINTER, key=F32_POINTER, v=F32_POINTER, out=F32_POINTER,
        lse=F32_POINTER, n=I32, scale=F32,
    )  # fmt: skip
    q, key, v, out, lse, n, scale = k.args()
    rows = k.program_id() * block_m + k.arange(block_m)
    features = k.arange(width)
    queries = k.load(q + (rows[:, None] * width + features[None, :]), rows[:, None] < n, 0.0)
    initial = (
        k.full((block_m,), -np.inf), k.full((block_m,), 0.0), k.full((block_m, width), 0.0),
    )  # fmt: skip
    with k.loop(0, n, block_n, *initial) as loop:
        largest, total, acc = loop.carried
        columns = k.arange(block_n) + loop.index
        inside = columns < n
        keys = k.load(key + (columns[None, :] * width + features[:, None]), inside[None, :], 0.0)
        scores = k.dot(queries, keys) * scale
        allowed = inside[None, :]
        if causal:
            allowed = allowed & (rows[:, None] >= columns[None, :])
        scores = k.where(allowed, scores, -np.inf)
        now = k.maximum(largest, k.reduce(scores, 1, "maxnumf"))
        decay = k.math("exp", largest - now)
        weights = k.math("exp", scores - now[:, None])
        total = total * decay + k.reduce(weights, 1)
        values = k.load(v + (columns[:, None] * width + features[None, :]), inside[:, None], 0.0)
        k.leave(now, total, k.dot(weights, values, acc * decay[:, None]))
    largest, total, acc = loop.results
    place = rows[:, None] * width + features[None, :]
    k.store(out + place, acc / total[:, None], rows[:, None] < n)
    k.store(lse + rows, largest + k.math("log", total), rows < n)
    kernel = Kernel(k.finish(), target)
    for size in (32, 50, 64):
        a, b, c = normal(size, width), normal(size, width, seed=1), normal(size, width, seed=2)
        result, sums = np.zeros_like(a), np.zeros(size, np.float32)
        kernel(a, b, c, result, sums, size, width**-0.5, grid=(-(-size // block_m), 1, 1))
        scores = (a.astype(np.float64) @ b.T) * width**-0.5
        if causal:
            scores = np.where(np.tril(np.ones((size, size), bool)), scores, -np.inf)
        power = np.exp(scores - scores.max(1, keepdims=True))
        expected = power / power.sum(1, keepdims=True) @ c
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(sums, np.log(np.exp(scores).sum(1)), rtol=1e-5, atol=1e-5)


def test_accumulator_that_is_still_needed_is_copied():
    size = 8
    k = TileKernel("reuse", a=F32_POINTER, out=F32_POINTER)
    a, out = k.args()
    block = k.load(a + k.row_major(size, size))
    with k.loop(0, 3, 1, k.full((size, size), 1.0)) as loop:
        (acc,) = loop.carried
        first = k.dot(block, block.trans(), acc)
        second = k.dot(acc, block, first)
        k.leave(second * 0.1 + acc)
    k.store(out + k.row_major(size, size), loop.results[0])
    data, result = normal(size, size), np.zeros((size, size), np.float32)
    run(k.finish(), data, result)
    expected = np.ones((size, size))
    for _ in range(3):
        expected = (data @ data.T + expected + expected @ data) * 0.1 + expected
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_batches_of_products():
    batch, m, n, depth = 2, 5, 7, 9
    k = TileKernel("batched", a=F32_POINTER, b=F32_POINTER, c=F32_POINTER)
    a, b, c = k.args()
    left = k.load(a + k.row_major(batch, m, depth)) + 1.0
    right = k.load(b + k.row_major(batch, depth, n))
    product = k.emit("tile.dot", left, right, k.full((batch, m, n), 1.0))
    k.store(c + k.row_major(batch, m, n), product)
    x, y = normal(batch, m, depth), normal(batch, depth, n, seed=1)
    result = np.zeros((batch, m, n), np.float32)
    run(k.finish(), x, y, result)
    np.testing.assert_allclose(result, (x + 1) @ y + 1, rtol=1e-4, atol=1e-5)


def test_shape_changes_through_scratch():
    m, n = 6, 10
    k = TileKernel(
        "shapes", x=F32_POINTER, t=F32_POINTER, r=F32_POINTER, j=F32_POINTER, s=F32_POINTER,
        c=F32_POINTER, g=F32_POINTER,
    )  # fmt: skip
    x, t, r, j, s, c, g = k.args()
    value = k.load(x + k.row_major(m, n)) + 1.0
    k.store(t + k.row_major(n, m), k.math("exp", value).trans())
    k.store(r + k.row_major(4, 15), value.reshape(4, 15) * 2.0)
    joined = k.emit("tile.join", value, value * 3.0)
    k.store(j + k.row_major(m, n, 2), joined)
    parts = k.builder.create("tile.split", joined.value).results
    k.store(s + k.row_major(m, n), type(value)(k, parts[1]) - type(value)(k, parts[0]))
    k.store(c + k.row_major(2 * m, n), k.emit("tile.cat", value, value * 5.0))
    _, column = k.grid(m, 4)
    index = (column * 7 % n).broadcast_to((m, 4))
    k.store(g + k.row_major(m, 4), k.emit("tile.gather", value, index, axis=1))
    data = normal(m, n)
    y = data + 1
    expected = [
        np.exp(y).T, y.reshape(4, 15) * 2, np.stack([y, y * 3], -1), y * 3 - y,
        np.concatenate([y, y * 5]), y[:, [0, 7, 4, 1]],
    ]  # fmt: skip
    results = [np.zeros(array.shape, np.float32) for array in expected]
    run(k.finish(), data, *results)
    for result, array in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, array, rtol=1e-5, atol=1e-6)
