"""Elementary functions as vector code of our own: no library is called.

`expand` turns one math operation into arithmetic. f32 and f64 have their own code; f16 and bf16
are computed in f32 and rounded once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.errors import InternalError
from isthmus.core.target import TargetDescription
from isthmus.ir.builder import Builder
from isthmus.ir.core import Value
from isthmus.ir.types import F32, F64, element_type, with_element
from isthmus.lowering.nest.math_code import Code
from isthmus.lowering.nest.math_f32 import FUNCTIONS_F32
from isthmus.lowering.nest.math_f64 import FUNCTIONS_F64

__all__ = ["BOUNDS_ULP", "CHEAP", "expand"]

#: Operations that the emitter prints as one instruction.
CHEAP = ("absf", "absi", "floor", "ceil", "trunc", "roundeven", "sqrt")

#: Largest error seen, rounded up, in units of the last place of (f32, f64) results, with and
#: without fused multiply-add. f32: over all exponents; f64: sin, cos and tan up to 10**4.
BOUNDS_ULP: dict[str, tuple[float, float]] = {
    "exp": (1.1, 1.1), "exp2": (1.2, 1.1), "expm1": (1.8, 1.8), "log": (0.8, 0.8),
    "log2": (2.0, 2.0), "log1p": (0.8, 0.8), "sin": (1.6, 1.6), "cos": (1.6, 1.6),
    "tan": (1.6, 3.0), "asin": (0.51, 3.0), "acos": (0.51, 3.0), "atan": (0.51, 2.0),
    "atan2": (0.51, 2.0), "sinh": (0.51, 3.0), "cosh": (0.51, 2.0), "tanh": (1.4, 2.0),
    "erf": (1.1, 1.5), "sigmoid": (2.0, 2.5), "rsqrt": (1.5, 1.5), "pow": (0.6, 10.0),
}  # fmt: skip


def expand(
    builder: Builder, name: str, operands: Sequence[Value], target: TargetDescription
) -> Value:
    """Emit `math.<name>` of `operands` (scalars or vectors) at the insertion point."""
    name = name.removeprefix("math.")
    if name in CHEAP:
        return builder.emit(f"math.{name}", *operands)
    type_ = operands[0].type
    element = element_type(type_)
    if element not in (F32, F64):
        wide = with_element(type_, F32)
        values = [builder.emit("arith.extf", value, type=wide) for value in operands]
        return builder.emit("arith.truncf", expand(builder, name, values, target), type=type_)
    functions = FUNCTIONS_F32 if element is F32 else FUNCTIONS_F64
    if name not in functions:
        raise InternalError(f"math.{name} of {element} has no code", stage="lower")
    return functions[name](Code(builder, type_, target), *operands)
