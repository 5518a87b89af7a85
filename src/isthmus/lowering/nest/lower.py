"""Entry point: one tile function to one nest function with the kernel ABI."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Region, Value
from isthmus.ir.types import I1, I8, I32, I64, PointerType, Type
from isthmus.lowering.nest.context import Context
from isthmus.lowering.nest.control import Control

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__ = ["LoweredKernel", "lower"]

#: Python frames allowed: expressions are walked recursively, and unrolled kernels are deep.
_DEEPEST = 100_000


@dataclass(slots=True)
class LoweredKernel:
    """A nest function, the scratch it needs per thread, and what the lowering did.

    notes: "nests", "products": how many were made; "ignored": operations without effect here.
    """

    function: Function
    scratch_bytes: int
    notes: dict[str, Any] = field(default_factory=dict)


def lower(fn: Function, target: TargetDescription) -> LoweredKernel:
    """Lower a tile function to loop nests that run programs begin <= p < end of the grid.

    The result has the kernel ABI: (arguments, grid, begin, end, scratch). `fn` is not changed.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEPEST))
    try:
        return _lower(fn, target)
    finally:
        sys.setrecursionlimit(limit)


def _lower(fn: Function, target: TargetDescription) -> LoweredKernel:
    types: list[Type] = [PointerType(I64), PointerType(I32), I64, I64, PointerType(I8)]
    function = Function(fn.name, types, ["args", "grid", "begin", "end", "scratch"], fn.location)
    function.attrs = dict(fn.attrs)
    args, grid, begin, end, scratch = function.args
    builder = Builder(function)
    context = Context(fn, target, scratch, builder, Control)
    for position, arg in enumerate(fn.args):
        context.env[arg] = _argument(builder, args, position, arg.type)
    sizes = [
        builder.emit("nest.load", _at(builder, grid, axis), type=I32, invariant=True)
        for axis in range(3)
    ]
    loop = Region([I64])
    body = Builder(loop)
    wide = [builder.emit("arith.extui", size, type=I64) for size in sizes]
    first = body.emit("arith.remui", loop.args[0], wide[0])
    rest = body.emit("arith.divui", loop.args[0], wide[0])
    second = body.emit("arith.remui", rest, wide[1])
    third = body.emit("arith.divui", rest, wide[1])
    for axis, index in enumerate((first, second, third)):
        context.grid["tile.program_id", axis] = body.emit("arith.trunci", index, type=I32)
        context.grid["tile.num_programs", axis] = sizes[axis]
    context.scratch.open_loop()
    context.control.region(fn.body, body, {})
    context.scratch.close_loop()
    body.create("scf.yield")
    builder.create("scf.for", begin, end, builder.i64(1), type=[], regions=[loop])
    builder.create("func.return")
    notes: dict[str, Any] = dict(context.notes)
    if context.ignored:
        notes["ignored"] = sorted(context.ignored)
    return LoweredKernel(function, context.scratch.place(), notes)


def _at(builder: Builder, pointer: Value, index: int) -> Value:
    return builder.emit("ptr.add", pointer, builder.i64(index)) if index else pointer


def _argument(builder: Builder, args: Value, position: int, type_: Type) -> Value:
    """Read one 8-byte argument slot."""
    slot = _at(builder, args, position)
    if type_ is I64:
        return builder.emit("nest.load", slot, type=I64, invariant=True)
    if isinstance(type_, PointerType):
        word = builder.emit("nest.load", slot, type=I64, invariant=True)
        return builder.emit("ptr.cast", word, type=type_)
    stored = I8 if type_ is I1 else type_
    place = builder.emit("ptr.cast", slot, type=PointerType(stored))  # type: ignore[arg-type]
    value = builder.emit("nest.load", place, type=stored, invariant=True)
    if type_ is I1:
        return builder.emit("arith.cmpi", value, builder.constant(0, I8), predicate="ne")
    return value
