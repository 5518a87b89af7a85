"""Element-wise functions: `tl.exp`, `tl.math.tanh` and their kin, each one row of a table."""

from __future__ import annotations

from typing import Any

from isthmus.language.emitter import Emitter, describe
from isthmus.language.types import float32, float64, int32, integer_of
from isthmus.language.values import Builtin, Tensor, builtin, unwrap

__all__ = [
    "abs", "acos", "asin", "atan", "atan2", "ceil", "copysign", "cos", "cosh", "div_rn", "erf",
    "exp", "exp2", "expm1", "fdiv", "finitef", "float2int_rn", "float2int_rz", "floor", "fma",
    "fmod", "isinf", "isnan", "log", "log1p", "log2", "nearbyint", "pow", "rint", "round",
    "rsqrt", "signbit", "sin", "sinh", "sqrt", "sqrt_rn", "tan", "tanh", "trunc", "umulhi",
]  # fmt: skip

#: name -> IR operation on f32 and f64 blocks.
UNARY = {
    "exp": "math.exp", "exp2": "math.exp2", "expm1": "math.expm1",
    "log": "math.log", "log2": "math.log2", "log1p": "math.log1p",
    "sin": "math.sin", "cos": "math.cos", "tan": "math.tan",
    "asin": "math.asin", "acos": "math.acos", "atan": "math.atan",
    "sinh": "math.sinh", "cosh": "math.cosh", "tanh": "math.tanh",
    "sqrt": "math.sqrt", "sqrt_rn": "math.sqrt", "rsqrt": "math.rsqrt",
    "erf": "math.erf", "floor": "math.floor", "ceil": "math.ceil",
    "trunc": "math.trunc", "rint": "math.roundeven", "nearbyint": "math.roundeven",
}  # fmt: skip


def float_operand(emitter: Emitter, name: str, value: Any) -> Tensor:
    """An f32 or f64 operand of a function."""
    block = emitter.tensor(value)
    if block.dtype not in (float32, float64):
        emitter.fail(
            "K307", f"tl.{name} takes fp32 or fp64, got {describe(block)}",
            "convert first: x.to(tl.float32)",
        )  # fmt: skip
    return block


def _unary(name: str, operation: str) -> Builtin:
    def build(emitter: Emitter, x: Any) -> Tensor:
        block = float_operand(emitter, name, x)
        return emitter.make(operation, block, like=block)

    build.__doc__ = f"{name} of each element, in f32 or f64."
    return Builtin(name, build)


def _binary_float(name: str, operation: str) -> Builtin:
    def build(emitter: Emitter, x: Any, y: Any) -> Tensor:
        left, right = emitter.broadcast(*_as_floats(emitter, name, x, y))
        return emitter.make(operation, left, right, like=left)

    build.__doc__ = f"{name} of two values, in f32 or f64."
    return Builtin(name, build)


def _as_floats(emitter: Emitter, name: str, x: Any, y: Any) -> tuple[Any, Any]:
    x, y = unwrap(x), unwrap(y)
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = emitter.tensor(float(x))
    left, right = emitter.unify(x, y)
    if left.dtype.is_int():
        left, right = emitter.cast(left, float32), emitter.cast(right, float32)
    return float_operand(emitter, name, left), float_operand(emitter, name, right)


exp = _unary("exp", UNARY["exp"])
exp2 = _unary("exp2", UNARY["exp2"])
expm1 = _unary("expm1", UNARY["expm1"])
log = _unary("log", UNARY["log"])
log2 = _unary("log2", UNARY["log2"])
log1p = _unary("log1p", UNARY["log1p"])
sin = _unary("sin", UNARY["sin"])
cos = _unary("cos", UNARY["cos"])
tan = _unary("tan", UNARY["tan"])
asin = _unary("asin", UNARY["asin"])
acos = _unary("acos", UNARY["acos"])
atan = _unary("atan", UNARY["atan"])
sinh = _unary("sinh", UNARY["sinh"])
cosh = _unary("cosh", UNARY["cosh"])
tanh = _unary("tanh", UNARY["tanh"])
sqrt = _unary("sqrt", UNARY["sqrt"])
sqrt_rn = _unary("sqrt_rn", UNARY["sqrt_rn"])
rsqrt = _unary("rsqrt", UNARY["rsqrt"])
erf = _unary("erf", UNARY["erf"])
floor = _unary("floor", UNARY["floor"])
ceil = _unary("ceil", UNARY["ceil"])
trunc = _unary("trunc", UNARY["trunc"])
rint = _unary("rint", UNARY["rint"])
nearbyint = _unary("nearbyint", UNARY["nearbyint"])
pow = _binary_float("pow", "math.pow")  # noqa: A001
atan2 = _binary_float("atan2", "math.atan2")
fmod = _binary_float("fmod", "arith.remf")


