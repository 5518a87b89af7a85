"""The element-wise operators in the kernel language: blocks in, one block out.

f16 and bf16 blocks arrive widened to f32 and the result is narrowed by the code around these
helpers (`ops/fused.py`). Attributes are constexpr keywords.
"""

from __future__ import annotations

import isthmus.language as tl
from isthmus.jit.decorator import jit

INVERSE_SQRT2 = tl.constexpr(0.7071067811865476)
INVERSE_SQRT_2PI = tl.constexpr(0.3989422804014327)
TANH_SCALE_2 = tl.constexpr(1.5957691216057308)  # 2 sqrt(2 / pi)
TANH_CUBIC = tl.constexpr(0.044715)


@jit
def neg(x):
    return -x


@jit
def abs(x):  # noqa: A001
    return tl.abs(x)


@jit
def exp(x):
    return tl.exp(x)


@jit
def log(x):
    return tl.log(x)


@jit
def sqrt(x):
    return tl.sqrt(x)


@jit
def rsqrt(x):
    return 1.0 / tl.sqrt(x)


@jit
def reciprocal(x):
    return 1.0 / x


@jit
def sin(x):
    return tl.sin(x)


@jit
def cos(x):
    return tl.cos(x)


@jit
def tanh(x):
    return tl.math.tanh(x)


@jit
def erf(x):
    return tl.erf(x)


@jit
def sigmoid(x):
    return tl.sigmoid(x)


@jit
def relu(x):
    return tl.where(x <= 0, 0, x)


@jit
def silu(x):
    return x * tl.sigmoid(x)


@jit
def floor(x):
    return tl.floor(x)


@jit
def ceil(x):
    return tl.ceil(x)


@jit
def sign(x):
    return tl.where(x > 0, 1, tl.where(x < 0, -1, x))


@jit
def square(x):
    return x * x


@jit
def logical_not(x):
    return x == 0


@jit
def isnan(x):
    return x != x


@jit
def gelu(x, approximate: tl.constexpr):
    if approximate == "tanh":
        return x * tl.sigmoid(TANH_SCALE_2 * x * (1.0 + TANH_CUBIC * x * x))
    return 0.5 * x * (1.0 + tl.erf(x * INVERSE_SQRT2))


@jit
def add(a, b):
    return a + b


@jit
def sub(a, b):
    return a - b


@jit
def mul(a, b):
    return a * b


@jit
def div(a, b):
    return a / b


@jit
def pow(a, b):  # noqa: A001
    return tl.math.pow(a, b)


@jit
def maximum(a, b):
    return tl.where((a > b) | (a != a), a, b)


@jit
def minimum(a, b):
    return tl.where((a < b) | (a != a), a, b)


@jit
def remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@jit
def floor_divide(a, b):
    if a.dtype.is_floating():
        rest = a % b
        quotient = (a - rest) / b
        quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1.0, quotient)
        whole = tl.floor(quotient)
        whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
        return tl.where(b == 0, a / b, whole)
    quotient = a // b
    rest = a - quotient * b
    lower = (rest != 0) & ((rest < 0) != (b < 0)) & (b != 0)
    return tl.where(lower, quotient - 1, quotient)


@jit
def eq(a, b):
    return a == b


@jit
def ne(a, b):
    return a != b


@jit
def lt(a, b):
    return a < b


@jit
def le(a, b):
    return a <= b


@jit
def gt(a, b):
    return a > b


@jit
def ge(a, b):
    return a >= b


@jit
def logical_and(a, b):
    return a & b


@jit
def logical_or(a, b):
    return a | b


@jit
def gelu_backward(grad, x, approximate: tl.constexpr):
    if approximate == "tanh":
        s = tl.sigmoid(TANH_SCALE_2 * x * (1.0 + TANH_CUBIC * x * x))
        slope = TANH_SCALE_2 * (1.0 + 3.0 * TANH_CUBIC * x * x)
        return grad * s * (1.0 + x * (1.0 - s) * slope)
    density = INVERSE_SQRT_2PI * tl.exp(-0.5 * x * x)
    return grad * (0.5 * (1.0 + tl.erf(x * INVERSE_SQRT2)) + x * density)


@jit
def silu_backward(grad, x):
    s = tl.sigmoid(x)
    return grad * s * (1.0 + x * (1.0 - s))


@jit
def relu_backward(grad, x):
    return tl.where(x <= 0, 0.0, grad)


@jit
def tanh_backward(grad, out):
    return grad * (1.0 - out) * (1.0 + out)


@jit
def sigmoid_backward(grad, out):
    return grad * out * (1.0 - out)


@jit
def where(condition, a, b):
    return tl.where(condition, a, b)


@jit
def clamp(x, low: tl.constexpr, high: tl.constexpr):
    if low is not None:
        x = tl.where(x < low, low, x)
    if high is not None:
        x = tl.where(x > high, high, x)
    return x


@jit
def cast(x, dtype: tl.constexpr):
    if dtype == "bool":
        return x != 0
    if dtype == "i8":
        return x.to(tl.int8)
    if dtype == "i16":
        return x.to(tl.int16)
    if dtype == "i32":
        return x.to(tl.int32)
    if dtype == "i64":
        return x.to(tl.int64)
    if dtype == "u8":
        return x.to(tl.uint8)
    if dtype == "u16":
        return x.to(tl.uint16)
    if dtype == "u32":
        return x.to(tl.uint32)
    if dtype == "u64":
        return x.to(tl.uint64)
    if dtype == "f16":
        return x.to(tl.float16)
    if dtype == "bf16":
        return x.to(tl.bfloat16)
    if dtype == "f64":
        return x.to(tl.float64)
    return x.to(tl.float32)
