"""The passes that every captured graph goes through, in order."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.program.graph import Graph
from isthmus.program.passes.constants import fold_constants
from isthmus.program.passes.cse import share_equal_nodes
from isthmus.program.passes.dce import remove_dead_code
from isthmus.program.passes.views import fold_views, remove_broadcasts

__all__ = ["PASSES", "pipeline"]

PASSES: tuple[Callable[[Graph], int], ...] = (
    fold_constants,
    fold_views,
    remove_broadcasts,
    share_equal_nodes,
    remove_dead_code,
)


def pipeline(graph: Graph) -> None:
    """Simplify `graph` in place, until no pass finds anything more to do."""
    while sum(simplify(graph) for simplify in PASSES):
        pass
