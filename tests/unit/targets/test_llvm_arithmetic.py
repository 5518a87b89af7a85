"""Every arithmetic operation in machine code against NumPy, at the values where machines differ."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Value
from isthmus.ir.types import (
    BF16,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PointerType,
    ScalarType,
    VectorType,
)  # fmt: skip

NUMPY = {
    I8: np.dtype(np.int8), I16: np.dtype(np.int16), I32: np.dtype(np.int32),
    I64: np.dtype(np.int64), F16: np.dtype(np.float16), BF16: np.dtype(ml_dtypes.bfloat16),
    F32: np.dtype(np.float32), F64: np.dtype(np.float64),
    F8E4M3: np.dtype(ml_dtypes.float8_e4m3fn), F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    I1: np.dtype(np.uint8),
}  # fmt: skip
LANES = 8


def kernel(inputs: list[ScalarType], output: ScalarType, body: Callable, lanes: int) -> Function:
    """out[i] = body(in0[i], ..), with vectors of `lanes` lanes or scalars (0)."""
    fn = Function("elementwise", [PointerType(I64), PointerType(I32), I64, I64, PointerType(I8)])
    b = Builder(fn)
    pointers = []
    for position, element in enumerate([*inputs, output]):
        slot = b.emit("ptr.add", fn.args[0], b.i64(position))
        address = b.emit("nest.load", slot, type=I64)
        pointers.append(b.emit("ptr.cast", address, type=PointerType(element)))
    _, loop = b.for_loop(fn.args[2], fn.args[3], b.i64(1))
    with b.at(loop):
        offset = b.emit("arith.muli", loop.args[0], b.i64(lanes or 1))

        def shaped(element: ScalarType):
            return VectorType((lanes,), element) if lanes else element

        values = [
            b.emit("nest.load", b.emit("ptr.add", pointer, offset), type=shaped(element))
            for pointer, element in zip(pointers, inputs, strict=False)
        ]
        result = body(b, values, shaped)
        b.create("nest.store", result, b.emit("ptr.add", pointers[-1], offset))
        b.create("scf.yield")
    b.create("func.return")
    return fn


def run(native, target, inputs, types, output, body, lanes=LANES) -> np.ndarray:
    size = -(-inputs[0].size // LANES) * LANES
    arrays = [np.resize(array, size) for array in inputs]
    out = np.zeros(size, NUMPY[output])
    fn = kernel(types, output, body, lanes)
    native(fn, target)("elementwise", [*arrays, out], span=(0, size // (lanes or 1)))
    return out[: inputs[0].size]


def plain(name: str, **attrs) -> Callable:
    def body(b: Builder, values: list[Value], _shaped) -> Value:
        return b.emit(name, *values, **attrs)

    return body


def cast_body(name: str, output: ScalarType, **attrs) -> Callable:
    def body(b: Builder, values: list[Value], shaped) -> Value:
        return b.emit(name, *values, type=shaped(output), **attrs)

    return body


def pairs(values) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.meshgrid(values, values)
    return left.ravel().copy(), right.ravel().copy()


def edges(element: ScalarType) -> np.ndarray:
    info = np.iinfo(NUMPY[element])
    small = [0, 1, -1, 2, -2, 3, 7, -7, element.bits - 1, element.bits, element.bits + 1, 100, -100]
    return np.array([*small, info.min, info.min + 1, info.max, info.max - 1], NUMPY[element])


def integer_meaning(name: str, a: int, b: int, bits: int) -> int:
    """What docs of the arith dialect say, on Python integers."""
    unsigned_a, unsigned_b = a % (1 << bits), b % (1 << bits)

    def quotient(x: int, y: int) -> int:
        return 0 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)

    results = {
        "addi": lambda: a + b, "subi": lambda: a - b, "muli": lambda: a * b,
        "divsi": lambda: quotient(a, b), "divui": lambda: quotient(unsigned_a, unsigned_b),
        "remsi": lambda: a if b == 0 else a - b * quotient(a, b),
        "remui": lambda: a if b == 0 else unsigned_a % unsigned_b,
        "mulhui": lambda: (unsigned_a * unsigned_b) >> bits,
        "andi": lambda: a & b, "ori": lambda: a | b, "xori": lambda: a ^ b,
        "shli": lambda: a << unsigned_b if unsigned_b < bits else 0,
        "shrsi": lambda: a >> min(unsigned_b, bits - 1),
        "shrui": lambda: unsigned_a >> unsigned_b if unsigned_b < bits else 0,
        "minsi": lambda: min(a, b), "maxsi": lambda: max(a, b),
        "minui": lambda: min(unsigned_a, unsigned_b), "maxui": lambda: max(unsigned_a, unsigned_b),
    }  # fmt: skip
    value = results[name]() % (1 << bits)
    return value - (1 << bits) if value >> (bits - 1) else value


INTEGER_OPS = [
    "addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "mulhui", "andi", "ori", "xori",
    "shli", "shrsi", "shrui", "minsi", "maxsi", "minui", "maxui",
]  # fmt: skip


@pytest.mark.parametrize("name", INTEGER_OPS)
@pytest.mark.parametrize("element", [I8, I16, I32, I64], ids=str)
def test_integers(name, element, native, target):
    a, b = pairs(edges(element))
    expected = [
        integer_meaning(name, int(x), int(y), element.bits) for x, y in zip(a, b, strict=True)
    ]
    for lanes in (0, LANES):
        got = run(
            native, target, [a, b], [element, element], element, plain(f"arith.{name}"), lanes
        )
        np.testing.assert_array_equal(got, np.array(expected, NUMPY[element]))


@pytest.mark.parametrize("divisor", [1, -1, 3, -4, 0, -(2**31)])
def test_division_by_constants(divisor, native, target):
    a = edges(I32)
    for name in ("divsi", "remsi"):

        def body(b, values, shaped, name=name):
            return b.emit(f"arith.{name}", values[0], b.constant(divisor, shaped(I32)))

        expected = [integer_meaning(name, int(x), divisor, 32) for x in a]
        got = run(native, target, [a], [I32], I32, body)
        np.testing.assert_array_equal(got, np.array(expected, np.int32))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.25, 1e-3, 100.0, math.inf, -math.inf, math.nan]
EXTREME = {F32: [3e38, 1e-45, 1.1754944e-38, -1e-40, 16777217.0], F64: [1e308, 5e-324, 1e-310]}


def floats(element: ScalarType) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array([*SPECIAL, *EXTREME.get(element, [240.0, 2.0**-9])]).astype(NUMPY[element])


@np.errstate(invalid="ignore")
def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal, NaN where NaN, and the same sign of zero."""
    wide_got, wide_expected = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(wide_got), np.isnan(wide_expected))
    np.testing.assert_array_equal(wide_got, wide_expected)
    real = ~np.isnan(wide_expected)
    np.testing.assert_array_equal(np.signbit(wide_got)[real], np.signbit(wide_expected)[real])


