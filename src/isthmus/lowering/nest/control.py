"""Loops and branches of the tile program, and the blocks and scalars they carry.

A carried block lives in one place, its home: the initial value is put there before the loop, and
each iteration leaves the next value there, in place where nothing reads the old one any more.
Carried index and pointer blocks that only move by a scalar each iteration are not stored at
all: they are their initial value plus a carried scalar offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.ir.builder import Builder
from isthmus.ir.core import Operation, Region, Value
from isthmus.ir.types import I32, I64, PointerType, TileType, Type, element_type
from isthmus.lowering.nest.affine import Form
from isthmus.lowering.nest.lazy import is_block
from isthmus.lowering.nest.loops import NestEmitter
from isthmus.lowering.nest.memory import Block
from isthmus.lowering.nest.products import emit_product
from isthmus.lowering.nest.residency import Residency
from isthmus.lowering.nest.roots import ControlItem, DotItem, MaterialiseRoot, Nest
from isthmus.lowering.nest.scalars import emit_scalar
from isthmus.lowering.nest.schedule import Schedule

if TYPE_CHECKING:
    from isthmus.lowering.nest.context import Context

__all__ = ["Control"]


class Control:
    """Lowers regions: schedules them, emits their items, and carries values across."""

    def __init__(self, context: Context) -> None:
        self.context = context
        #: Loop results and arguments that are an initial block plus an offset:
        #: operation -> position -> (initial, offset inside, offset after).
        #: Blocks of the arguments of a while loop's test region, by position.
        self._inside: dict[Operation, dict[int, Block]] = {}
        self._offsets: dict[Operation, dict[int, tuple[Value, Value, Value]]] = {}

    # Regions ---------------------------------------------------------------------------------

    def region(
        self,
        region: Region,
        builder: Builder,
        homes: dict[int, Block],
        arguments: dict[int, Block] | None = None,
        skip: int = 0,
    ) -> list[Value]:
        """Lower a region into `builder`, leaving forwarded blocks in `homes`.

        `arguments` are the blocks of carried values by position; `skip` operands of the
        terminator come before the forwarded ones. Gives the scalar operands of the terminator.
        """
        schedule = Schedule(self.context, region)
        operands = region.terminator.operands
        forwards = {position: operands[position + skip] for position in homes}
        schedule.run(forwards)
        residency = Residency(self.context, schedule)
        residency.settle()
        copies = residency.lay_over(homes, arguments or {})
        self._emit(schedule, builder)
        self._copy_home(schedule, builder, homes, copies)
        return [self.context.scalar(operand) for operand in operands if not is_block(operand)]

    def _emit(self, schedule: Schedule, builder: Builder) -> None:
        context = self.context
        for index in range(len(schedule.items) + 1):
            for op in schedule.slots[index]:
                emit_scalar(context, builder, op)
            if index == len(schedule.items):
                break
            item = schedule.items[index]
            if isinstance(item, Nest):
                item.roots = [root for root in item.roots if not _is_idle(context, root)]
                if item.roots:
                    context.notes["nests"] += 1
                    NestEmitter(context, schedule, index, item, builder).emit()
            elif isinstance(item, DotItem):
                context.notes["products"] += 1
                self._product(schedule, index, item, builder)
            else:
                self._control(item, builder)

    def _product(self, schedule: Schedule, index: int, item: DotItem, builder: Builder) -> None:
        if item.accumulates:
            acc = self.context.blocks[item.acc]
            if acc.storage is not item.result.storage:
                self._copy(schedule, index, item.acc, item.result, builder)
        emit_product(self.context, builder, item)

    def _copy(
        self, schedule: Schedule, index: int, value: Value, home: Block, builder: Builder
    ) -> None:
        nest = Nest(MaterialiseRoot((value,), home).shape)
        nest.add(MaterialiseRoot((value,), home))
        NestEmitter(self.context, schedule, index, nest, builder).emit()

    def _copy_home(
        self, schedule: Schedule, builder: Builder, homes: dict[int, Block], copies: set[int]
    ) -> None:
        """Copy forwarded blocks that could not be made in place."""
        end = len(schedule.items)
        sources = {position: schedule.forwarded[position] for position in sorted(copies)}
        stores = {homes[position].storage for position in homes}
        for position, source in sources.items():
            if source.storage in stores:  # another home: save it before that is overwritten
                saved = Block(source.shape, source.element)
                self._move(schedule, end, source, saved, builder)
                sources[position] = saved
        for position, source in sources.items():
            self._move(schedule, end, source, homes[position], builder)

    def _move(
        self, schedule: Schedule, index: int, source: Block, home: Block, builder: Builder
    ) -> None:
        """Copy one block to another of the same shape."""
        stand_in = Value(_tile_type(source), schedule.region, -1)
        self.context.blocks[stand_in] = Block(
            source.shape, source.element, None, base=source.storage
        )
        self._copy(schedule, index, stand_in, home, builder)
        del self.context.blocks[stand_in]

    # Preparing (while the enclosing region is scheduled) -------------------------------------

    def prepare(self, schedule: Schedule, op: Operation, homes: dict[int, Block]) -> None:
        """Find carried offsets, and have initial blocks put into their homes."""
        if op.name == "scf.for":
            self._find_offsets(op, homes)
            for position, home in homes.items():
                initial = op.operands[3 + position]
                schedule.carry_in(initial, home)
                self.context.blocks[op.regions[0].args[1 + position]] = home
        elif op.name == "scf.while":
            inside: dict[int, Block] = {}
            for position, initial in enumerate(op.operands):
                if is_block(initial):
                    block = schedule.new_block(initial)
                    inside[position] = block
                    schedule.carry_in(initial, block)
                    self.context.blocks[op.regions[0].args[position]] = block
            self._inside[op] = inside
            for position, home in homes.items():
                self.context.blocks[op.regions[1].args[position]] = home

    def _find_offsets(self, op: Operation, homes: dict[int, Block]) -> None:
        """Carried index and pointer blocks that move by a scalar: no homes, but offsets."""
        forms = self.context.forms
        region = op.regions[0]
        found: dict[int, tuple[Value, Value, Value]] = {}
        for position in homes:
            argument = region.args[1 + position]
            element = element_type(argument.type)
            if element in (I32, I64) or isinstance(element, PointerType):
                inside, after = Value(I64, region, -1), Value(I64, region, -1)
                found[position] = (op.operands[3 + position], inside, after)
                forms.inductions[argument] = (op.operands[3 + position], inside)
        while True:
            forms.forget()
            bad = [p for p in found if self._step(op, p, found) is None]
            for position in bad:
                del found[position]
                del forms.inductions[region.args[1 + position]]
            if not bad:
                break
        forms.forget()
        for position, (initial, _, after) in found.items():
            del homes[position]
            forms.inductions[op.results[position]] = (initial, after)
        self.context.costs.forget()
        self._offsets[op] = found

    def _step(
        self, op: Operation, position: int, found: dict[int, tuple[Value, Value, Value]]
    ) -> Form | None:
        """The offset after one more iteration, when it is a scalar."""
        forms = self.context.forms
        initial = found[position][0]
        map_ = tuple(range(len(initial.type.shape)))  # type: ignore[attr-defined]
        after = forms.form(op.regions[0].terminator.operands[position], map_)
        before = forms.form(initial, map_)
        if after.root != before.root:
            return None
        moved = after.plus(before, -1)
        return moved if moved.is_uniform and moved.root is None else None

    # Emission --------------------------------------------------------------------------------

    def _control(self, item: ControlItem, builder: Builder) -> None:
        if item.op.name == "scf.for":
            self._for(item, builder)
        elif item.op.name == "scf.if":
            self._if(item, builder)
        elif item.op.name == "scf.while":
            self._while(item, builder)
        else:
            raise self.context.unsupported(item.op)

    def _for(self, item: ControlItem, builder: Builder) -> None:
        context, op = self.context, item.op
        region = op.regions[0]
        offsets = self._offsets.get(op, {})
        scalars = [p for p, value in enumerate(op.operands[3:]) if not is_block(value)]
        bounds = [context.scalar(value) for value in op.operands[:3]]
        zero = builder.i64(0)
        initial = [context.scalar(op.operands[3 + p]) for p in scalars]
        initial += [zero for _ in offsets]
        types = [value.type for value in initial]
        body = Region([bounds[0].type, *types])
        context.env[region.args[0]] = body.args[0]
        for argument, position in zip(body.args[1:], scalars, strict=False):
            context.env[region.args[1 + position]] = argument
        for argument, position in zip(body.args[1 + len(scalars) :], offsets, strict=True):
            context.env[offsets[position][1]] = argument
        arguments = {p: context.blocks[region.args[1 + p]] for p in item.homes}
        for home in item.homes.values():
            context.scratch.touch(home.buffer)
        context.scratch.open_loop()
        inner = Builder(body)
        yielded = self.region(region, inner, item.homes, arguments)
        for position in offsets:
            step = self._step(op, position, offsets)
            assert step is not None, "the step was found before"
            yielded.append(context.poly(inner, step.base))
        for home in item.homes.values():
            context.scratch.touch(home.buffer)
        inner.create("scf.yield", *yielded)
        context.scratch.close_loop()
        loop = builder.create("scf.for", *bounds, *initial, type=types, regions=[body])
        for result, position in zip(loop.results, scalars, strict=False):
            context.env[op.results[position]] = result
        for result, position in zip(loop.results[len(scalars) :], offsets, strict=True):
            context.env[offsets[position][2]] = result

    def _if(self, item: ControlItem, builder: Builder) -> None:
        context, op = self.context, item.op
        scalars = [value for value in op.results if not is_block(value)]
        regions = []
        for home in item.homes.values():
            context.scratch.touch(home.buffer)
        for region in op.regions:
            target = Region()
            inner = Builder(target)
            if region.ops:
                inner.create("scf.yield", *self.region(region, inner, item.homes))
            else:
                inner.create("scf.yield")
            regions.append(target)
        for home in item.homes.values():
            context.scratch.touch(home.buffer)
        branch = builder.create(
            "scf.if",
            context.scalar(op.operands[0]),
            type=[value.type for value in scalars],
            regions=regions,
        )
        for value, result in zip(scalars, branch.results, strict=True):
            context.env[value] = result

    def _while(self, item: ControlItem, builder: Builder) -> None:
        context, op = self.context, item.op
        test, body = op.regions
        inside = self._inside[op]
        initial = [context.scalar(value) for value in op.operands if not is_block(value)]
        forwarded = [value for value in op.results if not is_block(value)]
        for home in (*inside.values(), *item.homes.values()):
            context.scratch.touch(home.buffer)
        context.scratch.open_loop()
        new_test = Region([value.type for value in initial])
        scalars = [argument for argument in test.args if not is_block(argument)]
        context.env.update(zip(scalars, new_test.args, strict=True))
        inner = Builder(new_test)
        condition, *values = self.region(test, inner, item.homes, skip=1)
        inner.create("scf.condition", condition, *values)
        new_body = Region([value.type for value in values])
        scalars = [argument for argument in body.args if not is_block(argument)]
        context.env.update(zip(scalars, new_body.args, strict=True))
        inner = Builder(new_body)
        yielded = self.region(body, inner, inside)
        for home in (*inside.values(), *item.homes.values()):
            context.scratch.touch(home.buffer)
        inner.create("scf.yield", *yielded)
        context.scratch.close_loop()
        loop = builder.create(
            "scf.while",
            *initial,
            type=[value.type for value in forwarded],
            regions=[new_test, new_body],
        )
        context.env.update(zip(forwarded, loop.results, strict=True))


def _is_idle(context: Context, root: object) -> bool:
    """Whether a root would copy a block onto itself."""
    if not isinstance(root, MaterialiseRoot) or root.offset:
        return False
    block = context.blocks.get(root.inputs[0])
    return block is not None and block is not root.block and block.storage is root.block.storage


def _tile_type(block: Block) -> Type:
    return TileType(block.shape, block.element)
