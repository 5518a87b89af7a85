"""Angles: reduction modulo pi / 2, exact also for huge ones.

Angles below a limit are reduced with pi / 2 in two or three parts. Above it, the bits of
2 / pi that matter are multiplied as integers (Payne and Hanek 1983). The second way is taken
by a vector in which at least one angle is that large: the only branch in our math.
"""

from __future__ import annotations

from isthmus.ir.core import Value
from isthmus.ir.types import I64, shape_of, with_element
from isthmus.lowering.nest.math_code import Code, narrow, widen

__all__ = ["reduce_f32", "reduce_f64"]

TWO_OVER_PI = 0.6366197723675814
PI_HALF_1 = 1.5707963267341256  # 33 bits
PI_HALF_2 = 6.077100506303966e-11  # the next 33 bits
PI_HALF_3 = 2.0222662487959506e-21  # the rest, as f64
PI_HALF_2_REST = 6.077100506506192e-11  # all after the first 33 bits

#: Bits of 2 / pi from 32 places before the point on, 32 at a time.
TWO_OVER_PI_WORDS = (
    0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
    0xDEBBC561,
)  # fmt: skip

#: Where the two ways meet.
LARGE = 2.0**20


def reduce_f32(c: Code, x: Value) -> tuple[Value, Value]:
    """(r, q): x = q * pi / 2 + r with |r| <= pi / 4; q counts modulo 4."""
    d = c.double()
    wide = widen(d, x)
    n, whole = d.nearest(wide, TWO_OVER_PI)
    r = d.fma(n, -PI_HALF_2_REST, d.fma(n, -PI_HALF_1, wide))
    near = narrow(c, r)
    quadrant = c.builder.emit("arith.trunci", whole, type=c.whole)
    large = c.compare("oge", c.abs(x), LARGE)
    return _far_if_any(c, x, large, near, quadrant)


def _far_if_any(
    c: Code, x: Value, large: Value, near: Value, quadrant: Value
) -> tuple[Value, Value]:
    b = c.builder
    is_any = b.emit("vector.any", large) if shape_of(large.type) else large
    branch = b.if_else(is_any, [near.type, quadrant.type])
    with b.at(branch.regions[0]):
        far, far_quadrant = _payne_hanek_f32(c, x)
        b.create(
            "scf.yield",
            c.select(large, far, near),
            c.iselect(large, far_quadrant, quadrant),
        )
    with b.at(branch.regions[1]):
        b.create("scf.yield", near, quadrant)
    return branch.results[0], branch.results[1]


class _Words:
    """Unsigned 64-bit arithmetic on the shape of `c`."""

    def __init__(self, c: Code) -> None:
        self.b = c.builder
        self.type = with_element(c.real, I64)

    def const(self, value: int) -> Value:
        return self.b.constant(value, self.type)

    def op(self, name: str, a: Value, b: Value | int) -> Value:
        return self.b.emit(f"arith.{name}", a, self.const(b) if isinstance(b, int) else b)


def _payne_hanek_f32(c: Code, x: Value) -> tuple[Value, Value]:
    """The same by integers, for finite |x| >= LARGE; NaN for infinity and NaN."""
    w = _Words(c)
    b = c.builder
    bits = b.emit("arith.extui", c.bits(x), type=w.type)
    mantissa = w.op("ori", w.op("andi", bits, 0x7FFFFF), 0x800000)
    exponent = w.op("andi", w.op("shrui", bits, 23), 0xFF)
    # x = mantissa * 2**(exponent - 150); the product modulo 4 needs the bits of 2 / pi from
    # number exponent - 152 on.
    start = w.op("subi", exponent, 152 - 32)
    word, shift = w.op("shrui", start, 5), w.op("andi", start, 31)
    chosen = [w.const(TWO_OVER_PI_WORDS[position]) for position in range(4)]
    for step in range(1, 5):
        is_step = b.emit("arith.cmpi", word, w.const(step), predicate="eq")
        for position in range(4):
            value = w.const(TWO_OVER_PI_WORDS[step + position])
            chosen[position] = b.emit("arith.select", is_step, value, chosen[position])
    aligned = []
    for position in range(3):
        pair = w.op("ori", w.op("shli", chosen[position], 32), chosen[position + 1])
        aligned.append(w.op("shrui", w.op("shli", pair, shift), 32))
    product = w.op("shli", w.op("muli", mantissa, aligned[0]), 32)
    product = w.op("addi", product, w.op("muli", mantissa, aligned[1]))
    product = w.op("addi", product, w.op("shrui", w.op("muli", mantissa, aligned[2]), 32))
    # Two bits of quadrant, 62 of fraction.
    quadrant = w.op("shrui", w.op("addi", product, 1 << 61), 62)
    fraction = w.op("subi", product, w.op("shli", quadrant, 62))
    d = c.double()
    r = d.mul(b.emit("arith.sitofp", fraction, type=d.real), 1.5707963267948966 * 2.0**-62)
    quadrant = b.emit("arith.trunci", quadrant, type=c.whole)
    negative = c.icompare("slt", c.bits(x), 0)
    angle = narrow(c, r)
    angle = c.select(negative, c.neg(angle), angle)
    finite = c.compare("olt", c.abs(x), float("inf"))
    angle = c.select(finite, angle, float("nan"))
    return angle, c.iselect(negative, c.isub(0, quadrant), quadrant)


def reduce_f64(c: Code, x: Value) -> tuple[Value, Value]:
    """(r, q) as above for |x| below 2**20 * pi / 2; larger angles lose accuracy with their size."""
    n = c.round(c.mul(x, TWO_OVER_PI))
    r = c.fma(n, -PI_HALF_1, x)
    r = c.fma(n, -PI_HALF_2, r)
    r = c.fma(n, -PI_HALF_3, r)
    quarter = c.mul(n, 0.25)
    quadrant = c.mul(c.sub(quarter, c._op("math.floor", quarter)), 4.0)
    return r, c.builder.emit("arith.fptosi", quadrant, type=c.whole)
