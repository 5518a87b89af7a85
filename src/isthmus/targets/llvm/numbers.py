"""Float formats and exact arithmetic that LLVM has no portable instruction for.

Each function writes instructions through a `Writer` and gives back the name of the result.
`lanes` is 0 for scalars.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from isthmus.targets.llvm.text import mangled, shaped

__all__ = [
    "Writer", "fma_without_hardware", "maximum", "minimum", "narrow",
    "narrow_odd", "narrow_to_zero", "number_maximum", "number_minimum", "widen",
]  # fmt: skip


class Writer(Protocol):
    """What emits one instruction and names its result."""

    native: tuple[str, ...]

    def let(self, text: str) -> str: ...


class Format(NamedTuple):
    """A narrow float: widths, exponent bias, and what the codes at the top mean."""

    bits: int
    mantissa: int
    bias: int
    has_infinity: bool

    @property
    def infinity_code(self) -> int:
        """Code of infinity; of NaN where there is no infinity."""
        if not self.has_infinity:
            return (1 << (self.bits - 1)) - 1
        exponent_bits = self.bits - 1 - self.mantissa
        return ((1 << exponent_bits) - 1) << self.mantissa

    @property
    def nan_code(self) -> int:
        if not self.has_infinity:
            return self.infinity_code
        return self.infinity_code | 1 << (self.mantissa - 1)

    @property
    def largest_code(self) -> int:
        return self.infinity_code - 1


FORMATS = {
    "f16": Format(16, 10, 15, True),
    "bf16": Format(16, 7, 127, True),
    "f8e5m2": Format(8, 2, 15, True),
    "f8e4m3": Format(8, 3, 7, False),
}


class _Shape:
    """Short spellings for instructions on `lanes` lanes."""

    def __init__(self, writer: Writer, lanes: int) -> None:
        self.writer, self.lanes = writer, lanes
        self.f32, self.f64 = shaped("float", lanes), shaped("double", lanes)
        self.i8, self.i16 = shaped("i8", lanes), shaped("i16", lanes)
        self.i32, self.i64 = shaped("i32", lanes), shaped("i64", lanes)
        self.i1 = shaped("i1", lanes)

    def const(self, value: int | str, element: str = "i32") -> str:
        return f"splat ({element} {value})" if self.lanes else str(value)

    def op(self, name: str, a: str, b: str | int, type_: str | None = None) -> str:
        second = self.const(b) if isinstance(b, int) else b
        return self.writer.let(f"{name} {type_ or self.i32} {a}, {second}")

    def cast(self, name: str, value: str, source: str, target: str) -> str:
        return self.writer.let(f"{name} {source} {value} to {target}")

    def select(self, condition: str, a: str, b: str, type_: str) -> str:
        return self.writer.let(f"select {self.i1} {condition}, {type_} {a}, {type_} {b}")

    def intrinsic(self, name: str, element: str, *values: str) -> str:
        type_ = shaped(element, self.lanes)
        arguments = ", ".join(f"{type_} {value}" for value in values)
        return self.writer.let(
            f"call {type_} @llvm.{name}.{mangled(element, self.lanes)}({arguments})"
        )

    def storage(self, format_: Format) -> str:
        return self.i8 if format_.bits == 8 else self.i16


def widen(writer: Writer, name: str, value: str, lanes: int) -> str:
    """A narrow float as f32, exact; NaN stays NaN."""
    s, format_ = _Shape(writer, lanes), FORMATS[name]
    if name == "bf16":
        bits = s.op("shl", s.cast("zext", value, s.i16, s.i32), 16)
        return s.cast("bitcast", bits, s.i32, s.f32)
    if "f16" in writer.native and format_.bias == 15:
        if name == "f8e5m2":
            value = s.op("shl", s.cast("zext", value, s.i8, s.i16), s.const(8, "i16"), s.i16)
        half = shaped("half", lanes)
        return s.cast("fpext", s.cast("bitcast", value, s.i16, half), half, s.f32)
    code = s.cast("zext", value, s.storage(format_), s.i32)
    magnitude = s.op("and", code, (1 << (format_.bits - 1)) - 1)
    sign = s.op("shl", s.op("xor", code, magnitude), 32 - format_.bits)
    small = s.cast("bitcast", s.op("shl", magnitude, 23 - format_.mantissa), s.i32, s.f32)
    scale = f"0x{(1023 + 127 - format_.bias) << 52:016X}"
    number = s.op("fmul", small, s.const(scale, "float"), s.f32)
    bits = s.cast("bitcast", number, s.f32, s.i32)
    special = s.op("icmp uge", magnitude, format_.infinity_code)
    top = s.op("or", bits, 0x7F800000 if format_.has_infinity else 0x7FC00000)
    bits = s.op("or", s.select(special, top, bits, s.i32), sign)
    return s.cast("bitcast", bits, s.i32, s.f32)


def narrow(writer: Writer, name: str, value: str, lanes: int, toward_zero: bool = False) -> str:
    """f32 as a narrow float: to nearest even or toward zero; NaN stays a quiet NaN.

    Beyond the largest value: infinity (NaN for f8e4m3, which has none) to nearest, the largest
    value toward zero.
    """
    s, format_ = _Shape(writer, lanes), FORMATS[name]
    if name == "bf16":
        bits = s.cast("bitcast", value, s.f32, s.i32)
        high = s.op("lshr", bits, 16)
        rounded = high
        if not toward_zero:
            bias = s.op("add", s.op("and", high, 1), 0x7FFF)
            rounded = s.op("lshr", s.op("add", bits, bias), 16)
        is_nan = s.op("fcmp uno", value, value, s.f32)
        code = s.select(is_nan, s.op("or", high, 0x40), rounded, s.i32)
        return s.cast("trunc", code, s.i32, s.i16)
    if name == "f16" and "f16" in writer.native and not toward_zero:
        half = shaped("half", lanes)
        return s.cast("bitcast", s.cast("fptrunc", value, s.f32, half), half, s.i16)
    bits = s.cast("bitcast", value, s.f32, s.i32)
    magnitude = s.op("and", bits, 0x7FFFFFFF)
    sign = s.op("lshr", s.op("xor", bits, magnitude), 32 - format_.bits)
    dropped = 23 - format_.mantissa
    rebias = -((127 - format_.bias) << 23)
    if toward_zero:
        normal = s.op("lshr", s.op("add", magnitude, rebias), dropped)
        hidden = s.op("or", s.op("and", magnitude, 0x7FFFFF), 0x800000)
        exponent = s.op("lshr", magnitude, 23)
        shift = s.op("sub", s.const(127 - format_.bias + 1 + dropped), exponent)
        shift = s.intrinsic("smax", "i32", shift, s.const(0))
        shift = s.intrinsic("smin", "i32", shift, s.const(31))
        tiny = s.op("lshr", hidden, shift)
        ceiling = format_.largest_code
    else:
        odd = s.op("and", s.op("lshr", magnitude, dropped), 1)
        biased = s.op("add", magnitude, rebias + (1 << (dropped - 1)) - 1)
        normal = s.op("lshr", s.op("add", biased, odd), dropped)
        magic_bits = (127 - format_.bias + dropped + 1) << 23
        magic = s.cast("bitcast", s.const(magic_bits), s.i32, s.f32)
        number = s.cast("bitcast", magnitude, s.i32, s.f32)
        total = s.cast("bitcast", s.op("fadd", number, magic, s.f32), s.f32, s.i32)
        tiny = s.op("sub", total, magic_bits)
        ceiling = format_.infinity_code
    is_tiny = s.op("icmp ult", magnitude, (128 - format_.bias) << 23)
    code = s.intrinsic("umin", "i32", s.select(is_tiny, tiny, normal, s.i32), s.const(ceiling))
    if toward_zero and format_.has_infinity:
        infinite = s.op("icmp eq", magnitude, 0x7F800000)
        code = s.select(infinite, s.const(format_.infinity_code), code, s.i32)
    elif toward_zero:
        infinite = s.op("icmp eq", magnitude, 0x7F800000)
        code = s.select(infinite, s.const(format_.nan_code), code, s.i32)
    is_nan = s.op("icmp ugt", magnitude, 0x7F800000)
    code = s.select(is_nan, s.const(format_.nan_code), code, s.i32)
    return s.cast("trunc", s.op("or", code, sign), s.i32, s.storage(format_))


def narrow_odd(writer: Writer, value: str, lanes: int) -> str:
    """f64 to f32, inexact results made odd, so that a second rounding gives the right answer."""
    s = _Shape(writer, lanes)
    nearest = s.cast("fptrunc", value, s.f64, s.f32)
    back = s.cast("fpext", nearest, s.f32, s.f64)
    inexact = s.op("fcmp one", back, value, s.f64)
    above = s.op(
        "fcmp ogt",
        s.intrinsic("fabs", "double", back),
        s.intrinsic("fabs", "double", value),
        s.f64,
    )
    bits = s.cast("bitcast", nearest, s.f32, s.i32)
    toward_zero = s.op("sub", bits, s.cast("zext", above, s.i1, s.i32))
    odd = s.op("or", toward_zero, 1)
    return s.cast("bitcast", s.select(inexact, odd, bits, s.i32), s.i32, s.f32)


def narrow_to_zero(writer: Writer, value: str, lanes: int) -> str:
    """f64 to f32 toward zero."""
    s = _Shape(writer, lanes)
    nearest = s.cast("fptrunc", value, s.f64, s.f32)
    back = s.intrinsic("fabs", "double", s.cast("fpext", nearest, s.f32, s.f64))
    above = s.op("fcmp ogt", back, s.intrinsic("fabs", "double", value), s.f64)
    bits = s.cast("bitcast", nearest, s.f32, s.i32)
    lower = s.op("sub", bits, s.cast("zext", above, s.i1, s.i32))
    return s.cast("bitcast", lower, s.i32, s.f32)


def fma_without_hardware(writer: Writer, a: str, b: str, c: str, lanes: int) -> str:
    """f32 a * b + c rounded once, through f64: the product is exact, the sum made odd."""
    s = _Shape(writer, lanes)
    a, b, c = (s.cast("fpext", value, s.f32, s.f64) for value in (a, b, c))
    product = s.op("fmul", a, b, s.f64)
    total = s.op("fadd", product, c, s.f64)
    part = s.op("fsub", total, product, s.f64)
    rest = s.op("fsub", product, s.op("fsub", total, part, s.f64), s.f64)
    error = s.op("fadd", rest, s.op("fsub", c, part, s.f64), s.f64)
    bits = s.cast("bitcast", total, s.f64, s.i64)
    zero, one = s.const("0.0", "double"), s.const(1, "i64")
    inexact = s.op("fcmp one", error, zero, s.f64)
    is_even = s.op("icmp eq", s.op("and", bits, one, s.i64), s.const(0, "i64"), s.i64)
    error_bits = s.cast("bitcast", error, s.f64, s.i64)
    opposite = s.op("icmp slt", s.op("xor", bits, error_bits, s.i64), s.const(0, "i64"), s.i64)
    step = s.select(opposite, s.const(-1, "i64"), one, s.i64)
    fix = s.op("and", inexact, is_even, s.i1)
    odd = s.select(fix, s.op("add", bits, step, s.i64), bits, s.i64)
    return s.cast("fptrunc", s.cast("bitcast", odd, s.i64, s.f64), s.f64, s.f32)


def number_minimum(writer: Writer, a: str, b: str, element: str, lanes: int) -> str:
    """Smaller one; a NaN loses against a number."""
    return _number(writer, "olt", "minnum", a, b, element, lanes)


def number_maximum(writer: Writer, a: str, b: str, element: str, lanes: int) -> str:
    """Larger one; a NaN loses against a number."""
    return _number(writer, "ogt", "maxnum", a, b, element, lanes)


def _number(
    writer: Writer, predicate: str, intrinsic: str, a: str, b: str, element: str, lanes: int
) -> str:
    s = _Shape(writer, lanes)
    if "minimum" in writer.native:
        return s.intrinsic(intrinsic, element, a, b)
    # The intrinsic is the same three instructions on x86, but of f16 becomes a library call.
    type_ = shaped(element, lanes)
    better = s.select(s.op(f"fcmp {predicate}", a, b, type_), a, b, type_)
    return s.select(s.op("fcmp uno", b, b, type_), a, better, type_)


def minimum(writer: Writer, a: str, b: str, element: str, lanes: int) -> str:
    """Smaller one; NaN if either is NaN; -0 below +0."""
    s = _Shape(writer, lanes)
    if "minimum" in writer.native:
        return s.intrinsic("minimum", element, a, b)
    one, other, type_, integer = _both_ways(s, "olt", a, b, element)
    # Equal values differ at most in the sign of zero, and or-ing keeps NaN a NaN.
    return s.cast("bitcast", s.op("or", one, other, integer), integer, type_)


def maximum(writer: Writer, a: str, b: str, element: str, lanes: int) -> str:
    """Larger one; NaN if either is NaN; +0 above -0."""
    s = _Shape(writer, lanes)
    if "minimum" in writer.native:
        return s.intrinsic("maximum", element, a, b)
    one, other, type_, integer = _both_ways(s, "ogt", a, b, element)
    # They differ in the sign of zero or where there is a NaN: or-ing keeps the NaN, and
    # subtracting the difference turns -0 - (-0) into +0.
    difference = s.op("xor", one, other, integer)
    joined = s.cast("bitcast", s.op("or", one, difference, integer), integer, type_)
    return s.op("fsub", joined, s.cast("bitcast", difference, integer, type_), type_)


def _both_ways(
    s: _Shape, predicate: str, a: str, b: str, element: str
) -> tuple[str, str, str, str]:
    """a < b ? a : b and b < a ? b : a, each one instruction on x86, as integers."""
    type_ = shaped(element, s.lanes)
    integer = shaped("i64" if element == "double" else "i32", s.lanes)
    one = s.select(s.op(f"fcmp {predicate}", a, b, type_), a, b, type_)
    other = s.select(s.op(f"fcmp {predicate}", b, a, type_), b, a, type_)
    return (
        s.cast("bitcast", one, type_, integer),
        s.cast("bitcast", other, type_, integer),
        type_,
        integer,
    )
