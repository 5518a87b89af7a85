"""One nest, emitted: loop order, vectorised dimension, fast and masked parts, bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.ir.builder import Builder
from isthmus.ir.core import Region, Value
from isthmus.ir.types import I64
from isthmus.lowering.nest.accumulate import Combine, lanes_of
from isthmus.lowering.nest.affine import Form
from isthmus.lowering.nest.expressions import Expressions, Level
from isthmus.lowering.nest.limits import Limits
from isthmus.lowering.nest.maps import IndexMap
from isthmus.lowering.nest.memory import Block
from isthmus.lowering.nest.roots import (
    AtomicRoot,
    HistogramRoot,
    MaterialiseRoot,
    Nest,
    ReduceRoot,
    Root,
    ScanRoot,
    StoreRoot,
)
from isthmus.lowering.nest.sequential import emit_atomic, emit_count, emit_zeros
from isthmus.lowering.nest.shape import NestShape

if TYPE_CHECKING:
    from isthmus.lowering.nest.context import Context
    from isthmus.lowering.nest.schedule import Schedule

__all__ = ["NestEmitter"]


@dataclass(slots=True)
class Part:
    """A stretch of the innermost loop: [lower, upper) by `lanes`.

    kind: "fast" where all provable masks hold, "dead" where they are all off, "masked" between.
    """

    lower: Value | int
    upper: Value | int
    lanes: int
    kind: str = "masked"


@dataclass(slots=True)
class _Running:
    """The accumulators of one reduction or scan: None before the first element."""

    combine: Combine
    state: list[Value] | None = None
    finished: list[Value] | None = None


class NestEmitter(Expressions):
    """Emits one nest at the builder's insertion point."""

    def __init__(
        self, context: Context, schedule: Schedule, item: int, nest: Nest, builder: Builder
    ) -> None:
        super().__init__(context, schedule, item, nest, builder)
        self.nest = nest
        self.plan = NestShape(self, nest)
        self.vector = self.plan.vector
        self.order = self.plan.order
        self.running: dict[Root, _Running] = {
            root: _Running(Combine(context, root.op))
            for root in nest.roots
            if isinstance(root, ReduceRoot | ScanRoot) and root.axis is not None
        }

    def emit(self) -> None:
        with self.context.scratch.one_time():
            for root in self.nest.roots:
                if isinstance(root, HistogramRoot):
                    emit_zeros(self, root.block)
            self._open(0)

    # Loops -----------------------------------------------------------------------------------

    def _open(self, depth: int) -> None:
        if not self.order:
            self._body()
            self._finish()
            return
        if depth == len(self.order) - 1:
            self._innermost(depth)
            return
        dimension = self.order[depth]
        extent = self.shape[dimension]
        parts = [Part(0, extent, 1)]
        if dimension == self.vector:
            parts = self._even_parts(0, extent)
        for part in parts:
            if dimension == self.vector:
                self.lanes = part.lanes
            region = Region([I64])
            self._push(Builder(region), dimension, region.args[0], depth)
            self._open(depth + 1)
            self.levels[-1].builder.create("scf.yield")
            self.levels.pop()
            self._loop(part, [], region)

    def _push(self, builder: Builder, dimension: int, index: Value, depth: int) -> None:
        """Enter the body of the loop over `dimension`, which `builder` appends to."""
        if self.nest.is_scan and dimension == self.nest.axis and self._is_reversed():
            last = builder.i64(self.shape[dimension] - 1)
            index = builder.emit("arith.subi", last, index)
        self.levels.append(Level(builder, index))
        self.level_of_dimension[dimension] = depth + 1

    def _is_reversed(self) -> bool:
        root = self.nest.roots[0]
        return isinstance(root, ScanRoot) and bool(root.op.attrs.get("reverse"))

    def _loop(self, part: Part, initial: list[Value], region: Region) -> list[Value]:
        """Close a filled loop body."""
        builder = self.levels[-1].builder
        lower, upper = (
            builder.i64(bound) if isinstance(bound, int) else bound
            for bound in (part.lower, part.upper)
        )
        step = builder.i64(part.lanes)
        types = [value.type for value in initial]
        op = builder.create("scf.for", lower, upper, step, *initial, type=types, regions=[region])
        return op.results

    def _even_parts(self, start: int, extent: int) -> list[Part]:
        """Parts that cover [start, extent) with whole vectors, the widest first."""
        parts: list[Part] = []
        for lanes in (self.plan.width, self.plan.base):
            end = start + (extent - start) // lanes * lanes
            if end > start:
                parts.append(Part(start, end, lanes))
                start = end
        if start < extent:
            parts.append(Part(start, extent, extent - start))
        return parts

    def _parts(self, dimension: int, depth: int) -> list[Part]:
        """The parts of the innermost loop, in order: fast, masked, dead, and odd lanes."""
        extent = self.shape[dimension]
        limits = Limits(self, self.nest, dimension)
        splits = not self._is_reversed() and limits.find()  # limits count from index 0
        along_lanes = dimension == self.vector
        if not splits:
            return self._even_parts(0, extent) if along_lanes else [Part(0, extent, 1)]
        width, base = (self.plan.width, self.plan.base) if along_lanes else (1, 1)
        parts: list[Part] = []
        start = 0
        if any(not running.combine.has_identity for running in self.running.values()):
            width, start = base, base
            parts.append(Part(0, base, base))
        even = extent // base * base
        at: Value | int = start
        if limits.fast is not None:
            end = self._rounded(limits.fast, start, width, even, up=False)
            parts.append(Part(at, end, width, "fast"))
            at = end
        if limits.live is not None:
            end = self._rounded(limits.live, start, base, even, up=True)
            parts.append(Part(at, end, base))
            if not limits.is_idle_when_dead():
                parts.append(Part(end, even, base, "dead"))
        else:
            parts.append(Part(at, even, base))
        if even < extent:
            parts.append(Part(even, extent, extent - even))
        return parts

    def _rounded(self, limit: Value, start: int, step: int, extent: int, *, up: bool) -> Value:
        """`limit` as a whole number of steps from `start`, in [start, extent]."""
        builder = self.levels[-1].builder
        if up:
            limit = builder.emit("arith.minsi", limit, builder.i64(extent))
        if start:
            limit = builder.emit("arith.subi", limit, builder.i64(start))
            limit = builder.emit("arith.maxsi", limit, builder.i64(0))
        if step > 1:
            if up:
                limit = builder.emit("arith.addi", limit, builder.i64(step - 1))
            limit = builder.emit("arith.divui", limit, builder.i64(step))
            limit = builder.emit("arith.muli", limit, builder.i64(step))
        return builder.emit("arith.addi", limit, builder.i64(start)) if start else limit

    def _innermost(self, depth: int) -> None:
        dimension = self.order[depth]
        parts = self._parts(dimension, depth)
        for part in parts:
            if dimension == self.vector:
                self._change_lanes(part.lanes)
                self.lanes = part.lanes
            self.known = self.plan.known if part.kind == "fast" else set()
            self.off = self.plan.off if part.kind == "dead" else set()
            self._run_part(part, dimension, depth)
            self.known = self.off = set()
        self._finish()

    def _run_part(self, part: Part, dimension: int, depth: int) -> None:
        outer = self.levels[-1].builder
        for running in self.running.values():
            if running.state is None and running.combine.has_identity:
                running.state = running.combine.identity(outer, self.lanes)
        if any(running.state is None for running in self.running.values()):
            self._peel(part, dimension, depth)
            if part.lower == part.upper:
                return
        initial = [value for r in self.running.values() for value in r.state or ()]
        region = Region([I64, *(value.type for value in initial)])
        arguments = iter(region.args[1:])
        for running in self.running.values():
            running.state = [next(arguments) for _ in running.state or ()]
        self._push(Builder(region), dimension, region.args[0], depth)
        self.innermost = depth + 1
        self._body()
        carried = [value for r in self.running.values() for value in r.state or ()]
        self.levels[-1].builder.create("scf.yield", *carried)
        self.levels.pop()
        self.innermost = -1
        results = iter(self._loop(part, initial, region))
        for running in self.running.values():
            running.state = [next(results) for _ in running.state or ()]

    def _peel(self, part: Part, dimension: int, depth: int) -> None:
        """Run the first iteration on its own, to start accumulators that have no identity."""
        assert isinstance(part.lower, int), "combines without identity are not split by masks"
        outer = self.levels[-1].builder
        self._push(outer, dimension, outer.i64(part.lower), depth)
        self.innermost = depth + 1
        self._body()
        self.levels.pop()
        self.innermost = -1
        part.lower += part.lanes

    def _change_lanes(self, lanes: int) -> None:
        """Make running accumulators fit vectors of `lanes`, or put them aside as scalars."""
        builder = self.levels[-1].builder
        for running in self.running.values():
            if running.state is None or self.nest.axis != self.vector:
                continue
            width = lanes_of(running.state[0])
            ratio = width // lanes
            if width % lanes == 0 and ratio & (ratio - 1) == 0:
                running.state = running.combine.fold(builder, running.state, lanes)
            else:
                self._put_aside(running, builder)

    def _put_aside(self, running: _Running, builder: Builder) -> None:
        assert running.state is not None, "nothing to put aside"
        total = running.combine.fold(builder, running.state)
        if running.finished is not None:
            total = running.combine.combine(builder, running.finished, total)
        running.finished, running.state = total, None

    # Bodies ----------------------------------------------------------------------------------

    def _body(self) -> None:
        """All roots at the current indices: first what they read, then what they write."""
        number = len(self.levels) - 1
        inputs = {root: self._inputs(root, number) for root in self.nest.roots}
        for root, values in inputs.items():
            self._perform(root, values, number)

    def _inputs(self, root: Root, number: int) -> list[Value | None]:
        if isinstance(root, StoreRoot):
            masked = len(root.inputs) > 2
            if masked and (root.inputs[2], root.map) in self.off:
                return [None, None]
            mask = self.mask(root.op.operands[2], root.map, number) if masked else None
            return [self.value(root.inputs[1], root.map), mask]
        if isinstance(root, AtomicRoot):
            masked = root.op.name == "tile.atomic_rmw" and len(root.inputs) > 2
            values = root.inputs[1:2] if masked else root.inputs[1:]
            mask = self.mask(root.op.operands[2], root.map, number) if masked else None
            return [*(self.value(value, root.map) for value in values), mask]
        return [self.value(value, root.map) for value in root.inputs]

    def _perform(self, root: Root, values: list[Value | None], number: int) -> None:
        if isinstance(root, StoreRoot):
            value, mask = values
            if value is None:
                return  # known to be masked off
            self.write(self.forms.form(root.inputs[0], root.map), value, mask, number)
        elif isinstance(root, MaterialiseRoot):
            assert values[0] is not None, "a block has a value"
            self.write_block(root.block, root.strides, root.map, values[0], number, root.offset)
        elif isinstance(root, ReduceRoot | ScanRoot):
            self._accumulate(root, [value for value in values if value is not None], number)
        elif isinstance(root, AtomicRoot):
            emit_atomic(self, root, values, number)
        elif isinstance(root, HistogramRoot):
            emit_count(self, root, values, number)

    def _accumulate(self, root: ReduceRoot | ScanRoot, values: list[Value], number: int) -> None:
        running = self.running.get(root)
        if running is None:
            self._keep_single(root, values, number)
            return
        builder = self.levels[number].builder
        values = [self.spread(value, number, self.lanes) for value in values]
        if running.state is None:
            running.state = values
        else:
            running.state = running.combine.combine(builder, running.state, values)
        if isinstance(root, ScanRoot):
            for block, value in zip(root.blocks, running.state, strict=True):
                self.write_block(block, block.strides, root.map, value, number)

    def _keep_single(self, root: ReduceRoot | ScanRoot, values: list[Value], number: int) -> None:
        """A reduction or scan along an axis of size 1: the element itself."""
        map_ = root.map
        if isinstance(root, ReduceRoot):
            axis = root.op.attrs["axis"]
            map_ = map_[:axis] + map_[axis + 1 :]
        for result, block, value in zip(root.op.results, root.blocks, values, strict=True):
            if block is None:
                self.context.env[result] = value
            else:
                self.write_block(block, block.strides, map_, value, number)

    def _finish(self) -> None:
        """After the innermost loop: reduced values to their blocks, or to scalars."""
        number = len(self.levels) - 1
        builder = self.levels[number].builder
        for root, running in self.running.items():
            if not isinstance(root, ReduceRoot):
                continue
            if self.nest.axis is not None and self.nest.axis == self.vector:
                if running.state is not None:
                    self._put_aside(running, builder)
                state = running.finished
            else:
                state = running.state
            running.state = running.finished = None
            assert state is not None, "a reduction has at least one element"
            axis = root.op.attrs["axis"]
            map_ = root.map[:axis] + root.map[axis + 1 :]
            for result, block, value in zip(root.op.results, root.blocks, state, strict=True):
                if block is None:
                    self.context.env[result] = value
                else:
                    self.write_block(block, block.strides, map_, value, number)
        for running in self.running.values():
            running.state = running.finished = None

    # Writing ---------------------------------------------------------------------------------

    def write_block(
        self, block: Block, strides: tuple[int, ...], map_: IndexMap, value: Value, number: int,
        offset: int = 0,
    ) -> None:  # fmt: skip
        form = self.block_form(strides, map_, offset)
        stored = self.to_storage(value, number)
        self.write(form, stored, None, number, self.block_pointer(block))

    def write(
        self, form: Form, value: Value, mask: Value | None, number: int,
        root: Value | None = None,
    ) -> None:  # fmt: skip
        """Write a scalar, consecutive lanes, or lanes one by one."""
        builder = self.levels[number].builder
        dimensions = self.form_dimensions(form)
        lanes = max(
            self.lanes if self.is_vector(dimensions) else 1,
            lanes_of(value),
            1 if mask is None else lanes_of(mask),
        )
        if lanes == 1:
            pointer = (
                self.address(form, number, root)
                if root is not None
                else self.scalar_pointer(form, number)
            )
            if mask is None:
                builder.create("nest.store", value, pointer)
                return
            branch = builder.if_else(mask)
            with builder.at(branch.regions[0]):
                builder.create("nest.store", value, pointer)
                builder.create("scf.yield")
            with builder.at(branch.regions[1]):
                builder.create("scf.yield")
            return
        value = self.spread(value, number, lanes)
        mask = None if mask is None else self.spread(mask, number, lanes)
        if not isinstance(form.root, tuple) and self.is_contiguous(form):
            pointer = self.address(form, number, root)
            if mask is None:
                builder.create("nest.store", value, pointer)
            else:
                builder.create("nest.masked_store", value, pointer, mask)
            return
        pointers = self.lane_pointers(form, number, root)
        if mask is None:
            mask = self.spread(builder.i1(True), number, lanes)
        builder.create("nest.scatter", value, pointers, mask)