@builtin
def abs(emitter: Emitter, x: Any) -> Tensor:  # noqa: A001
    """Magnitude; the smallest integer stays as it is."""
    block = emitter.tensor(x)
    if block.dtype.is_floating():
        return emitter.make("math.absf", block, like=block)
    if block.dtype.is_int_signed():
        return emitter.make("math.absi", block, like=block)
    return block


@builtin
def fma(emitter: Emitter, x: Any, y: Any, z: Any) -> Tensor:
    """x * y + z, rounded once."""
    first, second = emitter.unify(unwrap(x), unwrap(y))
    first, third = emitter.unify(first, unwrap(z))
    second = emitter.cast(second, first.dtype)
    if not first.dtype.is_floating():
        emitter.fail("K307", f"tl.fma takes floats, got {describe(first)}")
    first, second, third = emitter.broadcast(first, second, third)
    return emitter.make("arith.fma", first, second, third, like=first)


@builtin
def umulhi(emitter: Emitter, x: Any, y: Any) -> Tensor:
    """High half of the product of two unsigned integers of 32 or 64 bits."""
    left, right = emitter.unify(unwrap(x), unwrap(y))
    if not left.dtype.is_int() or left.dtype.primitive_bitwidth not in (32, 64):
        emitter.fail("K307", f"tl.umulhi takes integers of 32 or 64 bits, got {describe(left)}")
    left, right = emitter.broadcast(left, right)
    return emitter.make("arith.mulhui", left, right, like=left)


@builtin
def fdiv(
    emitter: Emitter, x: Any, y: Any, ieee_rounding: Any = False, approx: Any = False
) -> Tensor:
    """x / y, correctly rounded."""
    return emitter.binary("/", emitter.tensor(x), y)


@builtin
def div_rn(emitter: Emitter, x: Any, y: Any) -> Tensor:
    """x / y, correctly rounded."""
    return emitter.binary("/", float_operand(emitter, "div_rn", x), y)


@builtin
def isnan(emitter: Emitter, x: Any) -> Tensor:
    """Where a float is NaN."""
    block = emitter.tensor(x)
    return emitter.compare("!=", block, block)


@builtin
def isinf(emitter: Emitter, x: Any) -> Tensor:
    """Where a float is infinite."""
    return emitter.compare("==", abs.build(emitter, x), float("inf"))


@builtin
def finitef(emitter: Emitter, x: Any) -> Tensor:
    """Where a float is neither infinite nor NaN."""
    return emitter.compare("<", abs.build(emitter, x), float("inf"))


@builtin
def signbit(emitter: Emitter, x: Any) -> Tensor:
    """Where the sign bit of a float is set."""
    block = emitter.tensor(x)
    bits = emitter.bitcast(block, integer_of(block.dtype.primitive_bitwidth))
    return emitter.compare("<", bits, 0)


@builtin
def copysign(emitter: Emitter, x: Any, y: Any) -> Tensor:
    """The magnitude of x with the sign of y."""
    left, right = emitter.broadcast(*_as_floats(emitter, "copysign", x, y))
    size = abs.build(emitter, left)
    return emitter.select(signbit.build(emitter, right), emitter.negate(size), size)


@builtin
def round(emitter: Emitter, x: Any) -> Tensor:  # noqa: A001
    """Nearest whole number, halves away from zero."""
    block = float_operand(emitter, "round", x)
    size = abs.build(emitter, block)
    whole = trunc.build(emitter, size)
    up = emitter.compare(">=", emitter.binary("-", size, whole), 0.5)
    rounded = emitter.select(up, emitter.binary("+", whole, 1.0), whole)
    return copysign.build(emitter, rounded, block)


@builtin
def float2int_rz(emitter: Emitter, x: Any) -> Tensor:
    """A float as i32, toward zero."""
    return emitter.cast(float_operand(emitter, "float2int_rz", x), int32)


@builtin
def float2int_rn(emitter: Emitter, x: Any) -> Tensor:
    """A float as i32, to nearest even."""
    return emitter.cast(rint.build(emitter, x), int32)
