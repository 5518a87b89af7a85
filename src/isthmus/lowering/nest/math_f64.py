"""Elementary functions of f64, without branches. Bounds are looser than in f32: see math.py."""

from __future__ import annotations

import math

from isthmus.ir.core import Value
from isthmus.lowering.nest.math_code import Code
from isthmus.lowering.nest.math_trigonometry import reduce_f64

__all__ = ["FUNCTIONS_F64", "EXP_COARSE", "log2_coarse", "pow_cases"]

LOG2_E = math.log2(math.e)
LN2 = math.log(2.0)
#: ln 2 in two parts; the first has 21 zero bits at its end, so that whole multiples are exact.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10

#: (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2, to 2**-59 and to 2**-35.
EXP = (
    2.0915442297780116e-09, 2.5106274733573296e-08, 2.75572718102198e-07,
    2.755725283351691e-06, 2.4801587327007187e-05, 0.00019841269876864356,
    0.0013888888888883327, 0.008333333333325544, 0.04166666666666667, 0.1666666666666667, 0.5,
)  # fmt: skip
EXP_COARSE = (
    2.4860745193047496e-05, 0.00019900441465296745, 0.001388885263392293,
    0.008333297067428719, 0.041666666722201, 0.16666666722219042, 0.5,
)  # fmt: skip
#: (log(1 + f) - 2 s) / s**3 in s**2 with s = f / (2 + f), to 2**-58 and to 2**-37.
LOG = (
    0.13086626147840102, 0.13268773138656886, 0.15386239702814658, 0.18181795640132906,
    0.22222222391713917, 0.28571428570803614, 0.4000000000000088, 0.6666666666666666,
)  # fmt: skip
LOG_COARSE = (
    0.19362653714202008, 0.22191400830308503, 0.2857175453591449, 0.3999999879733759,
    0.6666666666737509,
)  # fmt: skip
#: (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2 for |r| <= pi / 4.
SIN = (
    1.5917848524808262e-10, -2.5051127944014188e-08, 2.755731608381636e-06,
    -0.00019841269836722418, 0.008333333333330925, -0.16666666666666666,
)  # fmt: skip
COS = (
    -1.1382456778061306e-11, 2.0876143827993133e-09, -2.7557317260008837e-07,
    2.480158729874307e-05, -0.0013888888888887382, 0.041666666666666664,
)  # fmt: skip
#: (atan(t) - t) / t**3 in t**2 for |t| <= tan(pi / 8).
ATAN = (
    0.016285756855221028, -0.034570561981427744, 0.04551593220626549, -0.05230454270650244,
    0.05878928997834775, -0.06666424885738255, 0.07692296375032143, -0.09090908753500877,
    0.11111111105155447, -0.14285714285659828, 0.19999999999999804, -0.3333333333333333,
)  # fmt: skip
#: (tanh(x) - x) / x**3 in x**2 for |x| <= 1/2.
TANH = (
    -2.295330465333733e-05, 8.819580305745065e-05, -0.00023635364294136244,
    0.0005894667419101905, -0.0014557608138655873, 0.0035921217969498704,
    -0.008863235198659135, 0.0218694885258676, -0.053968253968089755, 0.1333333333333323,
    -0.3333333333333333,
)  # fmt: skip
#: erf(x) / x - 1 in x**2 for |x| <= 1.
ERF_NEAR = (
    5.957176147748911e-11, -1.1372848856791674e-09, 1.4659775274047436e-08,
    -1.6350312701054695e-07, 1.6461000484121368e-06, -1.4925595266831182e-05,
    0.0001205533111164271, -0.000854832698083379, 0.0052239776248180145,
    -0.026866170645076792, 0.11283791670954879, -0.3761263890318375, 0.1283791670955126,
)  # fmt: skip
#: log(erfc(x)) + x**2 for 1 <= x <= 2.4, then for 2.4 <= x <= 6.
ERF_MIDDLE = (
    0.0, 0.0,
    -4.317816874479461e-10, 1.1759320816942768e-08, -1.4625308785152564e-07,
    1.0797841576049472e-06, -5.038719813242865e-06, 1.3398105328136278e-05,
    -1.5657586871085749e-06, -0.00016341381800641085, 0.0008031701186044215,
    -0.0019433758144269658, 0.0004265987924519528, 0.018984838802815686,
    -0.10270337343198772, 0.36335719421362606, -1.1283744345198816, -4.52761880297844e-07,
)  # fmt: skip
ERF_FAR = (
    1.2729259665852697e-14, -9.815599927880567e-13, 3.559851813466678e-11,
    -8.065900177052929e-10, 1.278719889382095e-08, -1.5045064638600677e-07,
    1.3584514981843438e-06, -9.581891533874845e-06, 5.3029346632871986e-05,
    -0.00022714275752944594, 0.0007130495439094195, -0.0013062122779492773,
    -0.0012348188348996574, 0.021741351330821675, -0.10582490131041429,
    0.36572056373198747, -1.1294623237805121, 0.0002310373125560645,
)  # fmt: skip


