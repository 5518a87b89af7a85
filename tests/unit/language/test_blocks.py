"""Shapes: broadcasting, reshaping, transposing, joining; reductions, scans, products, sorting."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.support.language_kernels import build_body, evaluate, run_body

X = np.arange(64, dtype=np.float32).reshape(8, 8) * np.float32(0.37) % 5 - 2


def over_matrix(expression: str, shape: tuple[int, ...], out: Any = np.float32) -> np.ndarray:
    """`expression` of the 8 x 8 block x, stored in row-major order."""
    result = np.zeros(shape, out)
    size = max(1, result.size)
    store = "tl.store(x1, r)" if not shape else (
        f"tl.store(x1 + tl.arange(0, {size}), tl.reshape(r, ({size},)))")  # fmt: skip
    run_body(
        f"""
        rows, columns = tl.arange(0, 8)[:, None], tl.arange(0, 8)[None, :]
        x = tl.load(x0 + rows * 8 + columns)
        r = {expression}
        {store}
        """,
        X,
        result,
    )
    return result


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("tl.trans(x)", X.T), ("x.T", X.T), ("tl.permute(x, (1, 0))", X.T),
        ("tl.trans(x.reshape(2, 4, 8), 2, 0, 1)", X.reshape(2, 4, 8).transpose(2, 0, 1)),
        ("tl.view(x, (4, 16))", X.reshape(4, 16)), ("tl.ravel(x)", X.ravel()),
        ("x + tl.sum(x, 1)[:, None]", X + X.sum(1)[:, None]),
        ("x - x.max(0)[None, :]", X - X.max(0)), ("x + tl.max(x, 0)", X + X.max(0)),
        ("tl.expand_dims(tl.min(x, 1), 1)", X.min(1)[:, None]),
        ("tl.broadcast_to(tl.max(x, 1, keep_dims=True), (8, 8))",
         np.broadcast_to(X.max(1)[:, None], (8, 8))),
        ("tl.broadcast(x, tl.sum(x))[1]", np.full((8, 8), X.sum())),
        ("tl.join(x, -x)", np.stack([X, -X], 2)),
        ("tl.interleave(x, -x)", np.stack([X, -X], 2).reshape(8, 16)),
        ("tl.split(x.reshape(8, 4, 2))[1]", X[:, 1::2]),
        ("tl.cat(x, -x)", np.concatenate([X, -X])), ("tl.cat(x, -x, dim=1)", np.hstack([X, -X])),
        ("tl.zeros_like(x) + 1", np.ones((8, 8))), ("tl.full((4, 2), 2.5, tl.float32)", None),
        ("tl.sum(x)", X.sum()), ("tl.max(x)", X.max()), ("x.min()", X.min()),
        ("tl.sum(x, -1)", X.sum(1)), ("tl.sum(x, keep_dims=True)", X.sum(keepdims=True)),
        ("tl.cumsum(x, 1)", X.cumsum(1)),
        ("tl.cumsum(x, 0, reverse=True)", X[::-1].cumsum(0)[::-1]),
        ("tl.cumprod(x, 0)", X.cumprod(0)), ("tl.flip(x, 0)", X[::-1]), ("tl.flip(x)", X[:, ::-1]),
        ("tl.sort(x)", np.sort(X, 1)), ("tl.sort(x, descending=True)", -np.sort(-X, 1)),
        ("tl.topk(x, 2)", -np.sort(-X, 1)[:, :2]), ("tl.topk(x, 1, descending=False)", X.min(1)),
        ("tl.softmax(x, 1)", np.exp(X) / np.exp(X).sum(1, keepdims=True)),
        ("tl.gather(x, (rows + columns) % 8, 1)",
         np.take_along_axis(X, np.add.outer(np.arange(8), np.arange(8)) % 8, 1)),
        ("tl.squeeze(tl.max(x, 1, keep_dims=True), 1)", X.max(1)),
        ("tl.unsqueeze(x, 0)", X[None]), ("tl.dot(x, x)", X @ X),
        ("tl.dot(x, x, acc=x, input_precision='tf32')", X @ X + X),
        ("tl.dot(x.reshape(2, 4, 8), x.T.reshape(2, 8, 4))",
         X.reshape(2, 4, 8) @ np.ascontiguousarray(X.T).reshape(2, 8, 4)),
        ("(x > 0) & (rows < 4)", (X > 0) & (np.arange(8) < 4)[:, None]),
    ],
)  # fmt: skip
def test_matrix_expressions(expression: str, wanted: np.ndarray | None) -> None:
    expected = np.full((4, 2), 2.5) if wanted is None else np.asarray(wanted, np.float64)
    result = over_matrix(expression, expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rotation", range(4))
@pytest.mark.parametrize(
    "row", [[1, np.nan, 3, np.nan], [np.nan] * 4, [2, 2, 1, 2], [-np.inf, -np.inf, np.nan, -np.inf]]
)
def test_nan_loses_in_max_and_argmax_alike(row: list[float], rotation: int) -> None:
    """One rule for every order of lanes: numbers before NaN, then the lower index."""
    values = np.roll(np.array(row, np.float32), rotation)
    numbers = values[~np.isnan(values)]
    index = int(np.flatnonzero(values == numbers.max())[0]) if numbers.size else 0
    best, where = np.zeros(1, np.float32), np.zeros(3, np.int32)
    run_body(
        """
        x = tl.load(x0 + tl.arange(0, 4))
        tl.store(x1, tl.max(x, 0))
        tl.store(x2, tl.argmax(x, 0))
        value, place = tl.max(x, 0, return_indices=True)
        tl.store(x2 + 1, place)
        tl.store(x2 + 2, tl.argmin(-x, 0))
        """,
        values,
        best,
        where,
    )
    np.testing.assert_array_equal(best[0], values[index])
    np.testing.assert_array_equal(where, [index] * 3)


def test_sums_of_narrow_integers_take_32_bits() -> None:
    a = np.full(64, 100, np.int8)
    out = np.zeros(1, np.int32)
    run_body("tl.store(x1, tl.sum(tl.load(x0 + tl.arange(0, 64)), 0))", a, out)
    assert out[0] == 6400
    build_body(
        """
        x = tl.load(h + tl.arange(0, 16))
        tl.static_assert(tl.sum(x, 0).dtype == tl.float16)
        tl.static_assert(tl.max(x, 0).dtype == tl.float32)
        tl.static_assert(tl.sum(x, 0, dtype=tl.float32).dtype == tl.float32)
        tl.static_assert(tl.sum(x > 0, 0).dtype == tl.uint32)
        tl.static_assert(tl.cumsum(tl.load(q + tl.arange(0, 16)).to(tl.int16), 0).dtype == tl.int32)
        """
    )


def test_sum_of_i32_wraps() -> None:
    out = np.full(1, 7, np.int32)
    run_body(
        "tl.store(x1, tl.sum(tl.load(x0 + tl.arange(0, 128)), 0))",
        np.full(128, 2**30, np.int32),
        out,
    )
    assert out[0] == 0


COMBINE = """
    @jit
    def add(a, b):
        return a + b

    @jit
    def largest(a, b):
        return tl.maximum(a, b)

    @jit
    def line(a, b, c, d):
        return a * c, b * c + d

    @jit
    def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
        n = n_a + n_b
        delta = mean_b - mean_a
        share = tl.where(n == 0.0, 0.0, n_b / n)
        return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n
    """


def test_simple_combine_functions_become_named_reductions() -> None:
    function = build_body(
        """
        x = tl.load(p + tl.arange(0, 16))
        tl.store(p, tl.reduce(x, 0, add))
        tl.store(p + tl.arange(0, 16), tl.associative_scan(x, 0, largest))
        tl.store(p, tl.reduce((x, x), 0, line)[1])
        """,
        COMBINE,
    )
    kinds = [op.attrs["kind"] for op in function.walk() if op.name in ("tile.reduce", "tile.scan")]
    assert kinds == ["addf", "maxnumf", "region"]


def test_combine_functions_of_tuples() -> None:
    a = np.linspace(0.5, 1.5, 16).astype(np.float32)
    b = np.linspace(-1, 2, 16).astype(np.float32)
    scanned, mean_of, variance = np.zeros(16, np.float32), np.zeros(1, np.float32), np.zeros(1)
    run_body(
        """
        lanes = tl.arange(0, 16)
        a, b = tl.load(x0 + lanes), tl.load(x1 + lanes)
        _, state = tl.associative_scan((a, b), 0, line)
        tl.store(x2 + lanes, state)
        mean, m2, n = tl.reduce((b, b * 0, b * 0 + 1), 0, welford)
        tl.store(x3, mean)
        tl.store(x4, m2 / n)
        """,
        a, b, scanned, mean_of, variance, helpers=COMBINE,
    )  # fmt: skip
    state, states = 0.0, []
    for x, y in zip(a, b, strict=True):
        state = state * x + y
        states.append(state)
    np.testing.assert_allclose(scanned, states, rtol=1e-5)
    np.testing.assert_allclose(mean_of, b.mean(), rtol=1e-5)
    np.testing.assert_allclose(variance, b.var(), rtol=1e-5)


def test_products_of_narrow_types() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (2, 16, 16)).astype(np.int8)
    out = np.zeros((16, 16), np.int32)
    load = "tl.load(x{} + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :])"
    body = f"""
        a, b = {load.format(0)}, {load.format(1)}
        y = tl.dot(a, b)
        tl.store(x2 + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :], y)
        """
    run_body(body, a, b, out)
    np.testing.assert_array_equal(out, a.astype(np.int32) @ b.astype(np.int32))
    half = [array.astype(ml_dtypes.bfloat16) for array in (a, b)]
    result = np.zeros((16, 16), np.float32)
    run_body(body, *half, result)
    exact = half[0].astype(np.float64) @ half[1].astype(np.float64)
    np.testing.assert_allclose(result, exact, rtol=1e-6)


def test_histogram_and_other_integers() -> None:
    a = np.array([0, 3, 3, 1, 7, 3, 0, 2], np.int32)
    np.testing.assert_array_equal(
        evaluate("tl.histogram(a, 8)", a, out=np.int32), np.bincount(a, minlength=8)
    )
    np.testing.assert_array_equal(
        evaluate("a * 0 + tl.xor_sum(a, 0)", a, out=np.int32), [np.bitwise_xor.reduce(a)] * 8
    )
    np.testing.assert_array_equal(
        evaluate("a * 0 + tl.reduce_or(a, 0)", a, out=np.int32), [np.bitwise_or.reduce(a)] * 8
    )


def test_swizzle_walks_groups_of_rows() -> None:
    out = np.zeros((4, 4), np.int32)
    run_body(
        """
        pid = tl.program_id(0)
        i, j = tl.swizzle2d(pid // 4, pid % 4, 4, 4, 2)
        tl.store(x0 + i * 4 + j, pid)
        """,
        out,
        grid=(16,),
    )
    np.testing.assert_array_equal(
        out, [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    )


def test_any_block_size_where_allowed() -> None:
    function = build_body(
        "tl.store(p + tl.arange(0, 48), tl.zeros((48,), tl.float32))",
        options={"allow_any_block_size": True},
    )
    assert any(op.name == "tile.arange" and op.attrs["end"] == 48 for op in function.walk())
