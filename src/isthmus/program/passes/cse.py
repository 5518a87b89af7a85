"""Common subexpressions: equal operators of equal inputs and attributes are computed once."""

from __future__ import annotations

from typing import Any

from isthmus.program.graph import Graph, Node, Value
from isthmus.program.passes.replace import replace_values

__all__ = ["share_equal_nodes"]


def share_equal_nodes(graph: Graph) -> int:
    """Keep the first of equal nodes; returns how many were removed.

    Random operators are functions of their key and stream, so equal ones are shared as well.
    """
    seen: dict[tuple[Any, ...], Node] = {}

    def share(node: Node, _before: list[Node]) -> list[Value] | None:
        first = seen.setdefault(_key(node), node)
        return None if first is node else first.outputs

    return replace_values(graph, share)


def _key(node: Node) -> tuple[Any, ...]:
    # repr tells 0.0 from -0.0 and finds NaN equal to NaN.
    attrs = tuple(sorted((name, repr(value)) for name, value in node.attrs.items()))
    return node.op, tuple(None if v is None else id(v) for v in node.inputs), attrs
