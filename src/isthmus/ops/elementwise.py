"""Element-wise operators: one table of records.

Inputs broadcast as in NumPy and share one dtype (`where` takes a bool condition first); capture
inserts the casts. The kernels are generated from the `pointwise` helpers in `ops/pointwise.py`,
alone or fused with neighbours (`ops/fused.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from isthmus.core.dtypes import DTYPES, DType
from isthmus.core.errors import DTypeError
from isthmus.ops import pointwise
from isthmus.ops.rules import (
    BOOL,
    FLOATS,
    Arrays,
    Specs,
    as_dtype,
    broadcast_shapes,
    cost_of,
    integer_type,
    real,
    require_dtypes,
    require_same_dtype,
    round_to,
    tolerances,
)
from isthmus.ops.standard import REQUIRED, Attrs, Operator, TensorSpec, register

__all__: list[str] = []

INTEGERS = tuple(name for name, dtype in DTYPES.items() if dtype.is_integer)
SIGNED = tuple(name for name in INTEGERS if DTYPES[name].is_signed)
NUMBERS = (*INTEGERS, *FLOATS)
ANY = ("bool", *NUMBERS)


def _infer(
    name: str, allowed: Sequence[str], result: DType | None, inputs: Sequence[str]
) -> Callable[[Specs, Attrs], list[TensorSpec]]:
    """Broadcast the shapes; keep the common dtype, or give `result`."""

    def infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
        for input_name, spec in zip(inputs, specs, strict=True):
            require_dtypes(name, input_name, spec, allowed)
        dtype = require_same_dtype(name, specs)
        shape = broadcast_shapes(name, [spec.shape for spec in specs])
        return [TensorSpec(shape, result or dtype)]

    return infer


def _numbers(arrays: Arrays) -> list[np.ndarray]:
    """Floats as float64; integers and bools as they are."""
    given = [np.asarray(array) for array in arrays]
    return [array if array.dtype.kind in "iub" else real(array) for array in given]


def _define(
    name: str,
    doc: str,
    function: Callable[..., Any],
    *,
    inputs: Sequence[str] = ("x",),
    allowed: Sequence[str] = FLOATS,
    result: DType | None = None,
    ulps: float = 0.0,
    absolute_ulps: float = 0.0,
    reason: str = "correctly rounded arithmetic of the hardware",
    flops: int = 1,
    attrs: Mapping[str, Any] | None = None,
    nan: str = "NaN in, NaN out, element by element",
    gradient: str = "by capture",
    takes_attrs: bool = False,
) -> None:
    def reference(arrays: Arrays, given: Attrs) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            numbers = _numbers(arrays)
            value = function(*numbers, given) if takes_attrs else function(*numbers)
        return [np.asarray(value)]

    register(
        Operator(
            name=name,
            doc=doc,
            inputs=tuple(inputs),
            infer=_infer(name, allowed, result, inputs),
            reference=reference,
            cost=cost_of(flops),
            attrs=attrs or {},
            pointwise=getattr(pointwise, name),
            pointwise_attrs=tuple(attrs or ()),
            tolerance=tolerances(ulps, reason, absolute_ulps=absolute_ulps),
            gradient=gradient,
            nan=nan,
            inplace={} if result else {0: tuple(range(len(inputs)))},
        )
    )


# ---------------------------------------------------------------- float64 formulas

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_INVERSE_SQRT2 = math.sqrt(0.5)
_INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBIC = 0.044715


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def _gelu(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    if attrs["approximate"] == "tanh":
        return x * _sigmoid(2.0 * _TANH_SCALE * (x + _TANH_CUBIC * x**3))
    return 0.5 * x * _erfc(-x * _INVERSE_SQRT2)


def _gelu_backward(grad: np.ndarray, x: np.ndarray, attrs: Attrs) -> np.ndarray:
    if attrs["approximate"] == "tanh":
        argument = 2.0 * _TANH_SCALE * (x + _TANH_CUBIC * x**3)
        s, rest = _sigmoid(argument), _sigmoid(-argument)
        slope = 2.0 * _TANH_SCALE * (1.0 + 3.0 * _TANH_CUBIC * x * x)
        return grad * s * (1.0 + x * rest * slope)
    density = _INVERSE_SQRT_2PI * np.exp(-0.5 * x * x)
    return grad * (0.5 * _erfc(-x * _INVERSE_SQRT2) + x * density)


def _silu_backward(grad: np.ndarray, x: np.ndarray) -> np.ndarray:
    s = _sigmoid(x)
    return grad * s * (1.0 + x * (1.0 - s))


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu":
        a, b = np.broadcast_arrays(a, b)
        return np.where(b == 0, a, np.remainder(a, np.where(b == 0, 1, b))).astype(a.dtype)
    return np.remainder(a, b)


def _floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu":
        a, b = np.broadcast_arrays(a, b)
        return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))).astype(a.dtype)
    return np.floor_divide(a, b)


def _clamp(x: np.ndarray, attrs: Attrs) -> np.ndarray:
    low, high = attrs["low"], attrs["high"]
    if low is not None:
        x = np.where(x < low, np.asarray(low, x.dtype), x)
    if high is not None:
        x = np.where(x > high, np.asarray(high, x.dtype), x)
    return x


# ---------------------------------------------------------------- the table

_VECTOR = "own vector code, whose own bound is below this"

_define("neg", "-x.", np.negative, allowed=NUMBERS)
_define("abs", "Magnitude; INT_MIN stays.", np.abs, allowed=NUMBERS)
_define("exp", "e to the x.", np.exp, ulps=2, reason=_VECTOR, flops=8)
_define("log", "Natural logarithm; -inf at 0, NaN below.", np.log, ulps=2, absolute_ulps=0.5,
        reason=_VECTOR, flops=8)  # fmt: skip
_define("sqrt", "Square root; NaN below 0.", np.sqrt, ulps=1)
_define("rsqrt", "1 / sqrt(x).", lambda x: 1.0 / np.sqrt(x), ulps=2,
        reason="a square root and a quotient, each correctly rounded", flops=2)  # fmt: skip
_define("reciprocal", "1 / x.", lambda x: 1.0 / x, ulps=1)
_define("sin", "Sine of radians.", np.sin, ulps=2, absolute_ulps=2, reason=_VECTOR, flops=12)
_define("cos", "Cosine of radians.", np.cos, ulps=2, absolute_ulps=2, reason=_VECTOR, flops=12)
_define("tanh", "Hyperbolic tangent; never overflows.", np.tanh, ulps=3, reason=_VECTOR, flops=10,
        gradient="tanh_backward")  # fmt: skip
_define("erf", "Error function.", _erf, ulps=4, reason=_VECTOR, flops=12)
_define("sigmoid", "1 / (1 + exp(-x)).", _sigmoid, ulps=4, reason=_VECTOR, flops=10,
        gradient="sigmoid_backward")  # fmt: skip
_define("relu", "x where x > 0, else 0; NaN stays NaN.",
        lambda x: np.where(x <= 0, 0, x).astype(x.dtype), allowed=NUMBERS,
        gradient="relu_backward")  # fmt: skip
_define("silu", "x * sigmoid(x); NaN at -inf.", lambda x: x * _sigmoid(x), ulps=5, reason=_VECTOR,
        flops=11, gradient="silu_backward")  # fmt: skip
_define("floor", "Largest whole number not above x.", np.floor)
_define("ceil", "Smallest whole number not below x.", np.ceil)
_define("sign", "-1, 0 or 1.", np.sign, allowed=NUMBERS)
_define("square", "x * x.", lambda x: x * x, allowed=NUMBERS, ulps=1)
_define("logical_not", "True where x is False.", np.logical_not, allowed=("bool",), result=BOOL,
        nan="no NaN in bool")  # fmt: skip
_define("isnan", "True where x is NaN.", np.isnan, result=BOOL, nan="NaN gives True")
_define(
    "gelu",
    "x * Phi(x), the normal distribution function by erf; approximate='tanh' takes "
    "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), found as x sigmoid(2 sqrt(2/pi) (..)). "
    "NaN at -inf.",
    _gelu, attrs={"approximate": "none"}, ulps=6, absolute_ulps=4, takes_attrs=True, flops=16,
    reason=f"1 + erf cancels in the left tail: absolute; {_VECTOR}", gradient="gelu_backward",
)  # fmt: skip

_define("add", "a + b.", np.add, inputs="ab", allowed=NUMBERS, ulps=1)
_define("sub", "a - b.", np.subtract, inputs="ab", allowed=NUMBERS, ulps=1)
_define("mul", "a * b.", np.multiply, inputs="ab", allowed=NUMBERS, ulps=1)
_define("div", "a / b of floats.", np.divide, inputs="ab", ulps=1)
_define("pow", "a to the b; the C function's special values.", np.power, inputs="ab", ulps=16,
        reason="exp(b log a) with an extended logarithm", flops=20)  # fmt: skip
_define("maximum", "Larger one; NaN if either is NaN.", np.maximum, inputs="ab", allowed=NUMBERS)
_define("minimum", "Smaller one; NaN if either is NaN.", np.minimum, inputs="ab", allowed=NUMBERS)
_define(
    "remainder",
    "a - floor(a / b) * b, with the sign of b; integers: a where b is 0.",
    _remainder, inputs="ab", allowed=NUMBERS, ulps=1,
    reason="the C remainder is exact; one sum where signs differ",
)  # fmt: skip
_define(
    "floor_divide",
    "The quotient rounded down, found through the exact remainder (1 // 0.1 is 9); integers: "
    "0 where b is 0, INT_MIN // -1 wraps.",
    _floor_divide, inputs="ab", allowed=NUMBERS, ulps=2, reason="one quotient, rounded",
)  # fmt: skip

for _name, _doc, _function in (
    ("eq", "a == b", np.equal),
    ("ne", "a != b", np.not_equal),
    ("lt", "a < b", np.less),
    ("le", "a <= b", np.less_equal),
    ("gt", "a > b", np.greater),
    ("ge", "a >= b", np.greater_equal),
):
    _define(_name, f"{_doc}, as bool.", _function, inputs="ab", result=BOOL,
            allowed=ANY if _name in ("eq", "ne") else NUMBERS,
            nan="False where either is NaN" if _name != "ne" else "True where either is NaN",
            gradient="none")  # fmt: skip
for _name, _function in (("logical_and", np.logical_and), ("logical_or", np.logical_or)):
    _define(_name, f"a {_name[8:]} b of bools.", _function, inputs="ab", allowed=("bool",),
            result=BOOL, nan="no NaN in bool", gradient="none")  # fmt: skip

_define(
    "gelu_backward", "grad times the derivative of gelu at x.", _gelu_backward,
    inputs=("grad", "x"), attrs={"approximate": "none"}, ulps=10, absolute_ulps=6, flops=24,
    takes_attrs=True, reason=f"two terms of opposite sign left of 0: absolute; {_VECTOR}",
)  # fmt: skip
_define("silu_backward", "grad times the derivative of silu at x.", _silu_backward,
        inputs=("grad", "x"), ulps=8, absolute_ulps=4, flops=14,
        reason=f"1 + x (1 - s) cancels near -1.28: absolute; {_VECTOR}")  # fmt: skip
_define("relu_backward", "grad where x > 0, else 0.",
        lambda grad, x: np.where(x <= 0, 0, grad).astype(grad.dtype), inputs=("grad", "x"),
        nan="NaN in grad stays where x > 0; grad where x is NaN")  # fmt: skip
_define("tanh_backward", "grad * (1 - out^2).", lambda grad, out: grad * (1.0 - out) * (1.0 + out),
        inputs=("grad", "out"), ulps=3, reason="1 - out^2 as (1 - out)(1 + out): no cancellation",
        flops=4)  # fmt: skip
_define("sigmoid_backward", "grad * out * (1 - out).", lambda grad, out: grad * out * (1.0 - out),
        inputs=("grad", "out"), ulps=3, reason="three rounded operations", flops=3)  # fmt: skip
_define("clamp", "x kept within [low, high]; None leaves a side open.", _clamp, allowed=NUMBERS,
        attrs={"low": None, "high": None}, takes_attrs=True)  # fmt: skip


# ---------------------------------------------------------------- where, cast


def _where_infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    condition, a, b = specs
    require_dtypes("where", "condition", condition, ("bool",))
    dtype = require_same_dtype("where", [a, b])
    return [TensorSpec(broadcast_shapes("where", [spec.shape for spec in specs]), dtype)]


def _where_reference(arrays: Arrays, _attrs: Attrs) -> list[np.ndarray]:
    condition, *values = arrays
    return [np.where(np.asarray(condition, bool), *_numbers(values))]


register(
    Operator(
        name="where",
        doc="a where the condition holds, else b.",
        inputs=("condition", "a", "b"),
        infer=_where_infer,
        reference=_where_reference,
        cost=cost_of(1),
        pointwise=pointwise.where,
        tolerance=tolerances(0, "a choice, exact"),
        nan="a NaN that is not chosen does not show",
        inplace={0: (1, 2)},
    )
)


def _cast_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    dtype = as_dtype(attrs["dtype"])
    if dtype.name not in ANY:
        raise DTypeError(f"cast: no cast to {dtype}; allowed: {', '.join(ANY)}")
    return [TensorSpec(specs[0].shape, dtype)]


def cast_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    dtype = as_dtype(attrs["dtype"])
    (x,) = _numbers(arrays)
    if dtype.is_float:
        return [round_to(real(x), dtype)]
    if dtype is BOOL:
        return [x != 0]
    target = integer_type(dtype)
    if x.dtype.kind != "f":
        return [x.astype(target)]
    limits = np.iinfo(target)
    whole = np.trunc(np.where(np.isnan(x), 0.0, x))
    inside = (whole >= limits.min) & (whole < float(limits.max) + 1.0)
    exact = np.where(inside, whole, 0.0).astype(target)
    edge = np.where(whole < 0, limits.min, limits.max).astype(target)
    return [np.where(inside, exact, edge).astype(target)]


register(
    Operator(
        name="cast",
        doc="x as another dtype: floats round to nearest even; float to integer truncates, "
        "saturates and turns NaN into 0; integers wrap; bool is x != 0.",
        inputs=("x",),
        infer=_cast_infer,
        reference=cast_reference,
        cost=cost_of(1),
        attrs={"dtype": REQUIRED},
        pointwise=pointwise.cast,
        pointwise_attrs=("dtype",),
        tolerance=tolerances(0, "one rounding, exact"),
        nan="NaN stays NaN among floats; 0 as an integer, True as bool",
    )
)
