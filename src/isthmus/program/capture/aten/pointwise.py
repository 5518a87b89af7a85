"""Element-wise operators."""

from __future__ import annotations

import math
from typing import Any

from isthmus.core.errors import CaptureError
from isthmus.program.capture.aten.common import BOOL, pair, promoted
from isthmus.program.capture.convert import Converter, rule
from isthmus.program.graph import Value


def _binary(name: str) -> Any:
    def convert(c: Converter, a: Any, b: Any, *, alpha: float = 1, **_: Any) -> Value:
        dtype = c.output_dtype()
        left, right = pair(c, a, b, dtype)
        if alpha != 1:
            right = c.emit("mul", right, c.constant(alpha, dtype))
        return c.emit(name, left, right)

    return convert


for _aten, _ours in (
    ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "div"), ("pow", "pow"),
    ("remainder", "remainder"), ("floor_divide", "floor_divide"),
):  # fmt: skip
    rule(
        f"{_aten}.Tensor",
        f"{_aten}.Scalar",
        f"{_aten}.Tensor_Tensor",
        f"{_aten}.Tensor_Scalar",
        _aten,
    )(_binary(_ours))
rule("maximum")(_binary("maximum"))
rule("minimum")(_binary("minimum"))


@rule("pow.Scalar")
def _(c: Converter, base: float, exponent: Value) -> Value:
    dtype = c.output_dtype()
    return c.emit("pow", *pair(c, base, exponent, dtype))


@rule("pow.Tensor_Scalar")
def _(c: Converter, x: Value, exponent: float) -> Value:
    dtype = c.output_dtype()
    x = c.cast(x, dtype)
    if exponent == 2:
        return c.emit("square", x)
    if exponent == 1:
        return x
    if exponent == 3:
        return c.emit("mul", c.emit("square", x), x)
    if exponent == 0.5:
        return c.emit("sqrt", x)
    if exponent == -0.5:
        return c.emit("rsqrt", x)
    return c.emit("pow", x, c.constant(exponent, dtype))


@rule("div.Tensor_mode", "div.Scalar_mode")
def _(c: Converter, a: Value, b: Any, *, rounding_mode: str | None) -> Value:
    dtype = c.output_dtype()
    left, right = pair(c, a, b, dtype)
    if rounding_mode is None:
        return c.emit("div", left, right)
    if rounding_mode == "floor":
        return c.emit("floor_divide", left, right)
    if rounding_mode == "trunc" and dtype.is_float:
        quotient = c.emit("div", left, right)
        return c.emit("mul", c.emit("sign", quotient), c.emit("floor", c.emit("abs", quotient)))
    raise CaptureError(f"div of integers with rounding_mode {rounding_mode!r} has no counterpart")


@rule("rsub.Tensor", "rsub.Scalar")
def _(c: Converter, a: Value, b: Any, alpha: float = 1) -> Value:
    dtype = c.output_dtype()
    left, right = pair(c, a, b, dtype)
    if alpha != 1:
        left = c.emit("mul", left, c.constant(alpha, dtype))
    return c.emit("sub", right, left)


def _unary(name: str, **attrs: Any) -> Any:
    def convert(c: Converter, x: Value) -> Value:
        return c.emit(name, c.cast(x, c.output_dtype()), **attrs)

    return convert


for _name in (
    "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf",
    "sigmoid", "relu", "silu", "floor", "ceil", "sign",
):  # fmt: skip
    rule(_name)(_unary(_name))


@rule("isnan")
def _(c: Converter, x: Value) -> Value:
    return c.emit("isnan", x)


@rule("gelu")
def _(c: Converter, x: Value, *, approximate: str = "none") -> Value:
    return c.emit("gelu", x, approximate=approximate)


@rule("gelu_backward")
def _(c: Converter, grad: Value, x: Value, *, approximate: str = "none") -> Value:
    return c.emit("gelu_backward", grad, x, approximate=approximate)


for _name in ("silu_backward", "tanh_backward", "sigmoid_backward"):
    rule(_name)(lambda c, grad, x, _name=_name: c.emit(_name, grad, x))


@rule("threshold_backward")
def _(c: Converter, grad: Value, x: Value, threshold: float) -> Value:
    if threshold == 0:
        return c.emit("relu_backward", grad, x)
    zero = c.constant(0, grad.spec.dtype)
    above = c.emit("gt", x, c.constant(threshold, x.spec.dtype))
    return c.emit("where", above, grad, zero)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):

    def _compare(c: Converter, a: Value, b: Any, _name: str = _name) -> Value:
        return c.emit(_name, *pair(c, a, b, promoted(a, b)))

    rule(f"{_name}.Tensor", f"{_name}.Scalar")(_compare)


@rule("logical_not")
def _(c: Converter, x: Value) -> Value:
    return c.emit("logical_not", c.cast(x, BOOL))


@rule("bitwise_not")
def _(c: Converter, x: Value) -> Value:
    if x.spec.dtype != BOOL:
        raise CaptureError("bitwise_not of integers has no counterpart in the standard")
    return c.emit("logical_not", x)


