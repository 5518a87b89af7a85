"""The target-independent passes, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus.core.config import config
from isthmus.core.errors import InternalError
from isthmus.ir.core import Function
from isthmus.ir.printer import print_function
from isthmus.ir.verifier import verify
from isthmus.passes.canonicalise import canonicalise
from isthmus.passes.cse import share_common_subexpressions
from isthmus.passes.dce import remove_dead_code
from isthmus.passes.short_loops import inline_short_loops

__all__ = ["PASSES", "run"]

Pass = Callable[[Function], None]

PASSES: tuple[Pass, ...] = (
    canonicalise,
    inline_short_loops,
    share_common_subexpressions,
    remove_dead_code,
)


def run(function: Function, passes: Sequence[Pass] = PASSES) -> None:
    """Run `passes` over `function`, in place; with ISTHMUS_VERIFY=1 the IR is checked around each.

    Raises: InternalError that names the pass; `ir` is the function before it.
    """
    if not config().verify:
        for step in passes:
            step(function)
        return
    verify(function)
    for step in passes:
        _run_verified(step, function)


def _run_verified(step: Pass, function: Function) -> None:
    name = getattr(step, "__name__", type(step).__name__)
    before = print_function(function)
    try:
        step(function)
        verify(function)
    except (AssertionError, InternalError) as failure:
        after = getattr(failure, "ir", None)
        text = f"before {name}:\n{before}" + (f"\nafter {name}:\n{after}" if after else "")
        raise InternalError(f"pass {name}: {failure}", stage=name, ir=text) from failure