def ordered_zero(function: Callable, pick: Callable) -> Callable:
    """NumPy's minimum and maximum with -0 below +0."""

    def meaning(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = function(a, b)
        zeros = (a == 0) & (b == 0)
        sign = pick(np.signbit(a), np.signbit(b))
        return np.where(zeros, np.where(sign, -0.0, 0.0), result)

    return meaning


FLOAT_OPS = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "remf": np.fmod,
    "minimumf": ordered_zero(np.minimum, np.logical_or),
    "maximumf": ordered_zero(np.maximum, np.logical_and),
}  # fmt: skip


@pytest.mark.parametrize("element", [F32, F64, F16, BF16, F8E5M2, F8E4M3], ids=str)
@pytest.mark.parametrize("name", list(FLOAT_OPS))
def test_floats(name, element, native, target):
    a, b = pairs(floats(element))
    with np.errstate(all="ignore"):
        computed = np.float64 if element is F64 else np.float32
        expected = FLOAT_OPS[name](a.astype(computed), b.astype(computed)).astype(NUMPY[element])
    for lanes in (0, LANES):
        got = run(
            native, target, [a, b], [element, element], element, plain(f"arith.{name}"), lanes
        )
        same(got, expected)


@pytest.mark.parametrize("element", [F32, F64, F16, BF16], ids=str)
def test_minnum_and_maxnum_prefer_numbers(element, native, target):
    a, b = pairs(floats(element))
    for name, meaning in (("minnumf", np.fmin), ("maxnumf", np.fmax)):
        got = run(native, target, [a, b], [element, element], element, plain(f"arith.{name}"))
        expected = meaning(a.astype(np.float64), b.astype(np.float64))
        np.testing.assert_array_equal(got.astype(np.float64), expected)


def test_remainder_of_far_apart_numbers(native, target):
    generator = np.random.default_rng(1)
    for element in (F32, F64):
        spread = 35 if element is F32 else 300
        a, b = (
            (generator.standard_normal(256) * 10.0 ** generator.integers(-spread, spread, 256))
            .astype(NUMPY[element])
            for _ in range(2)
        )  # fmt: skip
        got = run(native, target, [a, b], [element, element], element, plain("arith.remf"))
        same(got, np.fmod(a, b))