def _reduced_exp(c: Code, x: Value) -> tuple[Value, Value]:
    """(exp(r) - 1, n) with x = n * ln 2 + r."""
    n, whole = c.nearest(x, LOG2_E)
    r = c.fma(n, -LN2_LOW, c.fma(n, -LN2_HIGH, x))
    return c.fma(c.mul(r, r), c.polynomial(r, EXP), r), whole


def exp(c: Code, x: Value) -> Value:
    p, n = _reduced_exp(c, c.at_least(c.at_most(x, 710.0), -746.0))
    return c.scale(c.add(p, 1.0), n)


def exp2(c: Code, x: Value) -> Value:
    x = c.at_least(c.at_most(x, 1025.0), -1076.0)
    n, whole = c.nearest(x)
    r = c.mul(c.sub(x, n), LN2)
    p = c.fma(c.mul(r, r), c.polynomial(r, EXP), r)
    return c.scale(c.add(p, 1.0), whole)


def expm1(c: Code, x: Value) -> Value:
    p, n = _reduced_exp(c, c.at_least(c.at_most(x, 710.0), -40.0))
    half = c.power_of_two(c.isub(n, 1))
    total = c.fma(p, half, c.sub(half, 0.5))
    return c.select(c.compare("olt", c.abs(x), 2.0**-54), x, c.add(total, total))


def _split(c: Code, x: Value) -> tuple[Value, Value]:
    """(f, n) with x = (1 + f) * 2**n and sqrt(1/2) <= 1 + f < sqrt(2); x > 0."""
    one, root = 0x3FF0000000000000, 0x3FE6A09E667F3BCD
    subnormal = c.compare("olt", x, 2.0**-1022)
    x = c.select(subnormal, c.mul(x, 2.0**54), x)
    bits = c.iadd(c.bits(x), one - root)
    exponent = c.isub(c.shift_right(bits, 52), c.iselect(subnormal, 1023 + 54, 1023))
    mantissa = c.from_bits(c.iadd(c.iand(bits, (1 << 52) - 1), root))
    # A small integer becomes a float by the bits of 1.5 * 2**52, in two cheap steps.
    magic = 0x4338000000000000
    n = c.sub(c.from_bits(c.iadd(exponent, magic)), 1.5 * 2.0**52)
    return c.sub(mantissa, 1.0), n


def _log_domain(c: Code, x: Value, result: Value) -> Value:
    result = c.select(c.compare("olt", x, math.inf), result, x)
    result = c.select(c.compare("olt", x, 0.0), math.nan, result)
    return c.select(c.compare("oeq", x, 0.0), -math.inf, result)


def _log_parts(c: Code, f: Value) -> Value:
    """log(1 + f) - f, accurate next to f."""
    s = c.div(f, c.add(f, 2.0))
    z = c.mul(s, s)
    half = c.mul(c.mul(f, f), 0.5)
    return c.sub(c.mul(s, c.fma(z, c.polynomial(z, LOG), half)), half)


