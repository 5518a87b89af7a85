"""Graph clean-up: views of views, equal nodes, constants that change nothing, dead nodes."""

from __future__ import annotations

from typing import Any

from isthmus.program.graph import Graph, Node, Value
from isthmus.program.rewrite import remove_dead_nodes

__all__ = ["canonicalise"]


def canonicalise(graph: Graph) -> None:
    """Simplify `graph` in place; results stay the same bit for bit."""
    replaced: dict[Value, Value] = {}
    seen: dict[tuple[Any, ...], Node] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        node.inputs = [None if v is None else replaced.get(v, v) for v in node.inputs]
        _fold_views(node)
        same = _identity(node)
        if same is not None:
            replaced[node.outputs[0]] = same
            continue
        key = _key(node)
        earlier = seen.get(key)
        if earlier is not None:
            replaced.update(zip(node.outputs, earlier.outputs, strict=True))
            continue
        seen[key] = node
        kept.append(node)
    graph.nodes = kept
    graph.outputs = {name: replaced.get(v, v) for name, v in graph.outputs.items()}
    graph.updates = {name: replaced.get(v, v) for name, v in graph.updates.items()}
    remove_dead_nodes(graph)


def _key(node: Node) -> tuple[Any, ...]:
    attrs = tuple(sorted((name, repr(value)) for name, value in node.attrs.items()))
    return node.op, tuple(None if v is None else id(v) for v in node.inputs), attrs


def _fold_views(node: Node) -> None:
    """A reshape of a reshape, or a transpose of a transpose, reads the first source."""
    source = node.inputs[0] if node.inputs else None
    producer = source.producer if source is not None else None
    if producer is None or producer.op != node.op:
        return
    if node.op in ("reshape", "broadcast_to"):
        if node.op == "broadcast_to":
            inner = producer.inputs[0]
            assert inner is not None, "a view has an input"
            if len(inner.spec.shape) != len(producer.attrs["shape"]):
                return
        node.inputs = [producer.inputs[0]]
    elif node.op == "transpose":
        inner_order = producer.attrs["order"]
        node.attrs = {**node.attrs, "order": tuple(inner_order[i] for i in node.attrs["order"])}
        node.inputs = [producer.inputs[0]]


def _identity(node: Node) -> Value | None:
    """The input that a node only repeats, or None."""
    if not node.inputs or node.inputs[0] is None or len(node.outputs) != 1:
        return None
    source = node.inputs[0]
    unchanged = source.spec == node.outputs[0].spec
    if node.op in ("reshape", "broadcast_to", "cast", "slice") and unchanged:
        return source
    if node.op == "transpose" and tuple(node.attrs["order"]) == tuple(
        range(len(source.spec.shape))
    ):
        return source
    if node.op in ("mul", "div") and unchanged:
        other = node.inputs[1]
        producer = other.producer if other is not None else None
        if producer is not None and producer.op == "constant" and producer.attrs["value"] == 1:
            return source
    return None
