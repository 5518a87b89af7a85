"""The target-independent passes, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus.ir.core import Function
from isthmus.passes.cse import share_common_subexpressions
from isthmus.passes.dce import remove_dead_code
from isthmus.passes.short_loops import inline_short_loops

__all__ = ["PASSES", "run"]

Pass = Callable[[Function], None]

PASSES: tuple[Pass, ...] = (
    inline_short_loops,
    share_common_subexpressions,
    remove_dead_code,
)


def run(function: Function, passes: Sequence[Pass] = PASSES) -> None:
    """Run `passes` over `function`, in place."""
    for step in passes:
        step(function)
