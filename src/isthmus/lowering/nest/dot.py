"""Matrix products of blocks: `emit_dot` multiplies two strided blocks into a scratch block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.ir.core import Region, Value
from isthmus.ir.types import ScalarType

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription
    from isthmus.ir.builder import Builder

__all__ = ["DotOperand", "DotResult", "dot_scratch_bytes", "emit_dot"]


@dataclass(frozen=True, slots=True)
class DotOperand:
    """One factor of a product: a strided block in memory.

    pointer: address of element [0, 0]; strides count elements, as i64 values or known integers.
    rows, columns: how many rows and columns may be read, as i64 values; elements outside count
        as zero and must not be touched. None: the whole block.
    """

    element: ScalarType
    pointer: Value
    row_stride: Value | int
    column_stride: Value | int
    rows: Value | None = None
    columns: Value | None = None


@dataclass(frozen=True, slots=True)
class DotResult:
    """The accumulator in scratch: row-major [m, n], rows `row_stride` elements apart."""

    element: ScalarType
    pointer: Value
    row_stride: int


def dot_scratch_bytes(
    target: TargetDescription, m: int, n: int, k: int,
    lhs: ScalarType, rhs: ScalarType, result: ScalarType,
) -> int:  # fmt: skip
    """Bytes of scratch that `emit_dot` needs for packed panels."""
    del target, m, n, k, lhs, rhs, result
    return 0


def emit_dot(
    builder: Builder, target: TargetDescription, lhs: DotOperand, rhs: DotOperand,
    result: DotResult, m: int, n: int, k: int, *, accumulate: bool, scratch: Value | None,
) -> None:  # fmt: skip
    """Emit result = lhs @ rhs (+ result when `accumulate`) at the insertion point.

    lhs is [m, k], rhs [k, n]; products and sums are in `result.element`. `scratch` is a ptr<i8>
    to `dot_scratch_bytes` bytes aligned to 64, or None where that is 0. This plain version is
    three scalar loops.
    """
    del target, scratch
    zero, one = builder.i64(0), builder.i64(1)

    def loop(extent: int, initial: list[Value]) -> tuple[Region, list[Value]]:
        op, region = builder.for_loop(zero, builder.i64(extent), one, initial)
        return region, op.results

    rows, _ = loop(m, [])
    with builder.at(rows):
        row = rows.args[0]
        columns, _ = loop(n, [])
        with builder.at(columns):
            column = columns.args[0]
            place = builder.emit("arith.muli", row, builder.i64(result.row_stride))
            place = builder.emit("arith.addi", place, column)
            address = builder.emit("ptr.add", result.pointer, place)
            if accumulate:
                start = builder.emit("nest.load", address, type=result.element)
            else:
                start = builder.constant(0, result.element)
            depth, sums = loop(k, [start])
            with builder.at(depth):
                index = depth.args[0]
                left = _element(builder, lhs, row, index, result.element)
                right = _element(builder, rhs, index, column, result.element)
                kind = "f" if result.element.kind == "float" else "i"
                product = builder.emit(f"arith.mul{kind}", left, right)
                total = builder.emit(f"arith.add{kind}", depth.args[1], product)
                builder.create("scf.yield", total)
            builder.create("nest.store", sums[0], address)
            builder.create("scf.yield")
        builder.create("scf.yield")


def _element(
    builder: Builder, operand: DotOperand, row: Value, column: Value, result: ScalarType
) -> Value:
    """operand[row, column] in type `result`, 0 outside the valid part."""

    def stride(value: Value | int) -> Value:
        return builder.i64(value) if isinstance(value, int) else value

    def read() -> Value:
        offset = builder.emit(
            "arith.addi",
            builder.emit("arith.muli", row, stride(operand.row_stride)),
            builder.emit("arith.muli", column, stride(operand.column_stride)),
        )
        address = builder.emit("ptr.add", operand.pointer, offset)
        return builder.emit("nest.load", address, type=operand.element)

    inside = None
    for index, extent in ((row, operand.rows), (column, operand.columns)):
        if extent is not None:
            test = builder.emit("arith.cmpi", index, extent, predicate="slt")
            inside = test if inside is None else builder.emit("arith.andi", inside, test)
    if inside is None:
        value = read()
    else:
        branch = builder.if_else(inside, [operand.element])
        with builder.at(branch.regions[0]):
            builder.create("scf.yield", read())
        with builder.at(branch.regions[1]):
            builder.create("scf.yield", builder.constant(0, operand.element))
        value = branch.result
    if operand.element is result:
        return value
    name = "arith.extf" if result.kind == "float" else "arith.extsi"
    return builder.emit(name, value, type=result)
