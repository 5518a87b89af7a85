"""tile.dot: finding operands that can be read in place, and emitting the product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.ir.builder import Builder
from isthmus.ir.core import Operation, Value
from isthmus.ir.types import I8, PointerType, ScalarType, element_type, is_float, shape_of
from isthmus.lowering.nest.affine import Form, Poly, Term
from isthmus.lowering.nest.aliases import WRITES
from isthmus.lowering.nest.dot import (
    DotOperand,
    DotResult,
    dot_cache_bytes,
    dot_scratch_bytes,
    emit_dot,
    emit_dot_cache_reset,
)
from isthmus.lowering.nest.memory import Block, Buffer

if TYPE_CHECKING:
    from isthmus.lowering.nest.context import Context
    from isthmus.lowering.nest.roots import DotItem

__all__ = ["accumulated_dot", "direct_load", "emit_product", "is_zero"]


def is_zero(value: Value) -> bool:
    """Whether a block is the constant 0."""
    op = value.defining_op
    if op is not None and op.name == "tile.splat":
        op = op.operands[0].defining_op
    return op is not None and op.name == "arith.constant" and op.attrs["value"] == 0


def accumulated_dot(op: Operation) -> Operation | None:
    """The addition that takes up a product with accumulator 0, when it can be done in the dot."""
    result = op.result
    if len(result.uses) != 1 or not is_zero(op.operands[2]):
        return None
    user, _ = result.uses[0]
    expected = "arith.addf" if is_float(result.type) else "arith.addi"
    if user.name != expected or user.parent is not op.parent or op.parent is None:
        return None
    ops = op.parent.ops
    between = ops[ops.index(op) + 1 : ops.index(user)]
    if any(other.regions or other.name in WRITES for other in between):
        return None
    return user


def direct_load(context: Context, operand: Value) -> tuple[Operation | None, bool]:
    """The load behind a dot operand, and whether it is transposed, if it can be read in place."""
    if len(shape_of(operand.type)) != 2 or operand in context.blocks:
        return None, False
    swapped = False
    op = operand.defining_op
    while op is not None and op.name == "tile.trans" and op.operands[0] not in context.blocks:
        swapped = swapped != (tuple(op.attrs["order"]) == (1, 0))
        op = op.operands[0].defining_op
    if op is None or op.name != "tile.load" or op.result in context.blocks:
        return None, False
    if len(op.operands) > 2 and not is_zero(op.operands[2]):
        return None, False
    shape = shape_of(op.result.type)
    form = context.forms.form(op.operands[0], (0, 1))
    if not form.is_affine:
        return None, False
    if len(op.operands) > 1:
        for term in context.forms.mask_terms(op.operands[1], (0, 1), shape):
            if not _is_extent(term):
                return None, False
    return op, swapped


def _is_extent(term: Term) -> bool:
    """Whether a conjunct only cuts rows or columns off at the end."""
    if term.form is None:
        return term.value is not None and not shape_of(term.value.type)
    if term.form.opaque:
        return False
    strides = list(term.form.strides.values())
    return not strides or (len(strides) == 1 and strides[0].value == -1)


def emit_product(context: Context, builder: Builder, item: DotItem) -> None:
    """Emit one DotItem; its accumulator lies in the result block already."""
    with context.scratch.one_time():
        _emit_product(context, builder, item)


def _emit_product(context: Context, builder: Builder, item: DotItem) -> None:
    op = item.op
    shape = shape_of(op.result.type)
    m, n = shape[-2:]
    k = shape_of(op.operands[0].type)[-1]
    batch = 1
    for size in shape[:-2]:
        batch *= size
    types = [element_type(value.type) for value in (*op.operands[:2], op.result)]
    for type_ in types:
        assert isinstance(type_, ScalarType), "products multiply numbers"
    size = dot_scratch_bytes(context.target, m, n, k, *types)  # type: ignore[arg-type]
    scratch = None
    if size:
        buffer = Buffer(size)
        scratch = context.scratch.address(builder, buffer, I8)
    operands = [
        _memory(context, builder, load, swapped, types[position])
        if load is not None
        else _stored(context, builder, context.blocks[op.operands[position]])
        for position, (load, swapped) in enumerate(zip(item.loads, item.swapped, strict=True))
    ]
    cache = _cache(context, builder, operands, m, n, k, types[2]) if batch == 1 else None
    pointer = context.scratch.block_address(builder, item.result)
    result = DotResult(types[2], pointer, n)  # type: ignore[arg-type]
    for slice_ in range(batch):
        parts = [
            DotOperand(
                part.element, _moved(builder, part.pointer, slice_ * step),
                part.row_stride, part.column_stride, part.rows, part.columns, part.cacheable,
            )
            for part, step in zip(operands, (m * k, k * n), strict=True)
        ]  # fmt: skip
        target = DotResult(result.element, _moved(builder, pointer, slice_ * m * n), n)
        emit_dot(
            builder, context.target, parts[0], parts[1], target, m, n, k,
            accumulate=item.accumulates, scratch=scratch, cache=cache,
        )  # fmt: skip


def _cache(
    context: Context, builder: Builder, operands: list[DotOperand], m: int, n: int, k: int,
    result: object,
) -> Value | None:  # fmt: skip
    """Memory for packed panels that the programs of one call share, reset at its start."""
    assert isinstance(result, ScalarType), "products multiply numbers"
    keeps = {
        "lhs_cacheable": operands[0].cacheable, "rhs_cacheable": operands[1].cacheable
    }  # fmt: skip
    size = dot_cache_bytes(context.target, m, n, k, result, **keeps)
    if not size:
        return None
    buffer = context.scratch.lasting(size)
    place = context.scratch.address(context.entry, buffer, I8)
    emit_dot_cache_reset(context.entry, place, context.target, m, n, k, result, **keeps)
    return context.scratch.address(builder, buffer, I8)


def _moved(builder: Builder, pointer: Value, elements: int) -> Value:
    if elements == 0:
        return pointer
    return builder.emit("ptr.add", pointer, builder.i64(elements))


def _stored(context: Context, builder: Builder, block: Block) -> DotOperand:
    element = block.element
    assert isinstance(element, ScalarType), "products multiply numbers"
    pointer = context.scratch.block_address(builder, block)
    return DotOperand(element, pointer, block.shape[-1], 1)


def _memory(
    context: Context, builder: Builder, load: Operation, swapped: bool, element: object
) -> DotOperand:
    """A load read in place: base, strides and valid extents as scalars."""
    shape = shape_of(load.result.type)
    form = context.forms.form(load.operands[0], (0, 1))
    assert isinstance(form.root, Value), "operands read in place have a scalar root"
    pointer = context.scalar(form.root)
    assert isinstance(pointer.type, PointerType), "the root is a pointer"
    if form.base:
        pointer = builder.emit("ptr.add", pointer, context.poly(builder, form.base))
    strides = [_stride(context, builder, form, dimension) for dimension in (0, 1)]
    extents = _extents(context, builder, load, shape)
    if swapped:
        strides.reverse()
        extents.reverse()
    assert isinstance(element, ScalarType), "products multiply numbers"
    return DotOperand(
        element, pointer, strides[0], strides[1], extents[0], extents[1],
        cacheable=context.aliases.is_invariant(load),
    )  # fmt: skip


def _stride(context: Context, builder: Builder, form: Form, dimension: int) -> Value | int:
    stride = form.strides.get(dimension, Poly.constant(0))
    known = stride.value
    return known if known is not None else context.poly(builder, stride)


def _extents(
    context: Context, builder: Builder, load: Operation, shape: tuple[int, ...]
) -> list[Value | None]:
    extents: list[Value | None] = [None, None]
    if len(load.operands) < 2:
        return extents
    conditions: list[Value] = []
    zero = builder.i64(0)
    for term in context.forms.mask_terms(load.operands[1], (0, 1), shape):
        if term.form is None:
            assert term.value is not None, "a term is a form or a value"
            conditions.append(context.scalar(term.value))
            continue
        if not term.form.strides:
            rest = context.poly(builder, term.form.base)
            conditions.append(builder.emit("arith.cmpi", rest, zero, predicate="sge"))
            continue
        (dimension,) = term.form.strides
        count = context.poly(builder, term.form.base + Poly.constant(1))
        before = extents[dimension]
        if before is None:
            before = builder.i64(shape[dimension])
        extents[dimension] = builder.emit("arith.minsi", before, count)
    for condition in conditions:
        before = extents[0] if extents[0] is not None else builder.i64(shape[0])
        extents[0] = builder.emit("arith.select", condition, before, zero)
    return [
        None if extent is None else builder.emit("arith.maxsi", extent, zero) for extent in extents
    ]