def log(c: Code, x: Value) -> Value:
    f, n = _split(c, x)
    rest = c.fma(n, LN2_LOW, _log_parts(c, f))
    return _log_domain(c, x, c.fma(n, LN2_HIGH, c.add(f, rest)))


def log2(c: Code, x: Value) -> Value:
    f, n = _split(c, x)
    rest = c.mul(_log_parts(c, f), LOG2_E)
    low = c.fma(f, 2.0355273740931033e-17, rest)
    return _log_domain(c, x, c.add(n, c.fma(f, LOG2_E, low)))


def log2_coarse(c: Code, x: Value) -> Value:
    """log2 to about 2**-37 of itself; what it gives outside (0, inf) is of no use."""
    f, n = _split(c, x)
    s = c.div(f, c.add(f, 2.0))
    z = c.mul(s, s)
    logarithm = c.fma(c.mul(z, s), c.polynomial(z, LOG_COARSE), c.add(s, s))
    return c.fma(logarithm, LOG2_E, n)


def log1p(c: Code, x: Value) -> Value:
    u = c.add(x, 1.0)
    lost = c.select(c.compare("ogt", x, 1.0), c.sub(1.0, c.sub(u, x)), c.sub(x, c.sub(u, 1.0)))
    f, n = _split(c, u)
    rest = c.add(_log_parts(c, f), c.fma(n, LN2_LOW, c.div(lost, u)))
    result = _log_domain(c, u, c.fma(n, LN2_HIGH, c.add(f, rest)))
    return c.select(c.compare("olt", c.abs(x), 2.0**-54), x, result)


def tanh(c: Code, x: Value) -> Value:
    t = c.at_most(c.abs(x), 20.0)
    square = c.mul(t, t)
    near = c.fma(c.mul(square, t), c.polynomial(square, TANH), t)
    far = c.sub(1.0, c.div(2.0, c.add(exp(c, c.add(t, t)), 1.0)))
    return c.with_sign(c.select(c.compare("olt", t, 0.5), near, far), x)


def erf(c: Code, x: Value) -> Value:
    square = c.mul(x, x)
    near = c.fma(c.polynomial(square, ERF_NEAR), x, x)
    t = c.at_most(c.abs(x), 6.0)
    is_middle = c.compare("olt", t, 2.4)
    coefficients = [c.select(is_middle, a, b) for a, b in zip(ERF_MIDDLE, ERF_FAR, strict=True)]
    exponent = c.fma(c.neg(t), t, c.polynomial(t, coefficients))
    far = c.with_sign(c.sub(1.0, exp(c, exponent)), x)
    return c.select(c.compare("olt", t, 1.0), near, far)


def sigmoid(c: Code, x: Value) -> Value:
    e = exp(c, c.neg(c.abs(x)))
    return c.div(c.select(c.compare("oge", x, 0.0), 1.0, e), c.add(e, 1.0))


def rsqrt(c: Code, x: Value) -> Value:
    return c.div(1.0, c.sqrt(x))


def _sin_cos(c: Code, r: Value, quadrant: Value) -> tuple[Value, Value]:
    """(sin, cos) of r + quadrant * pi / 2."""
    square = c.mul(r, r)
    sine = c.fma(c.mul(square, r), c.polynomial(square, SIN), r)
    cosine = c.fma(c.mul(square, square), c.polynomial(square, COS), c.fma(square, -0.5, 1.0))
    odd = c.icompare("eq", c.iand(quadrant, 1), 1)
    first, second = c.select(odd, cosine, sine), c.select(odd, sine, cosine)
    sign_sine = c.shift_left(c.iand(quadrant, 2), 62)
    sign_cosine = c.shift_left(c.iand(c.iadd(quadrant, 1), 2), 62)
    return (
        c.from_bits(c.ixor(c.bits(first), sign_sine)),
        c.from_bits(c.ixor(c.bits(second), sign_cosine)),
    )


