"""Scalar operations of the tile program, one to one, and scalar memory accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.ir.builder import Builder
from isthmus.ir.core import Operation, Value
from isthmus.ir.types import element_type
from isthmus.lowering.nest.expressions import elementwise
from isthmus.lowering.nest.memory import storage_type

if TYPE_CHECKING:
    from isthmus.lowering.nest.context import Context

__all__ = ["emit_scalar"]


def emit_scalar(context: Context, builder: Builder, op: Operation) -> None:
    """Emit one scalar operation and note its results."""
    builder.location = op.location
    name = op.name
    if name in ("tile.program_id", "tile.num_programs"):
        context.env[op.result] = context.grid[name, op.attrs["axis"]]
    elif name == "arith.constant":
        context.env[op.result] = builder.constant(op.attrs["value"], op.result.type)
    elif name == "tile.load":
        context.env[op.result] = _load(context, builder, op)
    elif name == "tile.store":
        pointer, value, *mask = (context.scalar(operand) for operand in op.operands)
        _guarded(builder, mask, lambda: builder.create("nest.store", value, pointer))
    elif name in ("tile.atomic_rmw", "tile.atomic_cas"):
        context.env[op.result] = _atomic(context, builder, op)
    elif name == "tile.split":
        block = context.blocks[op.operands[0]]
        pointer = context.scratch.block_address(builder, block)
        for number, result in enumerate(op.results):
            place = builder.emit("ptr.add", pointer, builder.i64(number))
            stored = builder.emit("nest.load", place, type=storage_type(block.element))
            context.env[result] = stored
    elif name.startswith(("arith.", "math.", "ptr.")):
        operands = [context.scalar(operand) for operand in op.operands]
        element = element_type(op.result.type)
        context.env[op.result] = elementwise(context, builder, op, operands, element)
    else:
        raise context.unsupported(op)


def _load(context: Context, builder: Builder, op: Operation) -> Value:
    type_ = op.result.type
    pointer = context.scalar(op.operands[0])
    if len(op.operands) == 1:
        return builder.emit("nest.load", pointer, type=type_)
    branch = builder.if_else(context.scalar(op.operands[1]), [type_])
    with builder.at(branch.regions[0]):
        builder.create("scf.yield", builder.emit("nest.load", pointer, type=type_))
    with builder.at(branch.regions[1]):
        if len(op.operands) > 2:
            builder.create("scf.yield", context.scalar(op.operands[2]))
        else:
            builder.create("scf.yield", builder.constant(0, type_))
    return branch.result


def _guarded(builder: Builder, mask: list[Value], perform: object) -> None:
    if not mask:
        perform()  # type: ignore[operator]
        return
    branch = builder.if_else(mask[0])
    with builder.at(branch.regions[0]):
        perform()  # type: ignore[operator]
        builder.create("scf.yield")
    with builder.at(branch.regions[1]):
        builder.create("scf.yield")


def _atomic(context: Context, builder: Builder, op: Operation) -> Value:
    pointer, *values = (context.scalar(operand) for operand in op.operands)
    if op.name == "tile.atomic_cas":
        return builder.emit("nest.atomic_cas", pointer, *values)
    value, *mask = values
    kind = op.attrs["kind"]
    if not mask:
        return builder.emit("nest.atomic_rmw", pointer, value, kind=kind)
    branch = builder.if_else(mask[0], [value.type])
    with builder.at(branch.regions[0]):
        old = builder.emit("nest.atomic_rmw", pointer, value, kind=kind)
        builder.create("scf.yield", old)
    with builder.at(branch.regions[1]):
        builder.create("scf.yield", builder.constant(0, value.type))
    return branch.result
