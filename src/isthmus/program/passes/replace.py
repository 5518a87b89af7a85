"""The one way in which passes change a graph: values that stand for other values."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.program.graph import Graph, Node, Value

__all__ = ["replace_values", "uniform_constant"]


def replace_values(graph: Graph, rule: Callable[[Node, list[Node]], list[Value] | None]) -> int:
    """Walk the nodes in order; where `rule` gives values, they replace the node's outputs.

    rule(node, before): `before` takes nodes that go in front of the node; the rule may also
        change the node itself, whose inputs are already replaced.
    Returns how many nodes were replaced.
    """
    replaced: dict[Value, Value] = {}
    kept: list[Node] = []
    removed = 0
    for node in graph.nodes:
        node.inputs = [None if v is None else replaced.get(v, v) for v in node.inputs]
        others = rule(node, kept)
        if others is None:
            kept.append(node)
        else:
            replaced.update(zip(node.outputs, others, strict=True))
            removed += 1
    graph.nodes = kept
    graph.outputs = {name: replaced.get(v, v) for name, v in graph.outputs.items()}
    graph.updates = {name: replaced.get(v, v) for name, v in graph.updates.items()}
    return removed


def uniform_constant(value: Value | None) -> float | bool | None:
    """The number that fills a value made by `constant`, else None."""
    node = value.producer if value is not None else None
    return node.attrs["value"] if node is not None and node.op == "constant" else None
