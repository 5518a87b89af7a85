"""ATen operators as standard operators: one short rule each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from isthmus.core.dtypes import DType, dtype_named
from isthmus.core.errors import CaptureError
from isthmus.program.capture.convert import Converter, NllGradient, dtype_of, rule
from isthmus.program.graph import Value

I64, BOOL = dtype_named("i64"), dtype_named("bool")


def _dims(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    if axes is None or axes == []:
        return tuple(range(rank))
    items = [axes] if isinstance(axes, int) else list(axes)
    return tuple(sorted(axis % max(rank, 1) for axis in items)) if rank else ()


def _pair(c: Converter, a: Any, b: Any, dtype: DType) -> tuple[Value, Value]:
    """Two operands, numbers included, in one dtype."""
    if isinstance(a, NllGradient) or isinstance(b, NllGradient):
        raise CaptureError(
            "a loss with label smoothing or class weights has no counterpart",
            hint="use torch.nn.functional.cross_entropy without label_smoothing and weight",
        )
    values = [
        c.cast(item, dtype) if isinstance(item, Value) else c.constant(item, dtype)
        for item in (a, b)
    ]
    return values[0], values[1]


def _promoted(a: Any, b: Any) -> DType:
    """The dtype in which PyTorch combines two operands."""

    def sample(item: Any) -> Any:
        if not isinstance(item, Value):
            return item
        name = {"bool": torch.bool, "f32": torch.float32, "f64": torch.float64,
                "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8,
                "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
                "u8": torch.uint8}[item.spec.dtype.name]  # fmt: skip
        return torch.empty(
            item.spec.shape if not item.spec.shape else (1,) * len(item.spec.shape), dtype=name
        )

    return dtype_of(torch.result_type(sample(a), sample(b)))


# Element-wise


def _binary(name: str) -> Any:
    def convert(c: Converter, a: Any, b: Any, *, alpha: float = 1, **_: Any) -> Value:
        dtype = c.output_dtype()
        left, right = _pair(c, a, b, dtype)
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
    return c.emit("pow", *_pair(c, base, exponent, dtype))


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
    left, right = _pair(c, a, b, dtype)
    if rounding_mode is None:
        return c.emit("div", left, right)
    if rounding_mode == "floor":
        return c.emit("floor_divide", left, right)
    raise CaptureError(f"div with rounding_mode {rounding_mode!r} has no counterpart")


@rule("rsub.Tensor", "rsub.Scalar")
def _(c: Converter, a: Value, b: Any, alpha: float = 1) -> Value:
    dtype = c.output_dtype()
    left, right = _pair(c, a, b, dtype)
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


@rule("expm1")
def _(c: Converter, x: Value) -> Value:
    return c.emit("sub", c.emit("exp", x), c.constant(1.0, x.spec.dtype))


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
        return c.emit(_name, *_pair(c, a, b, _promoted(a, b)))

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
        return c.emit(name, *_pair(c, a, b, BOOL))

    return convert


rule("logical_and", "bitwise_and.Tensor")(_logical("logical_and"))
rule("logical_or", "bitwise_or.Tensor")(_logical("logical_or"))


@rule("where.self", "where.ScalarOther", "where.ScalarSelf")
def _(c: Converter, condition: Value, a: Any, b: Any) -> Value:
    return c.emit("where", condition, *_pair(c, a, b, c.output_dtype()))


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


@rule("_assert_tensor_metadata", "profiler._record_function_enter_new",
      "profiler._record_function_exit._RecordFunction")  # fmt: skip
def _(_c: Converter, *_: Any, **__: Any) -> None:
    return None


# Views


@rule("view", "_unsafe_view", "reshape", "view_copy")
def _(c: Converter, x: Value, shape: Sequence[int]) -> Value:
    sizes = list(shape)
    if -1 in sizes:
        known = 1
        for size in sizes:
            known *= size if size != -1 else 1
        sizes[sizes.index(-1)] = x.spec.size // max(known, 1)
    return c.reshape(x, sizes)


@rule("t")
def _(c: Converter, x: Value) -> Value:
    return x if len(x.spec.shape) < 2 else c.emit("transpose", x, order=(1, 0))


@rule("transpose.int")
def _(c: Converter, x: Value, first: int, second: int) -> Value:
    order = list(range(len(x.spec.shape)))
    order[first], order[second] = order[second], order[first]
    return c.emit("transpose", x, order=tuple(order))


@rule("permute")
def _(c: Converter, x: Value, order: Sequence[int]) -> Value:
    rank = len(x.spec.shape)
    return c.emit("transpose", x, order=tuple(axis % rank for axis in order))


@rule("expand")
def _(c: Converter, x: Value, shape: Sequence[int], **_: Any) -> Value:
    own = x.spec.shape
    padded = (1,) * (len(shape) - len(own)) + own
    sizes = [have if want == -1 else want for have, want in zip(padded, shape, strict=True)]
    return c.broadcast(x, sizes)


@rule("unsqueeze")
def _(c: Converter, x: Value, axis: int) -> Value:
    shape = list(x.spec.shape)
    shape.insert(axis % (len(shape) + 1), 1)
    return c.reshape(x, shape)


@rule("squeeze", "squeeze.dim", "squeeze.dims")
def _(c: Converter, x: Value, axes: Any = None) -> Value:
    chosen = set(_dims(axes, len(x.spec.shape)))
    shape = [s for i, s in enumerate(x.spec.shape) if not (i in chosen and s == 1)]
    return c.reshape(x, shape)


def _slice(c: Converter, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    if start == 0 and stop == x.spec.shape[axis] and step == 1:
        return x
    return c.emit("slice", x, axis=axis, start=start, stop=stop, step=step)


@rule("slice.Tensor")
def _(c: Converter, x: Value, axis: int = 0, start: int | None = None, stop: int | None = None,
      step: int = 1) -> Value:  # fmt: skip
    axis %= len(x.spec.shape)
    begin, end, step = slice(start, stop, step).indices(x.spec.shape[axis])
    return _slice(c, x, axis, begin, max(begin, end), step)


@rule("select.int")
def _(c: Converter, x: Value, axis: int, index: int) -> Value:
    axis %= len(x.spec.shape)
    index %= x.spec.shape[axis]
    part = _slice(c, x, axis, index, index + 1)
    return c.reshape(part, x.spec.shape[:axis] + x.spec.shape[axis + 1 :])


def _padded_back(
    c: Converter, grad: Value, shape: Sequence[int], axis: int, start: int, stop: int, step: int
) -> Value:
    """`grad` of a slice, as the gradient of what was sliced: zeros elsewhere."""
    if step != 1:
        raise CaptureError("the gradient of a slice with a step has no counterpart")
    low, high = [0] * len(shape), [0] * len(shape)
    low[axis], high[axis] = start, shape[axis] - stop
    if not any(low) and not any(high):
        return grad
    return c.emit("pad", grad, low=tuple(low), high=tuple(high), value=0.0)


@rule("slice_backward")
def _(c: Converter, grad: Value, shape: Sequence[int], axis: int, start: int, stop: int,
      step: int) -> Value:  # fmt: skip
    begin, end, step = slice(start, stop, step).indices(shape[axis])
    return _padded_back(c, grad, shape, axis, begin, end, step)


@rule("select_backward")
def _(c: Converter, grad: Value, shape: Sequence[int], axis: int, index: int) -> Value:
    axis %= len(shape)
    index %= shape[axis]
    kept = list(shape)
    kept[axis] = 1
    return _padded_back(c, c.reshape(grad, kept), shape, axis, index, index + 1, 1)


@rule("split.Tensor")
def _(c: Converter, x: Value, size: int, axis: int = 0) -> list[Value]:
    axis %= len(x.spec.shape)
    total = x.spec.shape[axis]
    return [_slice(c, x, axis, at, min(at + size, total)) for at in range(0, total, size)]


@rule("split_with_sizes")
def _(c: Converter, x: Value, sizes: Sequence[int], axis: int = 0) -> list[Value]:
    axis %= len(x.spec.shape)
    parts, at = [], 0
    for size in sizes:
        parts.append(_slice(c, x, axis, at, at + size))
        at += size
    return parts


@rule("unbind.int")
def _(c: Converter, x: Value, axis: int = 0) -> list[Value]:
    axis %= len(x.spec.shape)
    rest = x.spec.shape[:axis] + x.spec.shape[axis + 1 :]
    return [
        c.reshape(_slice(c, x, axis, index, index + 1), rest) for index in range(x.spec.shape[axis])
    ]


@rule("cat")
def _(c: Converter, parts: Sequence[Value], axis: int = 0) -> Value:
    dtype = c.output_dtype()
    kept = [c.cast(part, dtype) for part in parts if part.spec.shape != (0,)]
    return c.emit_all("concat", kept, axis=axis % len(kept[0].spec.shape))[0]


@rule("stack")
def _(c: Converter, parts: Sequence[Value], axis: int = 0) -> Value:
    rank = len(parts[0].spec.shape) + 1
    axis %= rank
    shaped = []
    for part in parts:
        shape = list(part.spec.shape)
        shape.insert(axis, 1)
        shaped.append(c.reshape(part, shape))
    return c.emit_all("concat", shaped, axis=axis)[0]


@rule("constant_pad_nd")
def _(c: Converter, x: Value, padding: Sequence[int], value: float = 0.0) -> Value:
    rank = len(x.spec.shape)
    low, high = [0] * rank, [0] * rank
    for pair in range(len(padding) // 2):
        low[rank - 1 - pair], high[rank - 1 - pair] = padding[2 * pair], padding[2 * pair + 1]
    if min(low + high) < 0:
        raise CaptureError("padding below 0 has no counterpart; use a slice")
    return c.emit("pad", x, low=tuple(low), high=tuple(high), value=float(value))


# Making tensors


@rule("full", "full_like", "zeros", "ones", "zeros_like", "ones_like", "new_zeros", "new_ones",
      "scalar_tensor", "empty_like", "empty.memory_format", "new_full", "new_empty")  # fmt: skip
def _(c: Converter, *args: Any, **_: Any) -> Value:
    name = str(c.node.target)
    tensor = c.node.meta["val"]
    value: Any = 1 if "ones" in name else 0
    if "full" in name:
        value = args[-1]
    elif "scalar_tensor" in name:
        value = args[0]
    if isinstance(value, Value):
        return c.broadcast(c.cast(value, c.output_dtype()), tuple(tensor.shape))
    return c.constant(value, c.output_dtype(), tuple(tensor.shape))


@rule("arange.start_step", "arange.start", "arange")
def _(c: Converter, *numbers: Any, **_: Any) -> Value:
    start, step = 0, 1
    if len(numbers) >= 2:
        start = numbers[0]
    if len(numbers) == 3:
        step = numbers[2]
    length = c.node.meta["val"].shape[0]
    return c.emit("arange", start=start, step=step, length=length, dtype=c.output_dtype().name)


@rule("tril", "triu")
def _(c: Converter, x: Value, diagonal: int = 0) -> Value:
    rows, columns = x.spec.shape[-2:]
    row = c.reshape(c.emit("arange", length=rows), (rows, 1))
    column = c.reshape(c.emit("arange", length=columns), (1, columns))
    edge = c.emit("add", row, c.constant(diagonal, I64))
    inside = c.emit("le" if "tril" in str(c.node.target) else "ge", column, edge)
    return c.emit("where", inside, x, c.constant(0, x.spec.dtype))


# Reductions


def _reduction(name: str) -> Any:
    def convert(c: Converter, x: Value, axes: Any = None, keepdim: bool = False, **_: Any) -> Value:
        dims = _dims(axes, len(x.spec.shape))
        return c.emit(name, c.cast(x, c.output_dtype()), axes=dims, keepdims=keepdim)

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
    dims = _dims(axes, len(x.spec.shape))
    return c.emit("variance", x, axes=dims, keepdims=keepdim, correction=correction)


@rule("argmax")
def _(c: Converter, x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
    if axis is None:
        return c.emit("argmax", c.reshape(x, (x.spec.size,)), axis=0, keepdims=False)
    return c.emit("argmax", x, axis=axis % len(x.spec.shape), keepdims=keepdim)


@rule("cumsum")
def _(c: Converter, x: Value, axis: int, **_: Any) -> Value:
    return c.emit("cumsum", c.cast(x, c.output_dtype()), axis=axis % len(x.spec.shape))


# Products


@rule("mm", "bmm")
def _(c: Converter, a: Value, b: Value) -> Value:
    return c.emit("matmul", a, b)


@rule("addmm", "baddbmm")
def _(c: Converter, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    if beta == 1 and alpha == 1 and bias.spec.shape == (b.spec.shape[-1],):
        return c.emit("matmul", a, b, bias)
    product = c.emit("matmul", a, b)
    dtype = product.spec.dtype
    if alpha != 1:
        product = c.emit("mul", product, c.constant(alpha, dtype))
    if beta == 0:
        return product
    if beta != 1:
        bias = c.emit("mul", bias, c.constant(beta, dtype))
    return c.emit("add", product, bias)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _(c: Converter, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False, *,
      attn_mask: Any = None, scale: float | None = None) -> list[Value]:  # fmt: skip
    if dropout:
        raise CaptureError("dropout inside attention has no counterpart", hint="use dropout_p=0.0")
    if attn_mask is not None:
        raise CaptureError(
            "attention with a mask tensor has no counterpart", hint="use is_causal=True, or no mask"
        )
    return c.emit_all("attention", (q, k, v), causal=causal, scale=scale)


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def _(c: Converter, grad: Value, q: Value, k: Value, v: Value, out: Value, lse: Value,
      _dropout: float, causal: bool, *, attn_mask: Any = None,
      scale: float | None = None) -> list[Value]:  # fmt: skip
    return c.emit_all("attention_backward", (grad, q, k, v, out, lse), causal=causal, scale=scale)


# Normalisation, softmax, losses


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


# Indexing


@rule("embedding")
def _(c: Converter, weight: Value, index: Value, *_: Any) -> Value:
    return c.emit("embedding", weight, c.cast(index, I64))


@rule("embedding_dense_backward")
def _(c: Converter, grad: Value, index: Value, rows: int, padding: int, scale: bool) -> Value:
    if scale:
        raise CaptureError("embedding with scale_grad_by_freq has no counterpart")
    return c.emit("embedding_backward", grad, c.cast(index, I64), rows=rows, padding_idx=padding)


@rule("gather")
def _(c: Converter, x: Value, axis: int, index: Value, **_: Any) -> Value:
    return c.emit("gather", x, index, axis=axis % len(x.spec.shape))


@rule("scatter_add")
def _(c: Converter, x: Value, axis: int, index: Value, source: Value) -> Value:
    return c.emit("scatter_add", x, index, source, axis=axis % len(x.spec.shape))


@rule("index_select")
def _(c: Converter, x: Value, axis: int, index: Value) -> Value:
    return c.emit("index_select", x, index, axis=axis % len(x.spec.shape))


@rule("index.Tensor")
def _(c: Converter, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].spec.dtype == BOOL:
        raise CaptureError(
            "indexing with several tensors or a mask has no counterpart",
            hint="use torch.gather, index_select or torch.where",
        )
    axis, index = given[0]
    flat = c.reshape(c.cast(index, I64), (index.spec.size,))
    picked = c.emit("index_select", x, flat, axis=axis)
    shape = x.spec.shape[:axis] + index.spec.shape + x.spec.shape[axis + 1 :]
    return c.reshape(picked, shape)


# Random numbers


def _stream(c: Converter) -> int:
    c.streams += 1
    return c.streams


@rule("native_dropout")
def _(c: Converter, x: Value, p: float, train: bool | None) -> list[Value]:
    if train is False or p == 0:
        return [x, c.constant(True, BOOL, x.spec.shape)]
    stream = _stream(c)
    c.dropouts.append(stream)
    return c.emit_all("dropout", (x, c.key), p=p, stream=stream)


@rule("native_dropout_backward")
def _(c: Converter, grad: Value, mask: Value, scale: float) -> Value:
    kept = c.emit("mul", grad, c.cast(mask, grad.spec.dtype))
    return c.emit("mul", kept, c.constant(scale, grad.spec.dtype))


@rule("rand", "rand_like")
def _(c: Converter, *_: Any, **__: Any) -> Value:
    shape = tuple(c.node.meta["val"].shape)
    return c.emit("uniform", c.key, shape=shape, dtype=c.output_dtype().name, stream=_stream(c))


@rule("randn", "randn_like")
def _(c: Converter, *_: Any, **__: Any) -> Value:
    shape = tuple(c.node.meta["val"].shape)
    return c.emit("normal", c.key, shape=shape, dtype=c.output_dtype().name, stream=_stream(c))


# Optimizers: these write in place, so the places that held the old values get the new ones


def _rebind(c: Converter, position: int, values: Sequence[Value]) -> None:
    nodes = c.node.args[position]
    assert isinstance(nodes, (list, tuple))
    for node, value in zip(nodes, values, strict=True):
        c.env[node] = value  # type: ignore[index]


@rule("_foreach_add_.Scalar")
def _(c: Converter, values: Sequence[Value], number: float) -> None:
    _rebind(c, 0, [c.emit("add", v, c.constant(number, v.spec.dtype)) for v in values])


@rule("_fused_adamw_.tensor_lr", "_fused_adam_.tensor_lr")
def _(c: Converter, params: list[Value], grads: list[Value], m: list[Value], v: list[Value],
      _max: list[Value], steps: list[Value], *, lr: Value, beta1: float, beta2: float,
      weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
      **_: Any) -> None:  # fmt: skip
    if amsgrad:
        raise CaptureError("amsgrad has no counterpart in the standard")
    results = [
        c.emit_all(
            "adamw", (*group, lr), beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            maximize=maximize, decoupled="adamw" in str(c.node.target),
        )
        for group in zip(params, grads, m, v, steps, strict=True)
    ]  # fmt: skip
    for position, output in ((0, 0), (2, 1), (3, 2)):
        _rebind(c, position, [result[output] for result in results])


@rule("_fused_sgd_.tensor_lr")
def _(c: Converter, params: list[Value], grads: list[Value], momenta: list[Value], *,
      weight_decay: float, momentum: float, lr: Value, dampening: float, nesterov: bool,
      maximize: bool, is_first_step: bool, **_: Any) -> None:  # fmt: skip
    for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
        buffer = momenta[index] if momenta else None
        result = c.emit_all(
            "sgd", (param, grad, buffer, lr), momentum=momentum, dampening=dampening,
            weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
        )  # fmt: skip
        c.env[c.node.args[0][index]] = result[0]  # type: ignore[index]
        if buffer is not None:
            c.env[c.node.args[2][index]] = result[1]  # type: ignore[index]