def _logical(name: str) -> Any:
    def convert(c: Converter, a: Value, b: Any) -> Value:
        for item in (a, b):
            if (
                isinstance(item, Value)
                and item.spec.dtype != BOOL
                and "logical" not in str(c.node.target)
            ):
                raise CaptureError(f"{c.node.target} of integers has no counterpart")
        return c.emit(name, *pair(c, a, b, BOOL))

    return convert


rule("logical_and", "bitwise_and.Tensor")(_logical("logical_and"))
rule("logical_or", "bitwise_or.Tensor")(_logical("logical_or"))


@rule("where.self", "where.ScalarOther", "where.ScalarSelf")
def _(c: Converter, condition: Value, a: Any, b: Any) -> Value:
    return c.emit("where", condition, *pair(c, a, b, c.output_dtype()))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _(c: Converter, x: Value, mask: Value, value: Any) -> Value:
    filler = (
        c.cast(value, x.spec.dtype) if isinstance(value, Value)
        else c.constant(value, x.spec.dtype)
    )  # fmt: skip
    return c.emit("where", mask, filler, x)


@rule("clamp")
def _(
    c: Converter, x: Value, low: float | None = None, high: float | None = None, **kw: Any
) -> Value:
    low, high = kw.get("min", low), kw.get("max", high)
    return c.emit("clamp", c.cast(x, c.output_dtype()), low=low, high=high)


@rule("clamp.Tensor")
def _(c: Converter, x: Value, low: Any = None, high: Any = None, **kw: Any) -> Value:
    made, dtype = c.cast(x, c.output_dtype()), c.output_dtype()
    for name, bound in (("maximum", kw.get("min", low)), ("minimum", kw.get("max", high))):
        if bound is not None:
            made = c.emit(name, *pair(c, made, bound, dtype))
    return made


@rule("clamp_min.Tensor", "clamp_max.Tensor")
def _(c: Converter, x: Value, bound: Value) -> Value:
    name = "maximum" if "clamp_min" in str(c.node.target) else "minimum"
    return c.emit(name, *pair(c, x, bound, c.output_dtype()))


@rule("clamp_min")
def _(c: Converter, x: Value, low: float) -> Value:
    return c.emit("clamp", x, low=low, high=None)


@rule("clamp_max")
def _(c: Converter, x: Value, high: float) -> Value:
    return c.emit("clamp", x, low=None, high=high)


@rule("_to_copy", "to.dtype", "_to_copy.default")
def _(c: Converter, x: Value, **_: Any) -> Value:
    return c.cast(x, c.output_dtype())


@rule("prims.convert_element_type")
def _(c: Converter, x: Value, _dtype: Any) -> Value:
    return c.cast(x, c.output_dtype())


def _same(_c: Converter, x: Value, *_rest: Any, **_keywords: Any) -> Value:
    return x


rule("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "lift_fresh", "copy")(_same)


@rule("copy")
def _(c: Converter, x: Value, source: Value, *_: Any) -> Value:
    return c.broadcast(c.cast(source, x.spec.dtype), x.spec.shape)


@rule("copy_")
def _(c: Converter, x: Value, source: Value, *_: Any) -> Value:
    """What holds a buffer holds its new content from here on."""
    made = c.broadcast(c.cast(source, x.spec.dtype), x.spec.shape)
    c.env[c.node.args[0]] = made  # type: ignore[index]
    return made


@rule("_assert_tensor_metadata", "profiler._record_function_enter_new",
      "profiler._record_function_exit._RecordFunction")  # fmt: skip
def _(_c: Converter, *_: Any, **__: Any) -> None:
    return None


@rule("exp2")
def _(c: Converter, x: Value) -> Value:
    x = c.cast(x, c.output_dtype())
    return c.emit("exp", c.emit("mul", x, c.constant(math.log(2.0), x.spec.dtype)))


@rule("expm1")
def _(c: Converter, x: Value) -> Value:
    """Near 0 by Kahan's (u - 1) * x / log(u), u = exp(x), where rounding errors cancel."""
    x = c.cast(x, c.output_dtype())
    one = c.constant(1.0, x.spec.dtype)
    power = c.emit("exp", x)
    less = c.emit("sub", power, one)
    near = c.emit("mul", less, c.emit("div", x, c.emit("log", power)))
    near = c.emit("where", c.emit("eq", power, one), x, near)
    is_near = c.emit("lt", c.emit("abs", x), c.constant(0.5, x.spec.dtype))
    return c.emit("where", is_near, near, less)


@rule("log1p")
def _(c: Converter, x: Value) -> Value:
    """Near 0 by Kahan's log(u) * x / (u - 1), u = 1 + x, where rounding errors cancel."""
    x = c.cast(x, c.output_dtype())
    one = c.constant(1.0, x.spec.dtype)
    more = c.emit("add", x, one)
    far = c.emit("log", more)
    near = c.emit("mul", far, c.emit("div", x, c.emit("sub", more, one)))
    near = c.emit("where", c.emit("eq", more, one), x, near)
    is_near = c.emit("lt", c.emit("abs", x), c.constant(0.5, x.spec.dtype))
    return c.emit("where", is_near, near, far)
