"""Views: views of views, views and casts without effect, broadcasts that operators do anyway."""

from __future__ import annotations

import numpy as np

from isthmus.core.dtypes import DType
from isthmus.ops.standard import TensorSpec, operator
from isthmus.program.graph import Graph, Node, Value
from isthmus.program.passes.replace import replace_values, uniform_constant

__all__ = ["fold_views", "remove_broadcasts"]

#: Each dtype holds all numbers of those before it.
_WIDENING = (
    ("bf16", "f32", "f64"), ("f16", "f32", "f64"), ("i8", "i16", "i32", "i64"),
    ("u8", "i16", "i32", "i64"), ("bool", "i32", "i64"), ("bool", "f32", "f64"),
)  # fmt: skip


def fold_views(graph: Graph) -> int:
    """Make views read the first source, and drop those that change nothing."""
    return replace_values(graph, _fold)


def _fold(node: Node, _before: list[Node]) -> list[Value] | None:
    source = node.inputs[0] if node.inputs else None
    if source is None or len(node.outputs) != 1:
        return None
    if source.producer is not None and source.producer.op == node.op:
        source = _joined(node, source.producer) or source
    unchanged = source.spec == node.outputs[0].spec
    if node.op in ("reshape", "broadcast_to", "cast") and unchanged:
        return [source]
    if node.op == "slice" and unchanged and node.attrs["step"] == 1:
        return [source]
    if node.op == "transpose" and list(node.attrs["order"]) == sorted(node.attrs["order"]):
        return [source]
    return None


def _joined(node: Node, inner: Node) -> Value | None:
    """Let a view of a view of the same kind read what the inner one reads, if it can."""
    source = inner.inputs[0]
    if node.op == "transpose":
        order = inner.attrs["order"]
        node.attrs = {**node.attrs, "order": tuple(order[axis] for axis in node.attrs["order"])}
    elif node.op == "slice" and node.attrs["axis"] == inner.attrs["axis"]:
        begin, step = inner.attrs["start"], inner.attrs["step"]
        node.attrs = {
            **node.attrs,
            "start": begin + node.attrs["start"] * step,
            "stop": min(begin + node.attrs["stop"] * step, inner.attrs["stop"]),
            "step": step * node.attrs["step"],
        }
    elif node.op == "cast":
        if source is None or not _holds(inner.outputs[0].spec.dtype, source.spec.dtype):
            return None
    elif node.op not in ("reshape", "broadcast_to"):
        return None
    node.inputs = [source]
    return source


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of `narrow` is one of `wide`, so that a cast through it is exact."""
    return any(
        narrow.name in row and wide.name in row and row.index(narrow.name) < row.index(wide.name)
        for row in _WIDENING
    )


def remove_broadcasts(graph: Graph) -> int:
    """Let element-wise operators broadcast by themselves; returns how many inputs changed."""
    changed = 0
    kept: list[Node] = []
    for node in graph.nodes:
        if operator(node.op).is_pointwise:
            for position, value in enumerate(node.inputs):
                smaller, made = _before_broadcast(value)
                if smaller is None:
                    continue
                shapes = [v.spec.shape for v in node.inputs if v is not None]
                shapes[position] = smaller.spec.shape
                if np.broadcast_shapes(*shapes) == node.outputs[0].spec.shape:
                    kept += made
                    node.inputs[position] = smaller
                    changed += 1
        kept.append(node)
    graph.nodes = kept
    return changed


def _before_broadcast(value: Value | None) -> tuple[Value | None, list[Node]]:
    """(the smaller value that a broadcast repeats, the nodes that must be made for it).

    For a constant with a shape that is a new constant without.
    """
    node = value.producer if value is not None else None
    if value is None or node is None:
        return None, []
    if node.op == "broadcast_to":
        return node.inputs[0], []
    if uniform_constant(value) is None or not value.spec.shape:
        return None, []
    made = Node("constant", [], [], {**node.attrs, "shape": ()}, node.source)
    made.outputs.append(Value(f"{value.name}.one", TensorSpec((), value.spec.dtype), made))
    return made.outputs[0], [made]