def sin(c: Code, x: Value) -> Value:
    result = _sin_cos(c, *reduce_f64(c, x))[0]
    return c.select(c.compare("olt", c.abs(x), 2.0**-27), x, result)


def cos(c: Code, x: Value) -> Value:
    return _sin_cos(c, *reduce_f64(c, x))[1]


def tan(c: Code, x: Value) -> Value:
    sine, cosine = _sin_cos(c, *reduce_f64(c, x))
    return c.select(c.compare("olt", c.abs(x), 2.0**-27), x, c.div(sine, cosine))


def _atan_positive(c: Code, y: Value, x: Value) -> Value:
    """atan(y / x) for y, x >= 0, not both 0 or infinite."""
    swapped = c.compare("ogt", y, x)
    low, high = c.select(swapped, x, y), c.select(swapped, y, x)
    ratio = c.div(low, high)
    turned = c.compare("ogt", ratio, math.sqrt(2.0) - 1.0)
    t = c.select(turned, c.div(c.sub(ratio, 1.0), c.add(ratio, 1.0)), ratio)
    square = c.mul(t, t)
    angle = c.fma(c.mul(square, t), c.polynomial(square, ATAN), t)
    angle = c.select(turned, c.add(c.add(angle, 3.061616997868383e-17), math.pi / 4), angle)
    return c.select(swapped, c.add(c.sub(6.123233995736766e-17, angle), math.pi / 2), angle)


def atan(c: Code, x: Value) -> Value:
    magnitude = c.abs(x)
    return c.with_sign(_atan_positive(c, magnitude, c.number(1.0)), x)


def atan2(c: Code, y: Value, x: Value) -> Value:
    up, right = c.abs(y), c.abs(x)
    # Two infinities stand on the diagonal, two zeros on the axis.
    infinite = c.both(c.compare("oeq", up, math.inf), c.compare("oeq", right, math.inf))
    zero = c.both(c.compare("oeq", up, 0.0), c.compare("oeq", right, 0.0))
    up = c.select(infinite, 1.0, up)
    right = c.select(c.either(infinite, zero), 1.0, right)
    angle = _atan_positive(c, up, right)
    left = c.icompare("slt", c.bits(x), 0)
    angle = c.select(left, c.add(c.sub(1.2246467991473532e-16, angle), math.pi), angle)
    return c.with_sign(angle, y)


def asin(c: Code, x: Value) -> Value:
    t = c.abs(x)
    rest = c.sqrt(c.mul(c.sub(1.0, t), c.add(t, 1.0)))
    return c.with_sign(_atan_positive(c, t, rest), x)


def acos(c: Code, x: Value) -> Value:
    t = c.abs(x)
    rest = c.sqrt(c.mul(c.sub(1.0, t), c.add(t, 1.0)))
    angle = _atan_positive(c, rest, t)
    left = c.compare("olt", x, 0.0)
    return c.select(left, c.add(c.sub(1.2246467991473532e-16, angle), math.pi), angle)


def sinh(c: Code, x: Value) -> Value:
    t = c.abs(x)
    e = expm1(c, c.at_most(t, 709.0))
    near = c.mul(c.add(e, c.div(e, c.add(e, 1.0))), 0.5)
    half = exp(c, c.mul(c.at_most(t, 1500.0), 0.5))
    far = c.mul(c.mul(half, 0.5), half)
    return c.with_sign(c.select(c.compare("olt", t, 700.0), near, far), x)


def cosh(c: Code, x: Value) -> Value:
    t = c.abs(x)
    e = exp(c, c.at_most(t, 709.0))
    near = c.add(c.mul(e, 0.5), c.div(0.5, e))
    half = exp(c, c.mul(c.at_most(t, 1500.0), 0.5))
    far = c.mul(c.mul(half, 0.5), half)
    return c.select(c.compare("olt", t, 700.0), near, far)


