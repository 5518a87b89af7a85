"""Common subexpressions: equal pure operations are done once, in the outermost region of them."""

from __future__ import annotations

from typing import Any

from isthmus.ir.core import Function, Operation, Region
from isthmus.ir.optable import op_def

__all__ = ["share_common_subexpressions"]


def share_common_subexpressions(function: Function) -> None:
    """Replace each pure operation by an equal earlier one that is visible from its place."""
    _share(function.body, {})


def _key(op: Operation) -> tuple[Any, ...]:
    attrs = tuple(sorted((name, repr(value)) for name, value in op.attrs.items()))
    operands = [id(operand) for operand in op.operands]
    if "commutative" in op_def(op.name).traits:
        operands.sort()
    return op.name, tuple(operands), attrs, tuple(result.type for result in op.results)


def _share(region: Region, outer: dict[tuple[Any, ...], Operation]) -> None:
    known = dict(outer)
    for op in list(region.ops):
        if op_def(op.name).is_pure and not op.regions:
            key = _key(op)
            earlier = known.get(key)
            if earlier is not None:
                for old, new in zip(op.results, earlier.results, strict=True):
                    old.replace_by(new)
                op.erase()
                continue
            known[key] = op
        for inner in op.regions:
            _share(inner, known)
