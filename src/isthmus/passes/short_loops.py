"""Loops that run at most once become straight-line code.

`for start in range(0, N, BLOCK)` with N <= BLOCK known is how kernels are written for any size;
without the loop, its body fuses with what comes before and after.
"""

from __future__ import annotations

from isthmus.ir.core import Function, Operation, Region, Value

__all__ = ["inline_short_loops"]


def inline_short_loops(function: Function) -> None:
    """Replace `scf.for` with constant bounds and no or one iteration, innermost first."""
    _visit(function.body)


def _visit(region: Region) -> None:
    for op in list(region.ops):
        for inner in op.regions:
            _visit(inner)
        if op.name == "scf.for":
            trips = _trip_count(op)
            if trips is not None and trips <= 1:
                _inline(op, region, runs=trips == 1)


def _trip_count(op: Operation) -> int | None:
    lower, upper, step = (_number(operand) for operand in op.operands[:3])
    if lower is None or upper is None or step is None or step <= 0:
        return None
    return max(0, -(-(upper - lower) // step))


def _number(value: Value) -> int | None:
    op = value.defining_op
    return op.attrs["value"] if op is not None and op.name == "arith.constant" else None


def _inline(op: Operation, region: Region, *, runs: bool) -> None:
    body = op.regions[0]
    results = op.operands[3:]
    if runs:
        for argument, value in zip(body.args, (op.operands[0], *op.operands[3:]), strict=True):
            argument.replace_by(value)
        *inner, terminator = body.ops
        results = list(terminator.operands)
        terminator.drop_uses()
        body.ops = []
        position = region.ops.index(op)
        for moved in inner:
            moved.parent = region
        region.ops[position:position] = inner
    for result, value in zip(op.results, results, strict=True):
        result.replace_by(value)
    op.erase()