def pow_cases(c: Code, x: Value, y: Value, result: Value) -> Value:
    """C pow from `result` = |x| ** y, which need only be right for finite x, y and x != 0."""
    magnitude = c.abs(x)
    whole = c._op("math.trunc", y)
    is_whole = c.compare("oeq", whole, y)
    half = c.mul(y, 0.5)
    is_odd = c.both(is_whole, c.compare("one", c._op("math.trunc", half), half))
    negative = c.icompare("slt", c.bits(x), 0)
    y_positive = c.compare("ogt", y, 0.0)
    # 0 ** y and inf ** y.
    edge = c.either(c.compare("oeq", magnitude, 0.0), c.compare("oeq", magnitude, math.inf))
    grows = c.builder.emit("arith.xori", c.compare("oeq", magnitude, 0.0), y_positive)
    result = c.select(edge, c.select(grows, math.inf, 0.0), result)
    # A negative base.
    sign = c.iselect(c.both(negative, is_odd), -(1 << (c.layout.bits - 1)), 0)
    signed = c.from_bits(c.ixor(c.bits(result), sign))
    y_infinite = c.compare("oeq", c.abs(y), math.inf)
    not_whole = c.both(c.compare("olt", x, 0.0), c.compare("one", whole, y))
    finite_base = c.compare("olt", magnitude, math.inf)
    signed = c.select(c.both(not_whole, finite_base), math.nan, signed)
    # x ** +-inf.
    big = c.compare("ogt", magnitude, 1.0)
    toward = c.select(c.builder.emit("arith.xori", big, y_positive), 0.0, math.inf)
    signed = c.select(y_infinite, toward, signed)
    signed = c.select(c.compare("uno", x, y), math.nan, signed)
    is_one = c.either(c.compare("oeq", x, 1.0), c.compare("oeq", y, 0.0))
    is_one = c.either(is_one, c.both(c.compare("oeq", x, -1.0), y_infinite))
    return c.select(is_one, 1.0, signed)


def pow(c: Code, x: Value, y: Value) -> Value:  # noqa: A001
    """C pow with the logarithm in two parts of f64."""
    f, n = _split(c, c.abs(x))
    s = c.div(f, c.add(f, 2.0))
    # f = s * (2 + f) up to `lost`, both roundings counted.
    bottom = c.add(f, 2.0)
    bottom_low = c.sub(f, c.sub(bottom, 2.0))
    lost = c.fma(c.neg(s), bottom_low, c.fma_once(c.neg(s), bottom, f))
    s_low = c.div(lost, bottom)
    z = c.mul(s, s)
    tail = c.fma(c.mul(z, s), c.polynomial(z, LOG), c.add(s_low, s_low))
    tail = c.fma(n, LN2_LOW, tail)
    high = c.mul(n, LN2_HIGH)
    twice = c.add(s, s)
    total = c.add(high, twice)
    part = c.sub(total, high)
    tail = c.add(tail, c.add(c.sub(high, c.sub(total, part)), c.sub(twice, part)))
    log_high = c.add(total, tail)
    log_low = c.add(c.sub(total, log_high), tail)
    y_limited = c.at_least(c.at_most(y, 1e300), -1e300)
    product = c.mul(log_high, y_limited)
    rest = c.fma(log_low, y_limited, c.fma_once(log_high, y_limited, c.neg(product)))
    limited = c.at_least(c.at_most(product, 720.0), -760.0)
    rest = c.select(c.compare("oeq", limited, product), rest, 0.0)
    k, whole = c.nearest(limited, LOG2_E)
    r = c.add(c.fma(k, -LN2_LOW, rest), c.fma(k, -LN2_HIGH, limited))
    p = c.fma(c.mul(r, r), c.polynomial(r, EXP), r)
    return pow_cases(c, x, y, c.scale(c.add(p, 1.0), whole))


FUNCTIONS_F64 = {
    "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log2": log2, "log1p": log1p,
    "tanh": tanh, "erf": erf, "sigmoid": sigmoid, "rsqrt": rsqrt, "pow": pow, "sin": sin,
    "cos": cos, "tan": tan, "atan": atan, "atan2": atan2, "asin": asin, "acos": acos,
    "sinh": sinh, "cosh": cosh,
}  # fmt: skip
