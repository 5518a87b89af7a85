"""How element-wise nodes see their inputs: literals, repetitions, reshapes, and what lies behind.

A reshape changes no element's place in row-major order, so an element-wise reader can look through
it; a broadcast repeats elements, which an index map does as well. Transposes and slices move
elements: readers cannot look through them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from isthmus.ops.fused import Literal
from isthmus.program.graph import Node, Value
from isthmus.program.nodes import is_view

__all__ = [
    "Link", "Shape", "link_of", "literal_of", "reviewed_shape", "root_of", "unbroadcast", "viewed",
]  # fmt: skip

Shape = tuple[int, ...]


def viewed(node: Node) -> Value:
    """What a view node is a view of."""
    value = node.inputs[0]
    assert value is not None, f"{node.op} has no input"
    return value


def reviewed_shape(shape: Shape, old: Shape, new: Shape) -> Shape | None:
    """`shape`, which broadcasts to `old`, as one that broadcasts to `new` in the same way; `old`
    and `new` hold the same elements in row-major order. None where there is no such shape."""
    size = math.prod(shape)
    if size == 1:
        return ()
    if old == new:
        return shape
    if size == math.prod(old):
        return new
    shape = (1,) * (len(old) - len(shape)) + shape
    common = 0
    while common < min(len(old), len(new)) and old[-1 - common] == new[-1 - common]:
        common += 1
    lead, old_lead = shape[: len(old) - common], old[: len(old) - common]
    rest = shape[len(old) - common :]
    if all(extent == 1 for extent in lead):
        return rest
    if lead == old_lead:
        return new[: len(new) - common] + rest
    return None


def literal_of(value: Value) -> Literal | None:
    """The number that a constant is filled with."""
    node = value.producer
    while node is not None and node.op in ("broadcast_to", "reshape"):
        value = viewed(node)
        node = value.producer
    if node is None or node.op != "constant":
        return None
    return Literal(node.attrs["value"], value.spec.dtype)


def unbroadcast(value: Value) -> Value:
    """What `value` repeats, if it is only a repetition."""
    while value.producer is not None and value.producer.op == "broadcast_to":
        value = viewed(value.producer)
    return value


@dataclass(frozen=True, slots=True)
class Link:
    """An element-wise producer seen through reshapes and broadcasts; `shape` is that before
    the broadcast, `value` what the producer made."""

    value: Value
    shape: Shape


def link_of(value: Value) -> Link | None:
    """The element-wise result that `value` holds element by element; None for anything else."""
    inner = unbroadcast(value)
    shape = inner.spec.shape
    while inner.producer is not None and inner.producer.op == "reshape":
        inner = viewed(inner.producer)
    if inner.producer is None or is_view(inner.producer):
        return None
    return Link(inner, shape)


def root_of(value: Value) -> Node | None:
    """The node that computes what `value` is a view of."""
    node = value.producer
    while node is not None and is_view(node):
        node = viewed(node).producer
    return node
