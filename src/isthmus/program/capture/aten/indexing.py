"""Embedding, gather, scatter, and indexing with tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.core.errors import CaptureError
from isthmus.program.capture.aten.common import BOOL, I64
from isthmus.program.capture.convert import Converter, rule
from isthmus.program.graph import Value


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


@rule("scatter.src")
def _(c: Converter, x: Value, axis: int, index: Value, source: Value) -> Value:
    axis %= len(x.spec.shape)
    if not _is_zero(x) or index.spec.shape[axis] != 1:
        raise CaptureError("scatter that may write one place twice has no counterpart")
    return c.emit("scatter_add", x, index, c.cast(source, x.spec.dtype), axis=axis)


@rule("index.Tensor")
def _(c: Converter, x: Value, indices: Sequence[Value | None]) -> Value:
    first, places, shape = _places(c, x, indices)
    before, after = x.spec.shape[:first], x.spec.shape[first + _count(indices) :]
    rows = math.prod(x.spec.shape[first : first + _count(indices)])
    picked = c.emit("index_select", c.reshape(x, (*before, rows, *after)), places, axis=first)
    return c.reshape(picked, (*before, *shape, *after))


@rule("index_put", "_unsafe_index_put")
def _(c: Converter, x: Value, indices: Sequence[Value | None], source: Value,
      accumulate: bool = False) -> Value:  # fmt: skip
    given = [index for index in indices if index is not None]
    if len(given) == 1 and given[0].spec.dtype == BOOL and indices[0] is given[0]:
        return _put_masked(c, x, given[0], source, accumulate)
    if not accumulate:
        raise CaptureError(
            "writing through index tensors has no counterpart",
            hint="use torch.where, or scatter_add",
        )
    first, places, shape = _places(c, x, indices)
    if first != 0:
        raise CaptureError("the gradient of indexing after the first axes has no counterpart")
    rest = x.spec.shape[_count(indices) :]
    rows, width = math.prod(x.spec.shape[: _count(indices)]), math.prod(rest)
    source = c.broadcast(c.cast(source, x.spec.dtype), (*shape, *rest))
    source = c.reshape(source, (places.spec.size, width))
    total = c.emit("embedding_backward", source, places, rows=rows, padding_idx=-1)
    total = c.reshape(total, x.spec.shape)
    return total if _is_zero(x) else c.emit("add", x, total)


def _put_masked(c: Converter, x: Value, mask: Value, source: Value, accumulate: bool) -> Value:
    """One number written wherever a mask is set."""
    if accumulate or source.spec.size != 1:
        raise CaptureError("writing several values through a mask has no counterpart")
    rest = len(x.spec.shape) - len(mask.spec.shape)
    mask = c.reshape(mask, (*mask.spec.shape, *[1] * rest))
    return c.emit("where", mask, c.cast(c.reshape(source, ()), x.spec.dtype), x)


def _count(indices: Sequence[Value | None]) -> int:
    return sum(index is not None for index in indices)


def _is_zero(value: Value) -> bool:
    producer = value.producer
    while producer is not None and producer.op in ("broadcast_to", "reshape", "cast"):
        producer = producer.inputs[0].producer if producer.inputs[0] is not None else None
    return producer is not None and producer.op == "constant" and producer.attrs["value"] == 0


def _places(
    c: Converter, x: Value, indices: Sequence[Value | None]
) -> tuple[int, Value, tuple[int, ...]]:
    """(first indexed axis, flat places along the indexed axes joined, shape of the index).

    Negative indices count from the end, as in PyTorch.
    Raises: CaptureError for masks, and for index tensors apart from one another.
    """
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    first = given[0][0]
    if any(index.spec.dtype == BOOL for _, index in given):
        raise CaptureError(
            "a result whose shape depends on a mask has no counterpart", hint="use torch.where"
        )
    if [axis for axis, _ in given] != list(range(first, first + len(given))):
        raise CaptureError("indexing of axes apart from one another has no counterpart")
    shape = np.broadcast_shapes(*(index.spec.shape for _, index in given))
    places: Value | None = None
    for axis, index in given:
        size = c.constant(x.spec.shape[axis], I64)
        place = c.broadcast(c.cast(index, I64), shape)
        if not _counts_up(place):
            below = c.emit("lt", place, c.constant(0, I64))
            place = c.emit("where", below, c.emit("add", place, size), place)
        places = place if places is None else c.emit("add", c.emit("mul", places, size), place)
    assert places is not None, "an index operation has an index"
    return first, c.reshape(places, (math.prod(shape),)), tuple(shape)


def _counts_up(index: Value) -> bool:
    """Whether an index comes straight from arange, so that it is not negative."""
    producer = index.producer
    while producer is not None and producer.op in ("broadcast_to", "reshape"):
        producer = producer.inputs[0].producer if producer.inputs[0] is not None else None
    return (
        producer is not None and producer.op == "arange"
        and producer.attrs["start"] >= 0 and producer.attrs["step"] > 0
    )  # fmt: skip
