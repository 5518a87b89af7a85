"""Values at the current indices of a nest: lazy blocks evaluated lane by lane, as needed.

A value is emitted at the outermost loop level whose index it depends on, once per level, so
that whatever does not vary in an inner loop is computed outside it. Values that vary along the
vectorised dimension are vectors, all others scalars.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isthmus.ir.builder import Builder
from isthmus.ir.core import Operation, Value
from isthmus.ir.optable import OPS
from isthmus.ir.types import (
    I1,
    I8,
    I64,
    PointerType,
    Type,
    VectorType,
    element_type,
    is_pointer,
    shape_of,
)
from isthmus.lowering.nest.affine import ONE, ZERO, Form, Opaque, Poly
from isthmus.lowering.nest.lazy import is_block, is_lazy
from isthmus.lowering.nest.maps import IndexMap, is_fixed, operand_map
from isthmus.lowering.nest.math import expand
from isthmus.lowering.nest.memory import Block, storage_type
from isthmus.lowering.nest.roots import Nest

if TYPE_CHECKING:
    from isthmus.lowering.nest.context import Context
    from isthmus.lowering.nest.schedule import Schedule

__all__ = ["Expressions", "Level", "elementwise", "extend", "typed"]


@dataclass(slots=True)
class Level:
    """One loop level under construction: where to build, and what is there already.

    `index` is the i64 index of the loop's dimension; level 0 is outside all loops.
    """

    builder: Builder
    index: Value | None = None
    memo: dict[object, Value] = field(default_factory=dict)


def typed(element: Type, lanes: int) -> Type:
    """The type of `lanes` elements: a vector, or a scalar for one."""
    return element if lanes == 1 else VectorType((lanes,), element)


def extend(builder: Builder, value: Value) -> Value:
    """A signed integer, scalar or vector, as i64."""
    if element_type(value.type) is I64:
        return value
    return builder.emit("arith.extsi", value, type=_like(value, I64))


def _like(value: Value, element: Type) -> Type:
    return VectorType(value.type.shape, element) if isinstance(value.type, VectorType) else element


def elementwise(
    context: Context, builder: Builder, op: Operation, operands: list[Value], element: Type
) -> Value:
    """An element-wise operation on scalars or on vectors of one length."""
    if op.name.startswith("math."):
        return expand(builder, op.name, operands, context.target)
    if OPS[op.name].infer is not None:
        return builder.emit(op.name, *operands, **op.attrs)
    return builder.emit(op.name, *operands, type=_like(operands[0], element), **op.attrs)


class Expressions:
    """Evaluates values for one nest. `levels` grows and shrinks with the open loops."""

    def __init__(
        self, context: Context, schedule: Schedule, item: int, nest: Nest, builder: Builder
    ) -> None:
        self.context = context
        self.forms = context.forms
        self.schedule = schedule
        self.item = item
        self.shape = nest.shape
        self.levels = [Level(builder)]
        self.level_of_dimension: dict[int, int] = {}
        #: Depth of the innermost loop; only there values may rely on `known` facts.
        self.innermost = 0
        self.vector: int | None = None
        self.lanes = 1
        #: Mask terms that hold wherever the code being built runs.
        self.known: set[object] = set()
        #: Masks, with their maps, that are off there.
        self.off: set[object] = set()
        self._dimensions: dict[Opaque, frozenset[int]] = {}

    # What a value depends on -----------------------------------------------------------------

    def is_stored(self, value: Value) -> Block | None:
        """The block to read `value` from, or None where this nest computes it."""
        block = self.context.blocks.get(value)
        if block is None or (block.owner is self.schedule and block.item >= self.item):
            return None
        return block

    def dimensions(self, value: Value, map_: IndexMap) -> frozenset[int]:
        """The nest dimensions that a value varies along."""
        if not is_block(value):
            return frozenset()
        key = (value, map_)
        found = self._dimensions.get(key)
        if found is None:
            found = self._dimensions[key] = self._find_dimensions(value, map_)
        return found

    def _find_dimensions(self, value: Value, map_: IndexMap) -> frozenset[int]:
        op = value.defining_op
        own = frozenset(entry for entry in map_ if not is_fixed(entry))
        if self.is_stored(value) is not None:
            return own
        if value in self.forms.inductions:
            return self.dimensions(self.forms.inductions[value][0], map_)
        if op is None or not is_lazy(op):
            raise self.context.missing(value)
        if op.name == "tile.arange":
            return own
        if op.name == "tile.gather":
            axis = op.attrs["axis"]
            rest = map_[:axis] + map_[axis + 1 :]
            return self.dimensions(op.operands[1], map_) | {d for d in rest if not is_fixed(d)}
        found: frozenset[int] = frozenset()
        start = 0
        if op.name == "tile.load":
            found, start = self.form_dimensions(self.forms.form(op.operands[0], map_)), 1
        for position in range(start, len(op.operands)):
            operand = op.operands[position]
            found |= self.dimensions(operand, operand_map(op, position, map_, value.index))
        return found

    def form_dimensions(self, form: Form) -> frozenset[int]:
        found = frozenset(form.strides)
        for value, map_ in form.opaque_terms():
            found |= self.dimensions(value, map_)
        return found

    def level_of(self, dimensions: frozenset[int]) -> int:
        return max((self.level_of_dimension[d] for d in dimensions), default=0)

    def is_vector(self, dimensions: frozenset[int]) -> bool:
        return self.lanes > 1 and self.vector in dimensions

    # Values ----------------------------------------------------------------------------------

    def value(self, value: Value, map_: IndexMap) -> Value:
        """The value at the current indices: a vector where it varies along the lanes."""
        if not is_block(value):
            return self.context.scalar(value)
        dimensions = self.dimensions(value, map_)
        number = self.level_of(dimensions)
        level = self.levels[number]
        key = (value, map_)
        found = level.memo.get(key)
        if found is None:
            found = self._compute(value, map_, number, dimensions)
            level.memo[key] = found
        return found

    def _compute(
        self, value: Value, map_: IndexMap, number: int, dimensions: frozenset[int]
    ) -> Value:
        builder = self.levels[number].builder
        element = element_type(value.type)
        lanes = self.lanes if self.is_vector(dimensions) else 1
        block = self.is_stored(value)
        if block is not None:
            return self.read(block, map_, number)
        if value in self.forms.inductions:
            return self._induction(value, map_, number, lanes)
        op = value.defining_op
        assert op is not None, "lazy values are defined by operations"
        name = op.name
        if name == "tile.load":
            return self._load(op, map_, number, lanes)
        if name == "tile.arange":
            return self._arange(op, map_, number, lanes)
        if name == "arith.constant":
            return builder.constant(op.attrs["value"], element)
        if name == "tile.gather":
            return self._gather_block(op, map_, number, lanes)
        if number == self.innermost and (value, map_) in self.off:
            return self.spread(builder.i1(False), number, lanes)
        if name == "arith.cmpi" and number == self.innermost and self.known:
            form = self.forms.compare_term(op, map_)
            if form is not None and form.key() in self.known:
                return self.spread(builder.i1(True), number, lanes)
        maps = [
            operand_map(op, position, map_, value.index) for position in range(len(op.operands))
        ]
        operands = [self.value(o, m) for o, m in zip(op.operands, maps, strict=True)]
        if name.startswith("tile."):  # shapes only
            return operands[0]
        return elementwise(
            self.context, builder, op, [self.spread(o, number, lanes) for o in operands], element
        )

    def spread(self, value: Value, number: int, lanes: int) -> Value:
        """A scalar as a vector of `lanes`; vectors stay. Built at level `number`."""
        if lanes == 1 or isinstance(value.type, VectorType):
            return value
        level = self.levels[number]
        key = ("spread", value, lanes)
        found = level.memo.get(key)
        if found is None:
            home = level.builder
            found = level.memo[key] = home.splat(value, VectorType((lanes,), value.type))
        return found

    def _arange(self, op: Operation, map_: IndexMap, number: int, lanes: int) -> Value:
        builder = self.levels[number].builder
        element = element_type(op.result.type)
        start = op.attrs["start"]
        if is_fixed(map_[0]):
            return builder.constant(start - 1 - map_[0], element)
        index = self.levels[number].index
        assert index is not None, "a loop level has an index"
        scalar = builder.emit("arith.trunci", index, type=element)
        if start:
            scalar = builder.emit("arith.addi", scalar, builder.constant(start, element))
        return self.lane_numbers(scalar, number, lanes)

    def lane_numbers(self, first: Value, number: int, lanes: int) -> Value:
        """`first`, `first` + 1, ... along the lanes."""
        if lanes == 1:
            return first
        builder = self.levels[number].builder
        counts = builder.emit("vector.iota", type=VectorType((lanes,), first.type))
        return builder.emit("arith.addi", self.spread(first, number, lanes), counts)

    def _induction(self, value: Value, map_: IndexMap, number: int, lanes: int) -> Value:
        """A carried block that is its initial value plus a scalar offset."""
        builder = self.levels[number].builder
        initial, offset = self.forms.inductions[value]
        first = self.value(initial, map_)
        step = self.context.scalar(offset)
        element = element_type(value.type)
        if isinstance(element, PointerType):
            return builder.emit(
                "ptr.add", self.spread(first, number, lanes), self.spread(step, number, lanes)
            )
        if element is not I64:
            step = builder.emit("arith.trunci", step, type=element)
        return builder.emit(
            "arith.addi", self.spread(first, number, lanes), self.spread(step, number, lanes)
        )

    # Addresses -------------------------------------------------------------------------------

    def poly(self, poly: Poly) -> Value:
        """A polynomial of scalars, as i64 outside all loops."""
        level = self.levels[0]
        found = level.memo.get(poly)
        if found is None:
            found = level.memo[poly] = self.context.poly(level.builder, poly)
        return found

    def _term(self, stride: Poly, index: Value, number: int) -> Value:
        if stride == ONE:
            return index
        return self.levels[number].builder.emit("arith.muli", index, self.poly(stride))

    def _scalar_opaque(self, key: Opaque) -> bool:
        return not self.is_vector(self.dimensions(*key))

    def offsets(self, form: Form, number: int, without: tuple[int, ...] = ()) -> dict[int, Value]:
        """Scalar parts of base + sum(stride * index) by level, those along lanes at lane 0."""
        parts: dict[int, list[Value]] = {}
        if form.base:
            parts.setdefault(0, []).append(self.poly(form.base))
        for dimension, stride in sorted(form.strides.items()):
            if dimension not in without:
                level = self.level_of_dimension[dimension]
                index = self.levels[level].index
                assert index is not None, "a loop level has an index"
                parts.setdefault(level, []).append(self._term(stride, index, level))
        for key, factor in form.opaque.items():
            if self._scalar_opaque(key):
                level = self.level_of(self.dimensions(*key))
                term = extend(self.levels[level].builder, self.value(*key))
                parts.setdefault(level, []).append(self._term(factor, term, level))
        sums: dict[int, Value] = {}
        for level, terms in sorted(parts.items()):
            total = terms[0]
            for term in terms[1:]:
                total = self.levels[level].builder.emit("arith.addi", total, term)
            sums[level] = total
        assert all(level <= number for level in sums), "an address needs an index not yet open"
        return sums

    def scalar_form(self, form: Form, number: int, without: tuple[int, ...] = ()) -> Value:
        """An integer form, lanes at lane 0, without some dimensions, at level `number`."""
        total: Value | None = None
        for level, part in sorted(self.offsets(form, number, without).items()):
            if total is None:
                total = part
            else:
                total = self.levels[level].builder.emit("arith.addi", total, part)
        return self.poly(ZERO) if total is None else total

    def address(self, form: Form, number: int, root: Value | None = None) -> Value:
        """The scalar pointer of a form at lane 0, advanced level by level."""
        key = ("address", form.key() if root is None else (root, form.key()))
        level_memo = self.levels[number].memo
        found = level_memo.get(key)
        if found is not None:
            return found
        if root is None:
            assert isinstance(form.root, Value), "a scalar address has a scalar root"
            root = self.context.scalar(form.root)
        pointer = root
        for level, part in sorted(self.offsets(form, number).items()):
            step_key = ("step", key, level)
            memo = self.levels[level].memo
            if step_key not in memo:
                memo[step_key] = self.levels[level].builder.emit("ptr.add", pointer, part)
            pointer = memo[step_key]
        level_memo[key] = pointer
        return pointer

    def is_contiguous(self, form: Form) -> bool:
        """Whether lanes lie next to one another in memory."""
        assert self.vector is not None, "only vectorised nests have lanes"
        if form.strides.get(self.vector) != ONE:
            return False
        return all(self._scalar_opaque(key) for key in form.opaque_terms())

    def lane_pointers(self, form: Form, number: int, root: Value | None = None) -> Value:
        """A vector of pointers, one per lane."""
        builder = self.levels[number].builder
        lanes = self.lanes
        plain = form
        if root is None and isinstance(form.root, tuple):
            first = extend_pointer(self.value(*form.root))
            pointers = self.spread(first, number, lanes)
            offset = self.scalar_form(Form(form.base, form.strides, form.opaque), number)
            pointers = builder.emit("ptr.add", pointers, self.spread(offset, number, lanes))
        else:
            pointers = self.spread(self.address(plain, number, root), number, lanes)
        assert self.vector is not None, "only vectorised nests have lanes"
        stride = form.strides.get(self.vector)
        if stride is not None:
            counts = builder.emit("vector.iota", type=VectorType((lanes,), I64))
            if stride != ONE:
                factor = self.spread(self.poly(stride), number, lanes)
                counts = builder.emit("arith.muli", counts, factor)
            pointers = builder.emit("ptr.add", pointers, counts)
        for key, factor in form.opaque.items():
            if not self._scalar_opaque(key):
                term = extend(builder, self.value(*key))
                if factor != ONE:
                    scale = self.spread(self.poly(factor), number, lanes)
                    term = builder.emit("arith.muli", term, scale)
                pointers = builder.emit("ptr.add", pointers, term)
        return pointers

    def scalar_pointer(self, form: Form, number: int) -> Value:
        """The pointer of a scalar access."""
        if not isinstance(form.root, tuple):
            return self.address(form, number)
        builder = self.levels[number].builder
        offset = self.scalar_form(Form(form.base, form.strides, form.opaque), number)
        return builder.emit("ptr.add", self.value(*form.root), offset)

    # Memory ----------------------------------------------------------------------------------

    def mask(self, mask: Value, map_: IndexMap, number: int) -> Value | None:
        """A mask at the current indices; None where it is known to hold."""
        op = mask.defining_op
        if not is_block(mask):
            constant = op is not None and op.name == "arith.constant" and op.attrs["value"]
            if constant or (number == self.innermost and (mask, ()) in self.known):
                return None
            return self.context.scalar(mask)
        if number == self.innermost and (mask, map_) in self.known:
            return None
        if op is not None and self.is_stored(mask) is None:
            if op.name == "arith.constant" and op.attrs["value"]:
                return None
            if op.name == "arith.andi":
                parts = [self.mask(operand, map_, number) for operand in op.operands]
                left, right = parts
                if left is None or right is None:
                    return right if left is None else left
                lanes = max(_lanes_of(left), _lanes_of(right))
                builder = self.levels[number].builder
                return builder.emit(
                    "arith.andi",
                    self.spread(left, number, lanes),
                    self.spread(right, number, lanes),
                )
            if op.name in ("tile.splat", "tile.broadcast", "tile.expand_dims", "tile.trans") or (
                op.name == "tile.reshape" and is_lazy(op)
            ):
                return self.mask(op.operands[0], operand_map(op, 0, map_), number)
            if op.name == "arith.cmpi":
                form = self.forms.compare_term(op, map_)
                if form is not None:
                    least = form.smallest(self.shape)
                    if least is not None and least >= 0:
                        return None
                    if number == self.innermost and form.key() in self.known:
                        return None
        return self.value(mask, map_)

    def _load(self, op: Operation, map_: IndexMap, number: int, lanes: int) -> Value:
        form = self.forms.form(op.operands[0], map_)
        element = element_type(op.result.type)
        if len(op.operands) > 1 and number == self.innermost and self._is_off(op, map_):
            builder = self.levels[number].builder
            if len(op.operands) > 2:
                return self.spread(self.value(op.operands[2], map_), number, lanes)
            return self.spread(builder.constant(0, element), number, lanes)
        mask = self.mask(op.operands[1], map_, number) if len(op.operands) > 1 else None
        other = None
        if mask is not None:
            if len(op.operands) > 2:
                other = self.value(op.operands[2], map_)
            else:
                other = self.levels[number].builder.constant(0, element)
        invariant = self.context.aliases.is_invariant(op)
        return self._fetch(form, number, lanes, element, mask, other, invariant=invariant)

    def _is_off(self, load: Operation, map_: IndexMap) -> bool:
        return (load.operands[1], map_) in self.off

    def _fetch(
        self, form: Form, number: int, lanes: int, element: Type, mask: Value | None,
        other: Value | None, root: Value | None = None, invariant: bool = False,
    ) -> Value:  # fmt: skip
        """Read memory at a form: one scalar, consecutive lanes, or lanes one by one."""
        builder = self.levels[number].builder
        attrs = {"invariant": True} if invariant else {}
        type_ = typed(element, lanes)
        if lanes == 1:
            pointer = (
                self.address(form, number, root) if root else self.scalar_pointer(form, number)
            )
            if mask is None:
                return builder.emit("nest.load", pointer, type=type_, **attrs)
            assert other is not None, "a masked load has a fill value"
            branch = builder.if_else(mask, [type_])
            with builder.at(branch.regions[0]):
                builder.create("scf.yield", builder.emit("nest.load", pointer, type=type_))
            with builder.at(branch.regions[1]):
                builder.create("scf.yield", other)
            return branch.result
        if mask is not None:
            mask = self.spread(mask, number, lanes)
            assert other is not None, "a masked load has a fill value"
            other = self.spread(other, number, lanes)
        if not isinstance(form.root, tuple) and self.is_contiguous(form):
            pointer = self.address(form, number, root)
            if mask is None or other is None:
                return builder.emit("nest.load", pointer, type=type_, **attrs)
            return builder.emit("nest.masked_load", pointer, mask, other, type=type_)
        pointers = self.lane_pointers(form, number, root)
        if mask is None:
            mask = self.spread(builder.i1(True), number, lanes)
            other = self.spread(builder.constant(0, element), number, lanes)
        assert other is not None, "a masked load has a fill value"
        return builder.emit("nest.gather", pointers, mask, other)

    def block_form(self, strides: tuple[int, ...], map_: IndexMap, offset: int = 0) -> Form:
        """The form of a scratch block's element offsets."""
        form = Form(Poly.constant(offset))
        for entry, stride in zip(map_, strides, strict=True):
            if is_fixed(entry):
                form.base = form.base + Poly.constant(stride * (-1 - entry))
            else:
                form.strides[entry] = form.strides.get(entry, ZERO) + Poly.constant(stride)
        return form

    def block_pointer(self, block: Block) -> Value:
        level = self.levels[0]
        key = ("block", block)
        if key not in level.memo:
            level.memo[key] = self.context.scratch.block_address(level.builder, block)
        self.context.scratch.touch(block.buffer)
        return level.memo[key]

    def read(self, block: Block, map_: IndexMap, number: int) -> Value:
        """An element, or lanes, of a block in scratch."""
        form = self.block_form(block.strides, map_)
        lanes = self.lanes if self.is_vector(frozenset(form.strides)) else 1
        stored = storage_type(block.element)
        found = self._fetch(form, number, lanes, stored, None, None, root=self.block_pointer(block))
        return self.from_storage(found, block.element, number)

    def from_storage(self, value: Value, element: Type, number: int) -> Value:
        builder = self.levels[number].builder
        if element is I1:
            zero = builder.constant(0, value.type)
            return builder.emit("arith.cmpi", value, zero, predicate="ne")
        if isinstance(element, PointerType):
            return builder.emit("ptr.cast", value, type=_like(value, element))
        return value

    def to_storage(self, value: Value, number: int) -> Value:
        builder = self.levels[number].builder
        if element_type(value.type) is I1:
            return builder.emit("arith.extui", value, type=_like(value, I8))
        if is_pointer(value.type):
            return builder.emit("ptr.cast", value, type=_like(value, I64))
        return value

    def _gather_block(self, op: Operation, map_: IndexMap, number: int, lanes: int) -> Value:
        """tile.gather from a block in scratch; indices are taken to be in range."""
        source, index = op.operands
        block = self.is_stored(source)
        if block is None:
            raise self.context.missing(source)
        axis = op.attrs["axis"]
        rest = tuple(-1 if position == axis else entry for position, entry in enumerate(map_))
        form = self.block_form(block.strides, rest)
        form.opaque[(index, map_)] = Poly.constant(block.strides[axis])
        found = self._fetch(
            form, number, lanes, storage_type(block.element), None, None,
            root=self.block_pointer(block),
        )  # fmt: skip
        return self.from_storage(found, block.element, number)


def extend_pointer(value: Value) -> Value:
    assert is_pointer(value.type), f"expected pointers, got {value.type}"
    return value


def _lanes_of(value: Value) -> int:
    return shape_of(value.type)[0] if shape_of(value.type) else 1
