"""Elementary functions of f32, without branches except for huge angles.

Polynomials are near-minimax fits on the reduced range, highest power first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from isthmus.ir.core import Value
from isthmus.lowering.nest import math_f64
from isthmus.lowering.nest.math_code import Code, narrow, widen
from isthmus.lowering.nest.math_f64 import EXP_COARSE, log2_coarse, pow_cases
from isthmus.lowering.nest.math_trigonometry import reduce_f32

__all__ = ["FUNCTIONS_F32"]

LOG2_E = math.log2(math.e)
LN2 = math.log(2.0)
#: ln 2 in two parts; the first has 9 zero bits at its end, so that whole multiples are exact.
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6

#: (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2.
EXP = (0.0013926926767453551, 0.008363774046301842, 0.04166654869914055, 0.16666573286056519, 0.5)
#: (2**r - 1) / r for |r| <= 1/2.
EXP2 = (
    0.00015453163359779865, 0.0013390863314270973, 0.009618083015084267,
    0.055503569543361664, 0.24022650718688965, 0.6931471824645996,
)  # fmt: skip
#: (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2).
LOG = (
    0.06971611827611923, -0.11479733884334564, 0.11685419827699661, -0.12425687164068222,
    0.14249058067798615, -0.1666780263185501, 0.20000715553760529, -0.2499999701976776,
    0.3333333134651184,
)  # fmt: skip
#: (log2(1 + f) - f / ln 2) / f**2 on the same range.
LOG2 = (
    0.09765637665987015, -0.1667364239692688, 0.17041310667991638, -0.17919448018074036,
    0.20532894134521484, -0.24046172201633453, 0.2885598838329315, -0.3606739044189453,
    0.4808982014656067, -0.7213475108146667,
)  # fmt: skip
LOG2_E_HIGH, LOG2_E_LOW = 1.44269502162933349609375, 1.925963033500e-8
#: (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2 for |r| <= pi / 4.
SIN = (-0.00019587387214414775, 0.008332746103405952, -0.166666641831398)
COS = (2.4547436623834074e-05, -0.0013888300163671374, 0.0416666641831398)
#: (tanh(x) - x) / x**3 in x**2 for |x| <= 0.625.
TANH = (
    -0.006096714176237583, 0.020997179672122, -0.05385090783238411,
    0.1333276927471161, -0.333333283662796,
)  # fmt: skip
#: erf(x) / x - 1 in x**2 for |x| <= 0.921875.
ERF_NEAR = (
    -0.0006004081224091351, 0.004996020346879959, -0.02676875703036785,
    0.11281882226467133, -0.3761250078678131, 0.12837915122509003,
)  # fmt: skip
#: (log(erfc(x)) + x) / x for 0.921875 <= x <= 4.
ERF_FAR = (
    0.00021353269403334707, -0.003211316419765353, 0.022878607735037804,
    -0.10524465888738632, -0.6357309222221375, -0.1285107582807541,
)  # fmt: skip


def _reduced_exp(c: Code, x: Value) -> tuple[Value, Value]:
    """(exp(r) - 1, n) with x = n * ln 2 + r; x must be within about +-104."""
    n, whole = c.nearest(x, LOG2_E)
    r = c.fma(n, -LN2_HIGH, x)
    r = c.fma(n, -LN2_LOW, r)
    return c.fma(c.mul(r, r), c.polynomial(r, EXP), r), whole


def exp(c: Code, x: Value) -> Value:
    x = c.at_least(c.at_most(x, 89.0), -104.0)
    p, n = _reduced_exp(c, x)
    return c.scale(c.add(p, 1.0), n)


def _exp_normal(c: Code, x: Value) -> Value:
    """exp for |x| <= 87, where the result is a normal number."""
    p, n = _reduced_exp(c, x)
    return c.mul(c.add(p, 1.0), c.power_of_two(n))


def exp2(c: Code, x: Value) -> Value:
    x = c.at_least(c.at_most(x, 129.0), -151.0)
    n, whole = c.nearest(x)
    r = c.sub(x, n)
    return c.scale(c.fma(r, c.polynomial(r, EXP2), 1.0), whole)


def expm1(c: Code, x: Value) -> Value:
    limited = c.at_least(c.at_most(x, 89.0), -20.0)
    p, n = _reduced_exp(c, limited)
    # Half of 2**n keeps n = 128 in range.
    half = c.power_of_two(c.isub(n, 1))
    total = c.fma(p, half, c.sub(half, 0.5))
    result = c.add(total, total)
    tiny = c.compare("olt", c.abs(x), 2.0**-25)
    return c.select(tiny, x, result)


def _split(c: Code, x: Value) -> tuple[Value, Value]:
    """(f, n) with x = (1 + f) * 2**n and sqrt(1/2) <= 1 + f < sqrt(2); x > 0."""
    subnormal = c.compare("olt", x, 2.0**-126)
    x = c.select(subnormal, c.mul(x, 2.0**23), x)
    bits = c.iadd(c.bits(x), 0x3F800000 - 0x3F3504F3)
    n = c.isub(c.shift_right(bits, 23), c.iselect(subnormal, 127 + 23, 127))
    mantissa = c.from_bits(c.iadd(c.iand(bits, 0x7FFFFF), 0x3F3504F3))
    return c.sub(mantissa, 1.0), c.to_float(n)


def _log_domain(c: Code, x: Value, result: Value) -> Value:
    """The values of a logarithm at 0, infinity, NaN and below 0."""
    result = c.select(c.compare("olt", x, math.inf), result, x)
    result = c.select(c.compare("olt", x, 0.0), math.nan, result)
    return c.select(c.compare("oeq", x, 0.0), -math.inf, result)


def log(c: Code, x: Value) -> Value:
    f, n = _split(c, x)
    square = c.mul(f, f)
    tail = c.fma(c.mul(square, f), c.polynomial(f, LOG), c.mul(n, LN2_LOW))
    tail = c.fma(square, -0.5, tail)
    return _log_domain(c, x, c.fma(n, LN2_HIGH, c.add(f, tail)))


def log2(c: Code, x: Value) -> Value:
    f, n = _split(c, x)
    tail = c.fma(c.mul(f, f), c.polynomial(f, LOG2), c.mul(f, LOG2_E_LOW))
    return _log_domain(c, x, c.add(n, c.fma(f, LOG2_E_HIGH, tail)))


def log1p(c: Code, x: Value) -> Value:
    u = c.add(x, 1.0)
    # What the addition lost, taken from the larger operand's side.
    lost = c.select(c.compare("ogt", x, 1.0), c.sub(1.0, c.sub(u, x)), c.sub(x, c.sub(u, 1.0)))
    f, n = _split(c, u)
    square = c.mul(f, f)
    tail = c.fma(n, LN2_LOW, c.div(lost, u))
    tail = c.fma(c.mul(square, f), c.polynomial(f, LOG), tail)
    tail = c.fma(square, -0.5, tail)
    result = _log_domain(c, u, c.fma(n, LN2_HIGH, c.add(f, tail)))
    return c.select(c.compare("olt", c.abs(x), 2.0**-25), x, result)


def tanh(c: Code, x: Value) -> Value:
    t = c.at_most(c.abs(x), 10.0)
    square = c.mul(t, t)
    near = c.fma(c.mul(square, t), c.polynomial(square, TANH), t)
    e = _exp_normal(c, c.add(t, t))
    far = c.sub(1.0, c.div(2.0, c.add(e, 1.0)))
    return c.with_sign(c.select(c.compare("olt", t, 0.625), near, far), x)


def erf(c: Code, x: Value) -> Value:
    square = c.mul(x, x)
    near = c.fma(c.polynomial(square, ERF_NEAR), x, x)
    t = c.at_most(c.abs(x), 4.0)
    exponent = c.fma(c.polynomial(t, ERF_FAR), t, c.neg(t))
    far = c.with_sign(c.sub(1.0, _exp_normal(c, exponent)), x)
    return c.select(c.compare("olt", t, 0.921875), near, far)


def sigmoid(c: Code, x: Value) -> Value:
    limited = c.at_least(c.neg(c.abs(x)), -104.0)
    n, whole = c.nearest(limited, LOG2_E)
    r = c.fma(n, -LN2_LOW, c.fma(n, -LN2_HIGH, limited))
    # exp(r) as a rounded sum and what the rounding lost: the division doubles errors of e.
    one_r = c.add(r, 1.0)
    rest = c.fma(c.mul(r, r), c.polynomial(r, EXP), c.sub(r, c.sub(one_r, 1.0)))
    e = c.scale(c.add(one_r, rest), whole)
    top = c.select(c.compare("oge", x, 0.0), 1.0, e)
    bottom = c.add(e, 1.0)
    lost = c.sub(e, c.sub(bottom, 1.0))
    result = c.div(top, bottom)
    return c.sub(result, c.mul(result, lost))


def rsqrt(c: Code, x: Value) -> Value:
    return c.div(1.0, c.sqrt(x))


def sin(c: Code, x: Value) -> Value:
    r, quadrant = reduce_f32(c, x)
    result = c.from_bits(c.ixor(c.bits(_sin_cos(c, r, quadrant)), _flip(c, quadrant)))
    return c.select(c.compare("olt", c.abs(x), 2.0**-12), x, result)


def cos(c: Code, x: Value) -> Value:
    r, quadrant = reduce_f32(c, x)
    quadrant = c.iadd(quadrant, 1)
    return c.from_bits(c.ixor(c.bits(_sin_cos(c, r, quadrant)), _flip(c, quadrant)))


def _flip(c: Code, quadrant: Value) -> Value:
    """The sign bit of quadrants 2 and 3."""
    return c.shift_left(c.iand(quadrant, 2), 30)


def _sin_cos(c: Code, r: Value, quadrant: Value) -> Value:
    """sin(r) in even quadrants, cos(r) in odd ones."""
    square = c.mul(r, r)
    sine = c.fma(c.mul(square, r), c.polynomial(square, SIN), r)
    cosine = c.fma(c.mul(square, square), c.polynomial(square, COS), c.fma(square, -0.5, 1.0))
    is_even = c.icompare("eq", c.iand(quadrant, 1), 0)
    return c.select(is_even, sine, cosine)


def tan(c: Code, x: Value) -> Value:
    r, quadrant = reduce_f32(c, x)
    d = c.double()
    wide = widen(d, r)
    square = d.mul(wide, wide)
    sine = d.fma(d.mul(square, wide), d.polynomial(square, math_f64.SIN), wide)
    cosine = d.fma(d.mul(square, square), d.polynomial(square, math_f64.COS), 1.0)
    cosine = d.fma(square, -0.5, cosine)
    is_even = c.icompare("eq", c.iand(quadrant, 1), 0)
    top, bottom = d.select(is_even, sine, cosine), d.select(is_even, cosine, d.neg(sine))
    result = narrow(c, d.div(top, bottom))
    return c.select(c.compare("olt", c.abs(x), 2.0**-12), x, result)


def _through_f64(name: str) -> Callable[..., Value]:
    """The f64 function, rounded: for functions where speed matters little."""

    def function(c: Code, *values: Value) -> Value:
        d = c.double()
        function_f64 = math_f64.FUNCTIONS_F64[name]
        return narrow(c, function_f64(d, *(widen(d, value) for value in values)))

    return function


asin, acos, atan, atan2, sinh, cosh = map(
    _through_f64, ("asin", "acos", "atan", "atan2", "sinh", "cosh")
)


def pow(c: Code, x: Value, y: Value) -> Value:  # noqa: A001
    """C pow, through f64: the logarithm has 14 bits more than the result can show."""
    d = c.double()
    magnitude, exponent = widen(d, c.abs(x)), widen(d, y)
    total = d.mul(log2_coarse(d, magnitude), exponent)
    total = d.at_least(d.at_most(total, 200.0), -200.0)
    n, whole = d.nearest(total)
    r = d.mul(d.sub(total, n), LN2)
    e = d.fma(d.mul(r, r), d.polynomial(r, EXP_COARSE), d.add(r, 1.0))
    result = narrow(c, d.mul(e, d.power_of_two(whole)))
    return pow_cases(c, x, y, result)


FUNCTIONS_F32 = {
    "pow": pow,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "atan2": atan2,
    "sinh": sinh,
    "cosh": cosh,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log1p": log1p,
    "tanh": tanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "rsqrt": rsqrt,
}
