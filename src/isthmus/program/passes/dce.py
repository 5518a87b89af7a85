"""Dead code: nodes that no output and no update needs."""

from __future__ import annotations

from isthmus.program.graph import Graph
from isthmus.program.rewrite import remove_dead_nodes

__all__ = ["remove_dead_code"]


def remove_dead_code(graph: Graph) -> int:
    """Remove nodes without effect; returns how many."""
    before = len(graph.nodes)
    remove_dead_nodes(graph)
    return before - len(graph.nodes)
