"""Bodies that visit one lane after the other: atomics and histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.ir.core import Region, Value
from isthmus.ir.types import I32, I64, element_type
from isthmus.lowering.nest.memory import Block

if TYPE_CHECKING:
    from isthmus.lowering.nest.loops import NestEmitter
    from isthmus.lowering.nest.roots import AtomicRoot, HistogramRoot

__all__ = ["emit_atomic", "emit_count", "emit_zeros"]


def emit_atomic(
    nest: NestEmitter, root: AtomicRoot, values: list[Value | None], number: int
) -> None:
    """One lane of tile.atomic_rmw or tile.atomic_cas."""
    builder = nest.levels[number].builder
    *operands, mask = values
    op = root.op
    form = nest.forms.form(root.inputs[0], root.map)
    pointer = nest.scalar_pointer(form, number)
    arguments = [pointer, *(value for value in operands if value is not None)]

    def perform() -> Value:
        if op.name == "tile.atomic_rmw":
            return builder.emit("nest.atomic_rmw", *arguments, kind=op.attrs["kind"])
        return builder.emit("nest.atomic_cas", *arguments)

    if mask is None:
        old = perform()
    else:
        element = element_type(op.result.type)
        branch = builder.if_else(mask, [element])
        with builder.at(branch.regions[0]):
            builder.create("scf.yield", perform())
        with builder.at(branch.regions[1]):
            builder.create("scf.yield", builder.constant(0, element))
        old = branch.result
    if root.block is not None:
        nest.write_block(root.block, root.block.strides, root.map, old, number)


def emit_zeros(nest: NestEmitter, block: Block) -> None:
    """Fill a block of i32 with zeros, ahead of the nest."""
    builder = nest.levels[0].builder
    pointer = nest.block_pointer(block)
    region = Region([I64])
    with builder.at(region):
        address = builder.emit("ptr.add", pointer, region.args[0])
        builder.create("nest.store", builder.i32(0), address)
        builder.create("scf.yield")
    builder.create(
        "scf.for", builder.i64(0), builder.i64(block.shape[0]), builder.i64(1),
        type=[], regions=[region],
    )  # fmt: skip


def emit_count(
    nest: NestEmitter, root: HistogramRoot, values: list[Value | None], number: int
) -> None:
    """One lane of tile.histogram: values outside the bins, or masked off, do not count."""
    builder = nest.levels[number].builder
    value = values[0]
    assert value is not None, "a histogram has values"
    bins = builder.constant(root.block.shape[0], value.type)
    counts = builder.emit("arith.cmpi", value, bins, predicate="ult")
    if len(values) > 1 and values[1] is not None:
        counts = builder.emit("arith.andi", counts, values[1])
    pointer = nest.block_pointer(root.block)
    branch = builder.if_else(counts)
    with builder.at(branch.regions[0]):
        if element_type(value.type) not in (I32, I64):
            value = builder.emit("arith.extui", value, type=I64)
        address = builder.emit("ptr.add", pointer, value)
        old = builder.emit("nest.load", address, type=I32)
        builder.create("nest.store", builder.emit("arith.addi", old, builder.i32(1)), address)
        builder.create("scf.yield")
    with builder.at(branch.regions[1]):
        builder.create("scf.yield")
