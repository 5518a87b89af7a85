"""Reductions, softmax and norms, losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.core.errors import CaptureError
from isthmus.program.capture.aten.common import BOOL, I32, I64, dims
from isthmus.program.capture.convert import Converter, NllGradient, rule
from isthmus.program.graph import Value


def _reduction(name: str) -> Any:
    def convert(c: Converter, x: Value, axes: Any = None, keepdim: bool = False, **_: Any) -> Value:
        chosen = dims(axes, len(x.spec.shape))
        return c.emit(name, c.cast(x, c.output_dtype()), axes=chosen, keepdims=keepdim)

    return convert


rule("sum.dim_IntList", "sum")(_reduction("sum"))
rule("mean.dim", "mean")(_reduction("mean"))
rule("amax")(_reduction("max"))
rule("amin")(_reduction("min"))
rule("max")(_reduction("max"))
rule("min")(_reduction("min"))
rule("prod.dim_int", "prod")(_reduction("prod"))


@rule("var.correction")
def _(
    c: Converter, x: Value, axes: Any = None, *, correction: float = 1, keepdim: bool = False
) -> Value:
    chosen = dims(axes, len(x.spec.shape))
    return c.emit("variance", x, axes=chosen, keepdims=keepdim, correction=correction)


@rule("argmax")
def _(c: Converter, x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
    if axis is None:
        return c.emit("argmax", c.reshape(x, (x.spec.size,)), axis=0, keepdims=False)
    return c.emit("argmax", x, axis=axis % len(x.spec.shape), keepdims=keepdim)


@rule("cumsum")
def _(c: Converter, x: Value, axis: int, **_: Any) -> Value:
    return c.emit("cumsum", c.cast(x, c.output_dtype()), axis=axis % len(x.spec.shape))


@rule("native_layer_norm")
def _(c: Converter, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None,
      eps: float) -> list[Value]:  # fmt: skip
    out, mean, rstd = c.emit_all("layer_norm", _trim(x, weight, bias), axes=len(shape), eps=eps)
    kept = x.spec.shape[: len(x.spec.shape) - len(shape)] + (1,) * len(shape)
    return [out, c.reshape(mean, kept), c.reshape(rstd, kept)]


def _trim(*values: Value | None) -> list[Value | None]:
    kept = list(values)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


@rule("native_layer_norm_backward")
def _(c: Converter, grad: Value, x: Value, shape: Sequence[int], mean: Value, rstd: Value,
      weight: Value | None, _bias: Value | None, _mask: Sequence[bool]) -> list[Value]:  # fmt: skip
    leading = x.spec.shape[: len(x.spec.shape) - len(shape)]
    stats = [c.reshape(value, leading) for value in (mean, rstd)]
    return c.emit_all("layer_norm_backward", _trim(grad, x, *stats, weight), axes=len(shape))


@rule("_softmax")
def _(c: Converter, x: Value, axis: int, _half: bool) -> Value:
    return c.emit("softmax", x, axis=axis % len(x.spec.shape))


@rule("_log_softmax")
def _(c: Converter, x: Value, axis: int, _half: bool) -> Value:
    return c.emit("log_softmax", x, axis=axis % len(x.spec.shape))


@rule("_softmax_backward_data")
def _(c: Converter, grad: Value, out: Value, axis: int, _dtype: Any) -> Value:
    return c.emit("softmax_backward", grad, out, axis=axis % len(out.spec.shape))


_REDUCTIONS = ("none", "mean", "sum")


@rule("nll_loss_forward")
def _(c: Converter, log_probabilities: Value, target: Value, weight: Value | None, reduction: int,
      ignore_index: int) -> list[Value]:  # fmt: skip
    if weight is not None:
        raise CaptureError("class weights of a loss have no counterpart")
    producer = log_probabilities.producer
    whole = (
        producer is not None and producer.op == "log_softmax"
        and producer.attrs["axis"] == 1 and len(log_probabilities.spec.shape) == 2
    )  # fmt: skip
    if not whole:
        raise CaptureError(
            "a negative log likelihood that does not follow log_softmax has no counterpart",
            hint="use torch.nn.functional.cross_entropy on logits [rows, classes]",
        )
    assert producer is not None
    assert producer.inputs[0] is not None
    logits = producer.inputs[0]
    attrs = {"ignore_index": ignore_index, "reduction": _REDUCTIONS[reduction]}
    loss, lse, count = c.emit_all("cross_entropy", (logits, target), **attrs)
    c.losses[log_probabilities] = (logits, lse, count, attrs)
    return [loss, count]


@rule("nll_loss_backward")
def _(c: Converter, grad: Value, log_probabilities: Value, target: Value, _weight: Any,
      reduction: int, ignore_index: int, total: Value) -> NllGradient:  # fmt: skip
    return NllGradient(grad, log_probabilities, target, total, ignore_index, _REDUCTIONS[reduction])


@rule("_log_softmax_backward_data")
def _(c: Converter, grad: Any, out: Value, axis: int, _dtype: Any) -> Value:
    if isinstance(grad, NllGradient):
        logits, lse, count, attrs = c.losses[grad.log_probabilities]
        return c.emit("cross_entropy_backward", grad.grad, logits, grad.target, lse, count, **attrs)
    return c.emit("log_softmax_backward", grad, out, axis=axis % len(out.spec.shape))


@rule("mse_loss")
def _(c: Converter, x: Value, target: Value, reduction: int = 1) -> Value:
    square = c.emit("square", c.emit("sub", x, target))
    if reduction == 0:
        return square
    axes = tuple(range(len(square.spec.shape)))
    return c.emit("mean" if reduction == 1 else "sum", square, axes=axes, keepdims=False)


@rule("max.dim", "min.dim")
def _(c: Converter, x: Value, axis: int, keepdim: bool = False) -> list[Value]:
    axis %= max(len(x.spec.shape), 1)
    is_max = "max" in str(c.node.target)
    best = c.emit("max" if is_max else "min", x, axes=(axis,), keepdims=keepdim)
    place = c.emit("argmax", x if is_max else c.emit("neg", x), axis=axis, keepdims=keepdim)
    return [best, place]


@rule("any", "any.dim", "any.dims")
def _(c: Converter, x: Value, axes: Any = None, keepdim: bool = False) -> Value:
    numbers = c.cast(c.cast(x, BOOL), I32)
    chosen = dims(axes, len(x.spec.shape))
    return c.cast(c.emit("max", numbers, axes=chosen, keepdims=keepdim), BOOL)


@rule("isthmus.rms_norm")
def _(c: Converter, x: Value, weight: Value | None, eps: float) -> list[Value]:
    return c.emit_all("rms_norm", _trim(x, weight), eps=eps)


@rule("isthmus.rms_norm_backward")
def _(c: Converter, grad: Value, x: Value, rstd: Value, weight: Value | None) -> list[Value]:
    return c.emit_all("rms_norm_backward", _trim(grad, x, rstd, weight))


@rule("isthmus.cross_entropy")
def _(c: Converter, logits: Value, target: Value, ignore_index: int, reduction: str,
      smoothing: float) -> list[Value]:  # fmt: skip
    return c.emit_all(
        "cross_entropy", (logits, c.cast(target, I64)),
        ignore_index=ignore_index, reduction=reduction, label_smoothing=smoothing,
    )  # fmt: skip


@rule("isthmus.cross_entropy_backward")
def _(c: Converter, grad: Value, logits: Value, target: Value, lse: Value, count: Value,
      ignore_index: int, reduction: str, smoothing: float) -> Value:  # fmt: skip
    return c.emit(
        "cross_entropy_backward", grad, logits, c.cast(target, I64), lse, count,
        ignore_index=ignore_index, reduction=reduction, label_smoothing=smoothing,
    )  # fmt: skip


@rule("var_mean.correction")
def _(
    c: Converter, x: Value, axes: Any = None, *, correction: float = 1, keepdim: bool = False
) -> list[Value]:
    chosen = dims(axes, len(x.spec.shape))
    variance = c.emit("variance", x, axes=chosen, keepdims=keepdim, correction=correction)
    return [variance, c.emit("mean", x, axes=chosen, keepdims=keepdim)]
