"""Element-wise semantics against Python's exact numbers; rows B06 to B20 of known faults."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from isthmus.core.errors import InternalError
from isthmus.ir import dialects  # noqa: F401  (fills the op tables)
from isthmus.ir.optable import OPS
from isthmus.ir.reference import REFERENCE, constant, evaluate
from isthmus.ir.types import BF16, F8E4M3, F16, F32, F64, I1, I8, I16, I32, I64

EVERY_I8 = np.arange(-128, 128).astype(np.int8)
A, B = (grid.ravel() for grid in np.meshgrid(EVERY_I8, EVERY_I8))


def unsigned(value: int) -> int:
    return value & 0xFF


def wrapped(value: int) -> int:
    return (value + 128 & 0xFF) - 128


def quotient(a: int, b: int) -> int:
    return 0 if b == 0 else wrapped(int(Fraction(a, b)))


def remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * int(Fraction(a, b))


RULES = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": quotient,
    "remsi": remainder,
    "divui": lambda a, b: unsigned(a) // unsigned(b) if b else 0,
    "remui": lambda a, b: unsigned(a) % unsigned(b) if b else a,
    "mulhui": lambda a, b: unsigned(a) * unsigned(b) >> 8,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "shli": lambda a, b: a << unsigned(b) if unsigned(b) < 8 else 0,
    "shrsi": lambda a, b: a >> min(unsigned(b), 7),
    "shrui": lambda a, b: unsigned(a) >> unsigned(b) if unsigned(b) < 8 else 0,
    "minsi": min,
    "maxsi": max,
    "minui": lambda a, b: min(unsigned(a), unsigned(b)),
    "maxui": lambda a, b: max(unsigned(a), unsigned(b)),
}


def test_every_elementwise_operation_has_a_reference():
    missing = {name for name, row in OPS.items() if row.is_elementwise} - set(REFERENCE)
    assert missing == {"ptr.add", "ptr.cast"}, "only pointers are left to the interpreter"
    with pytest.raises(InternalError, match=r"tile\.load has no reference"):
        evaluate("tile.load", [], F32)


@pytest.mark.parametrize("name", RULES)
def test_integers_on_every_pair_of_bytes(name):
    rule = RULES[name]
    expected = [wrapped(rule(a, b)) for a, b in zip(A.tolist(), B.tolist(), strict=True)]
    np.testing.assert_array_equal(evaluate(f"arith.{name}", [A, B], I8), expected)


@pytest.mark.parametrize("predicate", ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt"])
def test_comparisons_on_every_pair_of_bytes(predicate):
    a, b = (A, B) if predicate[0] != "u" else (A.view(np.uint8), B.view(np.uint8))
    rule = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
            "gt": "greater", "ge": "greater_equal"}[predicate.lstrip("su")]  # fmt: skip
    result = evaluate("arith.cmpi", [A, B], I1, {"predicate": predicate})
    np.testing.assert_array_equal(result, getattr(np, rule)(a, b))


@pytest.mark.parametrize("name", ["addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minui"])
def test_truth_values_are_integers_of_one_bit(name):
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    rule = {
        "addi": a ^ b, "subi": a ^ b, "muli": a & b, "andi": a & b, "ori": a | b,
        "xori": a ^ b, "maxsi": a & b, "minui": a & b,  # signed, true is -1
    }[name]  # fmt: skip
    np.testing.assert_array_equal(evaluate(f"arith.{name}", [a, b], I1), rule)


def test_b06_division_truncates():
    a, b = np.array([-7, 7, -7, 7], np.int32), np.array([2, -2, -2, 2], np.int32)
    assert evaluate("arith.divsi", [a, b], I32).tolist() == [-3, -3, 3, 3]
    assert evaluate("arith.remsi", [a, b], I32).tolist() == [-1, 1, -1, 1]


@pytest.mark.parametrize("element", [I8, I16, I32, I64])
def test_b08_the_smallest_integer_by_minus_one_wraps(element):
    lowest = -(1 << (element.bits - 1))
    pair = [constant(lowest, element), constant(-1, element)]
    assert int(evaluate("arith.divsi", pair, element)) == lowest
    assert int(evaluate("arith.remsi", pair, element)) == 0
    assert int(evaluate("math.absi", pair[:1], element)) == lowest


def test_b12_shifts_by_the_width_or_more():
    pair = [np.int64([1000, -1000, -1000]), np.int64([64, 64, -1])]
    assert evaluate("arith.shli", pair, I64).tolist() == [0, 0, 0]
    assert evaluate("arith.shrui", pair, I64).tolist() == [0, 0, 0]
    assert evaluate("arith.shrsi", pair, I64).tolist() == [0, -1, -1]


def test_b15_nan_wins_or_loses_as_the_name_says():
    a, b = np.float32([1, math.nan, math.nan, -0.0]), np.float32([math.nan, 3, math.nan, 0.0])
    np.testing.assert_array_equal(evaluate("arith.maxnumf", [a, b], F32)[:3], [1, 3, math.nan])
    np.testing.assert_array_equal(evaluate("arith.minnumf", [a, b], F32)[:3], [1, 3, math.nan])
    for one, other in ((a, b), (b, a)):
        smaller = evaluate("arith.minimumf", [one, other], F32)
        larger = evaluate("arith.maximumf", [one, other], F32)
        assert np.isnan(smaller[:3]).all()
        assert np.isnan(larger[:3]).all()
        assert np.signbit(smaller[3])
        assert not np.signbit(larger[3])


@pytest.mark.parametrize("predicate", ["oeq", "one", "olt", "ueq", "une", "uge", "ord", "uno"])
def test_comparisons_with_nan(predicate):
    a, b = np.float32([1, math.nan]), np.float32([1, 1])
    equal, unordered = evaluate("arith.cmpf", [a, b], I1, {"predicate": predicate})
    assert equal == (predicate in ("oeq", "ueq", "uge", "ord"))
    assert unordered == (predicate[0] == "u")


def test_b17_sums_of_i32_wrap():
    total = np.int32(0)
    for _ in range(128):
        total = evaluate("arith.addi", [np.asarray(total), np.asarray(np.int32(1 << 30))], I32)
    assert int(total) == 0


def test_b20_bf16_rounds_to_nearest_even_and_keeps_nan():
    values = np.float32([0.2691408770292272, 3.14, 1.00390625, 1.01171875])
    rounded = evaluate("arith.truncf", [values], BF16).astype(np.float32)
    assert rounded.tolist() == [0.26953125, 3.140625, 1.0, 1.015625]
    signalling = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(evaluate("arith.truncf", [signalling], BF16).astype(np.float32)).all()


def test_narrowing_f64_rounds_once():
    value = np.float64([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, -(1 + 2.0**-8 + 2.0**-40)])
    once = evaluate("arith.truncf", [value], BF16).astype(np.float64)
    assert once.tolist() == [1 + 2.0**-7, 1.0, -1 - 2.0**-7]


@pytest.mark.parametrize("element", [F16, BF16, F8E4M3])
def test_narrowing_toward_zero(element):
    values = np.float32([1.99999, -1.99999, 3e38, -3e38, 1e-40, 0.0])
    result = evaluate("arith.truncf", [values], element, {"rounding": "rtz"}).astype(np.float64)
    assert np.isfinite(result).all()
    assert (np.abs(result) <= np.abs(values.astype(np.float64))).all()
    assert (np.abs(result[:2]) >= 1.75).all()


@pytest.mark.parametrize("element", [I1, I8, I32, I64])
def test_float_to_integer_saturates(element):
    values = np.float64([math.nan, math.inf, -math.inf, 1e30, -1e30, 0.9, -0.9])
    result = evaluate("arith.fptosi", [values], element).astype(np.int64)
    lowest, highest = -(1 << (element.bits - 1)), (1 << (element.bits - 1)) - 1
    if element is I1:
        lowest = 1  # the bit of -1
    assert result.tolist() == [0, highest, lowest, highest, lowest, 0, 0]
    bits = evaluate("arith.fptoui", [values], element)
    ones = True if element is I1 else -1
    assert bits.tolist() == [0, ones, 0, ones, 0, 0, 0]


@pytest.mark.parametrize(("element", "digits"), [(F32, 24), (F16, 11), (BF16, 8)])
def test_integers_to_floats_round_once(element, digits):
    values = np.int64([(1 << 62) + (1 << (62 - digits)) + 1, (1 << 62) + (1 << (62 - digits)), -3])
    up, tie, small = evaluate("arith.sitofp", [values], element).astype(np.float64)
    if element is F16:
        assert math.isinf(up)
    else:
        assert (up, tie) == (2.0**62 + 2.0 ** (63 - digits), 2.0**62)
    assert small == -3
    assert float(evaluate("arith.uitofp", [values[2:]], F64)[0]) == 2.0**64


def rounded(exact: Fraction, element) -> float:
    """The nearest value by search among neighbours, ties to the even code."""
    dtype = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16}[element]
    start = np.asarray(float(exact)).astype(dtype)
    codes = start.view(np.int32 if element is F32 else np.int16)
    near = [(codes + step).astype(codes.dtype) for step in (-1, 0, 1)]
    candidates = [(code, float(code.view(dtype))) for code in near]
    finite = [(code, value) for code, value in candidates if math.isfinite(value)]
    return min(finite, key=lambda pair: (abs(Fraction(pair[1]) - exact), int(pair[0]) & 1))[1]


@pytest.mark.parametrize("element", [F32, F16, BF16])
def test_fma_rounds_once(element):
    rng = np.random.default_rng(0)
    dtype = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16}[element]
    scale = 2.0 ** rng.integers(-9, 4, (3, 1500))
    a, b, c = (rng.integers(-(1 << 12), 1 << 12, (3, 1500)) / 4096 * scale).astype(dtype)
    c[:500] = -(a * b)[:500]  # cancellation leaves what the product's rounding lost
    result = evaluate("arith.fma", [a, b, c], element).astype(np.float64)
    for place in range(a.size):
        exact = Fraction(float(a[place])) * Fraction(float(b[place])) + Fraction(float(c[place]))
        assert result[place] == rounded(exact, element)


def test_fma_of_f64():
    e = 2.0**-30
    a, b, c = np.float64([1 + e, 1e200, math.inf, 1e300]), np.float64([1 - e, 1e200, 0, -1e300]), 0
    c = np.float64([-1, -math.inf, 1, math.inf])
    result = evaluate("arith.fma", [a, b, c], F64)
    assert result[0] == -(e * e)
    np.testing.assert_array_equal(result[1:], [-math.inf, math.nan, math.inf])


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("exp", 1.0, math.e), ("exp2", -3.0, 0.125), ("log2", 8.0, 3.0),
        ("erf", 0.5, math.erf(0.5)),
        ("sigmoid", -200.0, 1 / (1 + math.exp(200))), ("rsqrt", 4.0, 0.5), ("tanh", 50.0, 1.0),
        ("expm1", 1e-10, 1e-10), ("roundeven", 2.5, 2.0), ("trunc", -2.5, -2.0),
        ("ceil", -0.5, -0.0),
    ],
)  # fmt: skip
def test_functions(name, x, expected):
    result = evaluate(f"math.{name}", [np.float32([x])], F32)
    np.testing.assert_array_equal(result, np.float32([expected]))
    assert np.signbit(result[0]) == np.signbit(np.float32(expected))


def test_constants_keep_low_bits_and_round_once():
    assert int(constant(0xFFFFFFFF, I32)) == -1
    assert bool(constant(1, I1)) is True
    assert float(constant(0.1, BF16)) == float(ml_dtypes.bfloat16(0.1))