def test_fma_rounds_once(native, target):
    generator = np.random.default_rng(2)
    a = generator.standard_normal(512).astype(np.float32)
    b = generator.standard_normal(512).astype(np.float32)
    # c nearly cancels the product, so that a product rounded first shows.
    c = -(a.astype(np.float64) * b).astype(np.float32)
    got = run(native, target, [a, b, c], [F32] * 3, F32, plain("arith.fma"))
    expected = (a.astype(np.float64) * b.astype(np.float64) + c).astype(np.float32)
    np.testing.assert_array_equal(got, expected)
    assert np.any(got != a * b + c)


def test_fma_of_f64_rounds_once(native, target):
    from fractions import Fraction

    generator = np.random.default_rng(3)
    a, b = generator.standard_normal((2, 64))
    c = -(a * b)
    expected = [
        float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)
    ]
    got = run(native, target, [a, b, c], [F64] * 3, F64, plain("arith.fma"))
    np.testing.assert_array_equal(got, expected)


def test_nothing_is_contracted(native, target):
    a = np.full(8, 1.0 + 2.0**-12, np.float32)
    c = np.full(8, -(1.0 + 2.0**-11), np.float32)

    def body(b, values, _shaped):
        return b.emit("arith.addf", b.emit("arith.mulf", values[0], values[0]), values[1])

    got = run(native, target, [a, c], [F32, F32], F32, body)
    np.testing.assert_array_equal(got, 0.0)


@pytest.mark.parametrize("element", [F32, F64, F16, BF16], ids=str)
def test_float_comparisons(element, native, target):
    a, b = pairs(floats(element))
    x, y = a.astype(np.float64), b.astype(np.float64)
    unordered = np.isnan(x) | np.isnan(y)
    ordered = {"oeq": x == y, "one": (x != y) & ~unordered, "olt": x < y, "ole": x <= y,
               "ogt": x > y, "oge": x >= y, "ord": ~unordered}  # fmt: skip
    either = {"ueq": (x == y) | unordered, "une": x != y, "ult": ~(x >= y), "ule": ~(x > y),
              "ugt": ~(x <= y), "uge": ~(x < y), "uno": unordered}  # fmt: skip
    for predicate, expected in {**ordered, **either}.items():
        got = run(
            native, target, [a, b], [element, element], I1, plain("arith.cmpf", predicate=predicate)
        )
        np.testing.assert_array_equal(got.astype(bool), expected, err_msg=predicate)


@pytest.mark.parametrize("source", [F32, F64, F16, BF16], ids=str)
@pytest.mark.parametrize("output", [I8, I16, I32, I64], ids=str)
def test_float_to_integer_saturates(source, output, native, target):
    values = np.array(
        [0.0, -0.0, 1.9, -1.9, 127.5, 128.0, -129.0, 255.9, 40000.0, -40000.0, 2147483648.0,
         -2147483649.0, 4294967296.0, 9.3e18, -9.3e18, 1.9e19, math.inf, -math.inf, math.nan]
    )  # fmt: skip
    with np.errstate(over="ignore"):
        values = values.astype(NUMPY[source])
    for name, low, high in (
        ("fptosi", -(1 << (output.bits - 1)), (1 << (output.bits - 1)) - 1),
        ("fptoui", 0, (1 << output.bits) - 1),
    ):
        expected = []
        for value in values.astype(np.float64):
            if math.isnan(value):
                expected.append(0)
            elif math.isinf(value):
                expected.append(high if value > 0 else low)
            else:
                expected.append(min(high, max(low, math.trunc(value))))
        wrapped = np.array([x % (1 << output.bits) for x in expected], f"u{NUMPY[output].name}")
        for lanes in (0, LANES):
            got = run(
                native,
                target,
                [values],
                [source],
                output,
                cast_body(f"arith.{name}", output),
                lanes,
            )
            np.testing.assert_array_equal(got, wrapped.view(NUMPY[output]), err_msg=name)


@pytest.mark.parametrize("source", [I8, I32, I64], ids=str)
@pytest.mark.parametrize("output", [F32, F64, F16, BF16], ids=str)
def test_integer_to_float(source, output, native, target):
    values = np.concatenate([edges(source), np.array([16777217 % 127, 33, 65], NUMPY[source])])
    got = run(native, target, [values], [source], output, cast_body("arith.sitofp", output))
    with np.errstate(over="ignore"):
        same(got, values.astype(np.float64).astype(NUMPY[output]))
    unsigned = values.view(f"u{values.dtype.name}")
    got = run(native, target, [values], [source], output, cast_body("arith.uitofp", output))
    if output in (F32, F64):
        same(got, unsigned.astype(NUMPY[output]))


NARROW = {F16: 16, BF16: 16, F8E4M3: 8, F8E5M2: 8}


