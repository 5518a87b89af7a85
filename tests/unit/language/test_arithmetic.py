"""Operators and casts on blocks and scalars: values against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.support.language_kernels import evaluate, run_body

I32 = np.array([-7, 7, -7, 7, 0, 5, -1, 2**31 - 1], np.int32)
BY = np.array([2, -2, -2, 2, 3, 0, 1, -1], np.int32)


def test_integer_division_truncates() -> None:
    quotient = evaluate("a // b", I32, BY, out=np.int32)
    rest = evaluate("a % b", I32, BY, out=np.int32)
    np.testing.assert_array_equal(quotient, [-3, -3, 3, 3, 0, 0, -1, -(2**31) + 1])
    np.testing.assert_array_equal(rest, [-1, 1, -1, 1, 0, 5, 0, 0])


def test_division_of_the_smallest_integer_wraps() -> None:
    low = np.full(4, -(2**31), np.int32)
    one = np.full(4, -1, np.int32)
    np.testing.assert_array_equal(evaluate("a // b", low, one, out=np.int32), low)
    np.testing.assert_array_equal(evaluate("a % b", low, one, out=np.int32), 0 * low)


def test_scalars_truncate_and_constants_floor() -> None:
    out = np.zeros(4, np.int32)
    run_body(
        """
        pid = tl.program_id(0)
        tl.store(x0 + 0, (pid - 7) // 2)
        tl.store(x0 + 1, (pid - 7) % 2)
        K: tl.constexpr = -7 // 2
        tl.store(x0 + 2, K)
        seven = -7
        tl.store(x0 + 3, seven // 2)
        """,
        out,
    )
    np.testing.assert_array_equal(out, [-3, -1, -4, -3])


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("a + b", lambda a, b: a + b), ("a - b", lambda a, b: a - b), ("a * b", lambda a, b: a * b),
        ("a & b", lambda a, b: a & b), ("a | b", lambda a, b: a | b), ("a ^ b", lambda a, b: a ^ b),
        ("~a", lambda a, b: ~a), ("-a", lambda a, b: -a),
        ("a << 3", lambda a, b: a << 3), ("a >> 1", lambda a, b: a >> 1),
        ("tl.minimum(a, b)", np.minimum), ("tl.maximum(a, b)", np.maximum),
        ("tl.abs(a)", lambda a, b: np.abs(a)), ("tl.where(a < b, a, b)", np.minimum),
        ("tl.clamp(a, -3, 3)", lambda a, b: np.clip(a, -3, 3)),
        ("(a > b) & (a > 0)", lambda a, b: (a > b) & (a > 0)),
        ("not (a > b)", lambda a, b: ~(a > b)), ("a >= b", lambda a, b: a >= b),
        ("(a != b) or (a < 0)", lambda a, b: (a != b) | (a < 0)),
        ("0 < a < 6", lambda a, b: (a > 0) & (a < 6)),
    ],
)  # fmt: skip
def test_integer_operators(expression: str, wanted: Any) -> None:
    with np.errstate(over="ignore"):
        expected = wanted(I32, BY)
    result = evaluate(expression, I32, BY, out=np.int32)
    np.testing.assert_array_equal(result, expected.astype(np.int32))


@pytest.mark.parametrize(
    ("kind", "expression", "wanted"),
    [
        (np.uint32, "a // 3", lambda a: a // 3), (np.uint32, "a % 7", lambda a: a % 7),
        (np.uint32, "a >> 4", lambda a: a >> 4), (np.uint8, "a >> 1", lambda a: a >> 1),
        (np.uint32, "a > 5", lambda a: a > 5), (np.uint8, "a.to(tl.float32)", lambda a: a),
        (np.uint8, "a.to(tl.int64)", lambda a: a), (np.uint8, "tl.maximum(a, 200)", None),
        (np.int8, "a.to(tl.uint8).to(tl.int32)", lambda a: a.view(np.uint8)),
        (np.uint64, "a.to(tl.float64)", lambda a: a.astype(np.float64)),
    ],
)  # fmt: skip
def test_unsigned_integers(kind: Any, expression: str, wanted: Any) -> None:
    a = np.array([0, 1, 5, 100, 127, 200, 250, 255]).astype(kind)
    if kind == np.uint32:
        a[-1] = 2**32 - 1
    if kind == np.uint64:
        a[-1] = 2**64 - 1
    expected = np.maximum(a, 200) if wanted is None else wanted(a)
    result = evaluate(expression, a, out=np.float64)
    np.testing.assert_array_equal(result, expected.astype(np.float64))


def test_shifts_by_the_width_and_more() -> None:
    amount = np.array([0, 31, 32, 40], np.int32)
    base = np.full(4, -8, np.int32)
    np.testing.assert_array_equal(evaluate("a << b", base, amount, out=np.int32), [-8, 0, 0, 0])
    np.testing.assert_array_equal(evaluate("a >> b", base, amount, out=np.int32), [-8, -1, -1, -1])


def test_division_gives_f32() -> None:
    a, b = np.array([1, 7, -7, 2**24 + 1], np.int32), np.array([3, 2, 2, 1], np.int32)
    np.testing.assert_array_equal(
        evaluate("a / b", a, b, out=np.float32), a.astype(np.float32) / b.astype(np.float32)
    )
    h = np.array([1, 2, 5, 7], np.float16)
    np.testing.assert_array_equal(
        evaluate("a / 3", h, out=np.float32), h.astype(np.float32) / np.float32(3)
    )


def test_comparisons_with_nan_are_false_but_for_inequality() -> None:
    a = np.array([1, np.nan, np.nan, 2], np.float32)
    b = np.array([np.nan, 1, np.nan, 2], np.float32)
    for symbol, wanted in (("<", 0), ("<=", 1), ("==", 1), (">", 0), (">=", 1)):
        result = evaluate(f"(a {symbol} b).to(tl.int32)", a, b, out=np.int32)
        np.testing.assert_array_equal(result, [0, 0, 0, wanted], symbol)
    np.testing.assert_array_equal(evaluate("a != b", a, b, out=np.int32), [1, 1, 1, 0])


def test_extremes_and_nan() -> None:
    a = np.array([1, np.nan, np.nan, 2], np.float32)
    b = np.array([np.nan, 1, np.nan, 3], np.float32)
    np.testing.assert_array_equal(
        evaluate("tl.maximum(a, b)", a, b, out=np.float32), [1, 1, np.nan, 3]
    )
    keep = "tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)"
    np.testing.assert_array_equal(evaluate(keep, a, b, out=np.float32), [np.nan, np.nan, np.nan, 2])


FLOATS = np.array(
    [0.2691408770292272, 3.14, 1.00390625, 1.01171875, -1.5, 65520.0, 1e-8, 0.0], np.float32
)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_narrow_to_nearest_even(kind: Any) -> None:
    with np.errstate(over="ignore"):
        expected = FLOATS.astype(kind)
    result = evaluate("a", FLOATS, out=kind)
    np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))


def test_narrow_toward_zero() -> None:
    cut = (FLOATS.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    result = evaluate(
        "a.to(tl.bfloat16, fp_downcast_rounding='rtz')", FLOATS, out=ml_dtypes.bfloat16
    )
    np.testing.assert_array_equal(result.astype(np.float32), cut)


def test_floats_to_integers_saturate() -> None:
    a = np.array([1.9, -1.9, 1e20, -1e20, np.nan, np.inf, 300.0, -300.0], np.float32)
    top = 2**31 - 1
    np.testing.assert_array_equal(
        evaluate("a.to(tl.int32)", a, out=np.int32), [1, -1, top, -top - 1, 0, top, 300, -300]
    )
    np.testing.assert_array_equal(
        evaluate("a.to(tl.uint8).to(tl.int32)", a, out=np.int32), [1, 0, 255, 0, 0, 255, 255, 0]
    )


def test_bitcast_and_truth() -> None:
    a = np.array([1.0, -0.0, np.nan, 0.5], np.float32)
    np.testing.assert_array_equal(
        evaluate("a.to(tl.int32, bitcast=True)", a, out=np.int32), a.view(np.int32)
    )
    np.testing.assert_array_equal(evaluate("a.to(tl.int1)", a, out=np.int32), [1, 0, 1, 1])


def test_scalars_with_literals() -> None:
    out = np.zeros(8, np.float32)
    run_body(
        """
        n = tl.program_id(0) + 5
        tl.static_assert((n * 2.0).dtype == tl.float32)
        tl.static_assert((n * 2).dtype == tl.int32)
        tl.store(x0 + 0, n * 2.5)
        tl.store(x0 + 1, min(n, 3))
        tl.store(x0 + 2, max(n, 9, 4))
        tl.store(x0 + 3, n if n > 4 else 0)
        tl.store(x0 + 4, tl.cdiv(n, 2))
        tl.store(x0 + 5, abs(-n))
        tl.store(x0 + 6, int(2.9) + float(n))
        tl.store(x0 + 7, (not (n > 4)) + 2)
        """,
        out,
    )
    np.testing.assert_array_equal(out, [12.5, 3, 9, 5, 3, 5, 7, 2])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("exp", np.exp), ("exp2", np.exp2), ("log", np.log), ("log2", np.log2), ("sin", np.sin),
        ("cos", np.cos), ("sqrt", np.sqrt), ("sqrt_rn", np.sqrt), ("floor", np.floor),
        ("ceil", np.ceil), ("abs", np.abs), ("math.tanh", np.tanh), ("math.log1p", np.log1p),
        ("math.expm1", np.expm1), ("math.rint", np.rint), ("math.trunc", np.trunc),
        ("math.isnan", np.isnan), ("math.signbit", np.signbit), ("math.atan", np.arctan),
        ("rsqrt", lambda x: 1 / np.sqrt(x)), ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ],
)  # fmt: skip
def test_functions(name: str, wanted: Any) -> None:
    x = np.array([0.1, 0.5, 1.0, 1.5, 2.5, 3.7, 10.25, 20.0], np.float32)
    result = evaluate(f"tl.{name}(a)", x, out=np.float32)
    np.testing.assert_allclose(result, wanted(x.astype(np.float64)), rtol=2e-6, atol=1e-6)


def test_functions_of_two_and_three() -> None:
    x = np.array([1.0, 2.0, -3.0, 4.5], np.float32)
    y = np.array([2.0, 0.5, 3.0, -1.0], np.float32)
    np.testing.assert_allclose(
        evaluate("tl.math.pow(tl.abs(a), b)", x, y, out=np.float32), np.abs(x) ** y, rtol=1e-6
    )
    np.testing.assert_array_equal(evaluate("tl.fma(a, b, 1.0)", x, y, out=np.float32), x * y + 1)
    np.testing.assert_array_equal(evaluate("tl.div_rn(a, b)", x, y, out=np.float32), x / y)
    np.testing.assert_array_equal(
        evaluate("tl.math.copysign(a, b)", x, y, out=np.float32), np.copysign(x, y)
    )
    u = np.array([2**31, 2**32 - 1, 3, 0], np.uint32)
    np.testing.assert_array_equal(
        evaluate("tl.umulhi(a, 8).to(tl.int64)", u, out=np.int64), [4, 7, 0, 0]
    )


def test_round_halves_away_from_zero() -> None:
    x = np.array([0.5, 1.5, -0.5, -2.5, 0.49999997, 2.4, -7.6, 1e9], np.float32)
    np.testing.assert_array_equal(
        evaluate("tl.math.round(a)", x, out=np.float32), [1, 2, -1, -3, 0, 2, -8, 1e9]
    )


def test_names_of_the_device_library() -> None:
    x = np.array([1.0, 2.0, 10.0, 7.5], np.float32)
    y = np.array([3.0, 3.0, 7.0, 11.0], np.float32)
    helpers = "from isthmus.language.extra import libdevice"
    for name in ("tanh", "fast_tanh"):
        result = evaluate(f"libdevice.{name}(a)", x, out=np.float32, helpers=helpers)
        np.testing.assert_allclose(result, np.tanh(x), rtol=1e-6)
    np.testing.assert_allclose(
        evaluate("libdevice.log10(a)", x, out=np.float32, helpers=helpers), np.log10(x), atol=1e-6
    )
    cut = evaluate("libdevice.div_rz(a, b)", x, y, out=np.float32, helpers=helpers)
    exact = x.astype(np.float64) / y
    assert np.all(cut.astype(np.float64) <= exact)
    np.testing.assert_allclose(cut, exact, rtol=1.2e-7)
