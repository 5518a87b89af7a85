"""The few moves that vector math is written with: `Code` writes them for one float type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.core.target import TargetDescription
from isthmus.ir.builder import Builder
from isthmus.ir.core import Value
from isthmus.ir.types import F32, F64, I32, I64, Type, element_type, with_element

__all__ = ["Code", "narrow", "widen"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a float is made of bits."""

    bits: int
    mantissa: int
    bias: int

    @property
    def mantissa_mask(self) -> int:
        return (1 << self.mantissa) - 1

    @property
    def magnitude_mask(self) -> int:
        return (1 << (self.bits - 1)) - 1


_LAYOUTS = {"f32": Layout(32, 23, 127), "f64": Layout(64, 52, 1023)}


class Code:
    """Writes operations on scalars or vectors of one float type, f32 or f64.

    Floats may be given as Python numbers. `real` and `whole` are the float type and the integer
    type of the same shape.
    """

    def __init__(self, builder: Builder, type_: Type, target: TargetDescription) -> None:
        self.builder = builder
        self.target = target
        self.real = type_
        element = element_type(type_)
        assert element in (F32, F64), f"math is computed in f32 and f64, not {element}"
        self.layout = _LAYOUTS[str(element)]
        self.whole = with_element(type_, I32 if element is F32 else I64)

    def double(self) -> Code:
        """The same shape in f64."""
        return Code(self.builder, with_element(self.real, F64), self.target)

    # --- floats ---------------------------------------------------------------------------

    def number(self, value: Value | float) -> Value:
        return value if isinstance(value, Value) else self.builder.constant(value, self.real)

    def _op(self, name: str, *values: Value | float) -> Value:
        return self.builder.emit(name, *(self.number(value) for value in values))

    def add(self, a: Value | float, b: Value | float) -> Value:
        return self._op("arith.addf", a, b)

    def sub(self, a: Value | float, b: Value | float) -> Value:
        return self._op("arith.subf", a, b)

    def mul(self, a: Value | float, b: Value | float) -> Value:
        return self._op("arith.mulf", a, b)

    def div(self, a: Value | float, b: Value | float) -> Value:
        return self._op("arith.divf", a, b)

    def neg(self, a: Value) -> Value:
        return self._op("arith.negf", a)

    def abs(self, a: Value) -> Value:
        return self._op("math.absf", a)

    def sqrt(self, a: Value) -> Value:
        return self._op("math.sqrt", a)

    def round(self, a: Value) -> Value:
        return self._op("math.roundeven", a)

    def fma(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        """a * b + c, rounded once where the target can do that fast."""
        if self.target.fma:
            return self._op("arith.fma", a, b, c)
        return self.add(self.mul(a, b), c)

    def fma_once(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        """a * b + c, rounded once on every target: for what a rounding has lost."""
        return self._op("arith.fma", a, b, c)

    def polynomial(self, x: Value, coefficients: Sequence[float | Value]) -> Value:
        """Horner's rule, highest power first."""
        total: Value | float = coefficients[0]
        for coefficient in coefficients[1:]:
            total = self.fma(total, x, coefficient)
        return self.number(total)

    def compare(self, predicate: str, a: Value | float, b: Value | float) -> Value:
        return self.builder.emit("arith.cmpf", self.number(a), self.number(b), predicate=predicate)

    def select(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        return self._select(condition, self.number(a), self.number(b))

    def _select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.builder.emit("arith.select", condition, a, b)

    def at_most(self, x: Value, limit: float) -> Value:
        """min(x, limit); NaN stays."""
        return self.select(self.compare("olt", limit, x), limit, x)

    def at_least(self, x: Value, limit: float) -> Value:
        """max(x, limit); NaN stays."""
        return self.select(self.compare("ogt", limit, x), limit, x)

    def with_sign(self, magnitude: Value, sign: Value) -> Value:
        """`magnitude` (not negative) with the sign of `sign`."""
        return self.from_bits(self.ior(self.bits(magnitude), self.sign_bits(sign)))

    # --- integers of the same width -------------------------------------------------------

    def integer(self, value: Value | int) -> Value:
        return value if isinstance(value, Value) else self.builder.constant(value, self.whole)

    def _iop(self, name: str, a: Value | int, b: Value | int) -> Value:
        return self.builder.emit(name, self.integer(a), self.integer(b))

    def iadd(self, a: Value | int, b: Value | int) -> Value:
        return self._iop("arith.addi", a, b)

    def isub(self, a: Value | int, b: Value | int) -> Value:
        return self._iop("arith.subi", a, b)

    def iand(self, a: Value | int, b: Value | int) -> Value:
        return self._iop("arith.andi", a, b)

    def ior(self, a: Value | int, b: Value | int) -> Value:
        return self._iop("arith.ori", a, b)

    def ixor(self, a: Value | int, b: Value | int) -> Value:
        return self._iop("arith.xori", a, b)

    def shift_left(self, a: Value | int, b: int) -> Value:
        return self._iop("arith.shli", a, b)

    def shift_right(self, a: Value, b: int) -> Value:
        """Keeping the sign."""
        return self._iop("arith.shrsi", a, b)

    def icompare(self, predicate: str, a: Value | int, b: Value | int) -> Value:
        return self.builder.emit(
            "arith.cmpi", self.integer(a), self.integer(b), predicate=predicate
        )

    def iselect(self, condition: Value, a: Value | int, b: Value | int) -> Value:
        return self._select(condition, self.integer(a), self.integer(b))

    def both(self, a: Value, b: Value) -> Value:
        """Logical and of two conditions."""
        return self.builder.emit("arith.andi", a, b)

    def either(self, a: Value, b: Value) -> Value:
        """Logical or of two conditions."""
        return self.builder.emit("arith.ori", a, b)

    # --- between the two ------------------------------------------------------------------

    def bits(self, x: Value) -> Value:
        return self.builder.emit("arith.bitcast", x, type=self.whole)

    def from_bits(self, x: Value) -> Value:
        return self.builder.emit("arith.bitcast", x, type=self.real)

    def sign_bits(self, x: Value) -> Value:
        return self.iand(self.bits(x), -(1 << (self.layout.bits - 1)))

    def to_float(self, x: Value) -> Value:
        return self.builder.emit("arith.sitofp", x, type=self.real)

    def nearest(self, x: Value, factor: float = 1.0) -> tuple[Value, Value]:
        """x * factor rounded to a whole number, as float and as integer; below 2**21.

        Adding 1.5 * 2**mantissa leaves the integer in the low bits.
        """
        magic = 1.5 * 2.0**self.layout.mantissa
        shifted = self.add(x, magic) if factor == 1.0 else self.fma(x, factor, magic)
        layout = self.layout
        bits = ((layout.bias + layout.mantissa) << layout.mantissa) | 1 << (layout.mantissa - 1)
        return self.sub(shifted, magic), self.isub(self.bits(shifted), bits)

    def power_of_two(self, exponent: Value) -> Value:
        """2**exponent for exponents of normal numbers."""
        biased = self.iadd(exponent, self.layout.bias)
        return self.from_bits(self.shift_left(biased, self.layout.mantissa))

    def scale(self, x: Value, exponent: Value) -> Value:
        """x * 2**exponent in two steps: over- and underflow come out right."""
        half = self.shift_right(exponent, 1)
        rest = self.isub(exponent, half)
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(rest))


def widen(double: Code, x: Value) -> Value:
    """f32 x in the f64 code `double`."""
    return double.builder.emit("arith.extf", x, type=double.real)


def narrow(single: Code, x: Value) -> Value:
    """f64 x in the f32 code `single`."""
    return single.builder.emit("arith.truncf", x, type=single.real)
