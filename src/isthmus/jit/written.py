"""Which arguments a kernel writes to."""

from __future__ import annotations

from isthmus.ir.core import Function, Operation, Value
from isthmus.ir.optable import op_def
from isthmus.ir.types import is_pointer

__all__ = ["written_arguments"]


def written_arguments(function: Function) -> set[int]:
    """Numbers of the pointer arguments that a store or atomic operation may write through.

    Where a pointer cannot be traced to an argument, all pointer arguments are given.
    """
    pointers = {number for number, arg in enumerate(function.args) if is_pointer(arg.type)}
    seen: set[int] = set()
    written: set[int] = set()
    pending = [
        op.operands[0] for op in function.walk() if "writes" in op_def(op.name).traits
    ]  # fmt: skip
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if value.owner is function.body:
            written.add(value.index)
            continue
        sources = _sources(value)
        if not sources:
            return pointers
        pending += sources
    return written & pointers


def _sources(value: Value) -> list[Value]:
    """The pointers that `value` may come from; loops and branches give all that they carry."""
    op = value.owner if isinstance(value.owner, Operation) else value.owner.owner
    if not isinstance(op, Operation):
        return []
    values = list(op.operands)
    for region in op.regions:
        values += region.terminator.operands
    return [source for source in values if is_pointer(source.type)]