@pytest.mark.parametrize("element", list(NARROW), ids=str)
def test_every_narrow_float_widens_exactly(element, native, target):
    bits = np.arange(1 << element.bits, dtype=f"uint{element.bits}")
    values = bits.view(NUMPY[element])
    for output in (F32, F64):
        got = run(native, target, [values], [element], output, cast_body("arith.extf", output))
        same(got, values.astype(NUMPY[output]))


@pytest.mark.parametrize("element", list(NARROW), ids=str)
@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_narrowing_to_nearest_even(element, source, native, target):
    """All midpoints between neighbours, and what lies just beside them."""
    bits = np.arange(1 << element.bits, dtype=f"uint{element.bits}")
    with np.errstate(all="ignore"):
        exact = bits.view(NUMPY[element]).astype(np.float64)
        exact = np.unique(exact[np.isfinite(exact)])
        middle = (exact[1:] + exact[:-1]) / 2
        values = np.concatenate([exact, middle]).astype(NUMPY[source])
        values = np.concatenate(
            [values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)]
        ).astype(NUMPY[source])
        extra = [math.inf, -math.inf, math.nan, 1e30, -1e30, 464.0, 465.0, 448.0, 61440.0, 65520.0]
        values = np.concatenate([values, np.array(extra).astype(NUMPY[source])])
        if source is F32:
            expected = values.astype(NUMPY[element])
        else:
            expected = _nearest(values, exact, element)
    got = run(native, target, [values], [source], element, cast_body("arith.truncf", element))
    same(got, expected)


def _nearest(values: np.ndarray, exact: np.ndarray, element: ScalarType) -> np.ndarray:
    """Correct rounding from f64: through f32 where that is exact, else beside the midpoint."""
    single = values.astype(np.float32)
    inexact = (single.astype(np.float64) != values) & np.isfinite(values)
    bits = single.view(np.int32).copy()
    above = np.abs(single.astype(np.float64)) > np.abs(values)
    bits = np.where(inexact, (bits - above) | 1, bits)
    return bits.astype(np.int32).view(np.float32).astype(NUMPY[element])


@pytest.mark.parametrize("element", list(NARROW), ids=str)
def test_narrowing_toward_zero(element, native, target):
    generator = np.random.default_rng(5)
    values = (generator.standard_normal(4096) * 10.0 ** generator.integers(-9, 6, 4096)).astype(
        np.float32
    )
    body = cast_body("arith.truncf", element, rounding="rtz")
    got = run(native, target, [values], [F32], element, body).astype(np.float64)
    codes = np.arange(1 << element.bits, dtype=f"uint{element.bits}").view(NUMPY[element])
    with np.errstate(all="ignore"):
        exact = codes.astype(np.float64)
    exact = np.unique(np.abs(exact[np.isfinite(exact)]))
    wanted = exact[np.searchsorted(exact, np.abs(values.astype(np.float64)), side="right") - 1]
    np.testing.assert_array_equal(np.abs(got), wanted)


@pytest.mark.parametrize("element", list(NARROW), ids=str)
def test_narrowing_keeps_nan(element, native, target):
    """Also signalling NaN whose payload lies in the bits that are cut off (report B20)."""
    bits = np.array([0x7F800001, 0x7FC00000, 0xFF800001, 0xFFFFFFFF, 0x7FBFFFFF], np.uint32)
    got = run(
        native, target, [bits.view(np.float32)], [F32], element, cast_body("arith.truncf", element)
    )
    assert np.isnan(got.astype(np.float32)).all()


def test_bf16_rounds_as_reported(native, target):
    """Report B20."""
    values = np.array([0.2691408770292272, 3.14, 1.00390625, 1.01171875], np.float32)
    got = run(native, target, [values], [F32], BF16, cast_body("arith.truncf", BF16))
    np.testing.assert_array_equal(got.astype(np.float32), [0.26953125, 3.140625, 1.0, 1.015625])


UNARY = {
    "arith.negf": np.negative, "math.absf": np.abs, "math.floor": np.floor, "math.ceil": np.ceil,
    "math.trunc": np.trunc, "math.roundeven": np.rint, "math.sqrt": np.sqrt,
}  # fmt: skip


@pytest.mark.parametrize("name", list(UNARY))
@pytest.mark.parametrize("element", [F32, F64, F16, BF16], ids=str)
def test_unary(name, element, native, target):
    values = np.concatenate(
        [floats(element), np.array([2.5, 3.5, -0.4, 7.9]).astype(NUMPY[element])]
    )
    with np.errstate(all="ignore"):
        expected = UNARY[name](values.astype(np.float64)).astype(NUMPY[element])
    for lanes in (0, LANES):
        same(run(native, target, [values], [element], element, plain(name), lanes), expected)
