"""Element-wise functions. Bounds in ULP are stated per target by the operator standard."""

from __future__ import annotations

from isthmus.ir.dialects import rules
from isthmus.ir.optable import define

#: Functions of one float.
UNARY = {
    "absf": "Magnitude.",
    "floor": "Largest whole number not above.",
    "ceil": "Smallest whole number not below.",
    "trunc": "Whole part, toward zero.",
    "roundeven": "Nearest whole number, ties to even.",
    "sqrt": "Square root, correctly rounded.",
    "rsqrt": "1 / sqrt(x).",
    "exp": "e to the x.",
    "exp2": "2 to the x.",
    "expm1": "e to the x, less 1.",
    "log": "Natural logarithm.",
    "log2": "Base-2 logarithm.",
    "log1p": "log(1 + x).",
    "sin": "Sine of radians.",
    "cos": "Cosine of radians.",
    "tan": "Tangent of radians.",
    "asin": "Arc sine.",
    "acos": "Arc cosine.",
    "atan": "Arc tangent.",
    "sinh": "Hyperbolic sine.",
    "cosh": "Hyperbolic cosine.",
    "tanh": "Hyperbolic tangent.",
    "erf": "Error function.",
    "sigmoid": "1 / (1 + exp(-x)).",
}
for _name, _doc in UNARY.items():
    define(f"math.{_name}", "value", _doc, infer=rules.same_float, traits="pure elementwise")

define("math.absi", "value", "Signed magnitude; INT_MIN stays.",
       infer=rules.same_int, traits="pure elementwise")  # fmt: skip
define("math.pow", "base exponent", "base to the exponent (C pow).",
       infer=rules.same_float, traits="pure elementwise")  # fmt: skip
define("math.atan2", "y x", "Angle of (x, y).",
       infer=rules.same_float, traits="pure elementwise")  # fmt: skip
