"""Views, and operators that move elements without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from isthmus.core.errors import CaptureError
from isthmus.program.capture.aten.common import I64, dims, slice_of
from isthmus.program.capture.convert import Converter, rule
from isthmus.program.graph import Value


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


@rule("as_strided")
def _(c: Converter, x: Value, shape: Sequence[int], strides: Sequence[int],
      offset: int | None = None) -> Value:  # fmt: skip
    given = c.node.args[0].meta["val"]  # type: ignore[union-attr]
    whole = math.prod(shape) == x.spec.size and given.is_contiguous() and not offset
    if not whole or tuple(strides) != _row_major(shape):
        raise CaptureError(
            "as_strided has a counterpart only where it is a reshape",
            hint="use reshape, transpose, slices or unfold",
        )
    return c.reshape(x, shape)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@rule("unsqueeze")
def _(c: Converter, x: Value, axis: int) -> Value:
    shape = list(x.spec.shape)
    shape.insert(axis % (len(shape) + 1), 1)
    return c.reshape(x, shape)


@rule("squeeze", "squeeze.dim", "squeeze.dims")
def _(c: Converter, x: Value, axes: Any = None) -> Value:
    chosen = set(dims(axes, len(x.spec.shape)))
    shape = [s for i, s in enumerate(x.spec.shape) if not (i in chosen and s == 1)]
    return c.reshape(x, shape)


@rule("slice.Tensor")
def _(c: Converter, x: Value, axis: int = 0, start: int | None = None, stop: int | None = None,
      step: int = 1) -> Value:  # fmt: skip
    axis %= len(x.spec.shape)
    begin, end, step = slice(start, stop, step).indices(x.spec.shape[axis])
    return slice_of(c, x, axis, begin, max(begin, end), step)


@rule("select.int")
def _(c: Converter, x: Value, axis: int, index: int) -> Value:
    axis %= len(x.spec.shape)
    index %= x.spec.shape[axis]
    part = slice_of(c, x, axis, index, index + 1)
    return c.reshape(part, x.spec.shape[:axis] + x.spec.shape[axis + 1 :])


def _padded_back(
    c: Converter, grad: Value, shape: Sequence[int], axis: int, start: int, stop: int, step: int
) -> Value:
    """`grad` of a slice, as the gradient of what was sliced: zeros elsewhere."""
    if step != 1:
        grad = _spread(c, grad, axis, step)
        stop = start + grad.spec.shape[axis]
        if stop > shape[axis]:
            grad = slice_of(c, grad, axis, 0, shape[axis] - start)
            stop = shape[axis]
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
    return [slice_of(c, x, axis, at, min(at + size, total)) for at in range(0, total, size)]


@rule("split_with_sizes")
def _(c: Converter, x: Value, sizes: Sequence[int], axis: int = 0) -> list[Value]:
    axis %= len(x.spec.shape)
    parts, at = [], 0
    for size in sizes:
        parts.append(slice_of(c, x, axis, at, at + size))
        at += size
    return parts


@rule("unbind.int")
def _(c: Converter, x: Value, axis: int = 0) -> list[Value]:
    axis %= len(x.spec.shape)
    rest = x.spec.shape[:axis] + x.spec.shape[axis + 1 :]
    return [
        c.reshape(slice_of(c, x, axis, index, index + 1), rest)
        for index in range(x.spec.shape[axis])
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
    for axis in range(rank):
        size = x.spec.shape[axis]
        x = slice_of(c, x, axis, max(-low[axis], 0), size - max(-high[axis], 0))
    low, high = [max(size, 0) for size in low], [max(size, 0) for size in high]
    return c.emit("pad", x, low=tuple(low), high=tuple(high), value=float(value))


@rule(
    "full", "full_like", "zeros", "ones", "zeros_like", "ones_like", "new_zeros", "new_ones",
    "scalar_tensor", "empty_like", "empty_permuted", "empty_strided", "new_empty_strided",
    "empty.memory_format", "new_full", "new_empty",
)  # fmt: skip
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


def _spread(c: Converter, x: Value, axis: int, step: int) -> Value:
    """Elements along an axis with step - 1 zeros after each."""
    shape = x.spec.shape
    x = c.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    high = [0] * len(x.spec.shape)
    high[axis + 1] = step - 1
    x = c.emit("pad", x, low=(0,) * len(high), high=tuple(high), value=0.0)
    return c.reshape(x, (*shape[:axis], shape[axis] * step, *shape[axis + 1 :]))


@rule("slice_scatter")
def _(c: Converter, x: Value, source: Value, axis: int = 0, start: int | None = None,
      stop: int | None = None, step: int = 1) -> Value:  # fmt: skip
    axis %= len(x.spec.shape)
    begin, end, step = slice(start, stop, step).indices(x.spec.shape[axis])
    if step != 1:
        raise CaptureError("writing to a slice with a step has no counterpart")
    return _replaced(c, x, source, axis, begin, max(begin, end))


@rule("select_scatter")
def _(c: Converter, x: Value, source: Value, axis: int, index: int) -> Value:
    axis %= len(x.spec.shape)
    index %= x.spec.shape[axis]
    kept = list(x.spec.shape)
    kept[axis] = 1
    return _replaced(c, x, c.reshape(source, kept), axis, index, index + 1)


def _replaced(c: Converter, x: Value, part: Value, axis: int, start: int, stop: int) -> Value:
    """`x` with one stretch of an axis replaced."""
    shape = (*x.spec.shape[:axis], stop - start, *x.spec.shape[axis + 1 :])
    part = c.broadcast(c.cast(part, x.spec.dtype), shape)
    if shape == x.spec.shape:
        return part
    parts = [slice_of(c, x, axis, 0, start), part, slice_of(c, x, axis, stop, x.spec.shape[axis])]
    return c.emit_all("concat", [p for p in parts if p.spec.shape[axis]], axis=axis)[0]


@rule("repeat")
def _(c: Converter, x: Value, counts: Sequence[int]) -> Value:
    own = (1,) * (len(counts) - len(x.spec.shape)) + x.spec.shape
    apart = c.reshape(x, [part for size in own for part in (1, size)])
    wide = [part for both in zip(counts, own, strict=True) for part in both]
    shape = [count * size for count, size in zip(counts, own, strict=True)]
    return c.reshape(c.broadcast(apart, wide), shape)


@rule("flip")
def _(c: Converter, x: Value, axes: Sequence[int]) -> Value:
    for axis in dims(axes, len(x.spec.shape)):
        size = x.spec.shape[axis]
        order = c.emit("arange", start=size - 1, step=-1, length=size, dtype="i64")
        x = c.emit("index_select", x, order, axis=axis)
    return x


@rule("roll")
def _(c: Converter, x: Value, shifts: Sequence[int], axes: Sequence[int] = ()) -> Value:
    if not axes:
        flat = c.reshape(x, (x.spec.size,))
        return c.reshape(_rolled(c, flat, shifts[0], 0), x.spec.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(c, x, shift, axis % len(x.spec.shape))
    return x


def _rolled(c: Converter, x: Value, shift: int, axis: int) -> Value:
    size = x.spec.shape[axis]
    at = -shift % max(size, 1)
    if at == 0:
        return x
    parts = [slice_of(c, x, axis, at, size), slice_of(c, x, axis, 0, at)]
    return c.emit_all("concat", parts, axis=axis)[0]
