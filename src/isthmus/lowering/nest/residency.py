"""Where values live once the items are fixed: registers of one nest, or blocks in scratch.

Going backwards through the program, this finds the items that need each value. A costly value
that several items need is computed in the first of them and stored for the others; a cheap one
is computed again. Afterwards, blocks are laid over the homes of carried values where nothing
reads the old value any more, so that accumulators are updated in place.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from isthmus.ir.core import Value
from isthmus.ir.types import element_type, shape_of
from isthmus.lowering.nest.lazy import CHEAP, is_block, is_lazy
from isthmus.lowering.nest.maps import IndexMap, identity_map, nest_shape, operand_map
from isthmus.lowering.nest.memory import Block
from isthmus.lowering.nest.roots import ControlItem, DotItem, MaterialiseRoot, Nest

if TYPE_CHECKING:
    from isthmus.lowering.nest.context import Context
    from isthmus.lowering.nest.schedule import Schedule

__all__ = ["Residency"]


class Residency:
    """Reads of each block by item, after `settle`."""

    def __init__(self, context: Context, schedule: Schedule) -> None:
        self.context = context
        self.schedule = schedule
        #: Block version -> (item, whether every lane reads only its own element there).
        self.reads: dict[Block, list[tuple[int, bool]]] = {}
        self._needs: dict[Value, dict[int, set[IndexMap]]] = {}
        self._queue: list[tuple[int, int, Value]] = []

    def settle(self) -> None:
        for index, item in enumerate(self.schedule.items):
            if isinstance(item, Nest):
                for root in item.roots:
                    for value in root.inputs:
                        self._need(value, index, root.map if is_block(value) else ())
            elif isinstance(item, DotItem):
                self._dot_reads(index, item)
            else:
                self._control_reads(index, item)
        while self._queue:
            _, _, value = heapq.heappop(self._queue)
            self._resolve(value, self._needs[value])
        end = len(self.schedule.items)
        for position, block in self.schedule.forwarded.items():
            del position
            self.reads.setdefault(block.version, []).append((end, False))

    def _need(self, value: Value, item: int, map_: IndexMap) -> None:
        if not is_block(value):
            return
        needs = self._needs.get(value)
        if needs is None:
            needs = self._needs[value] = {}
            position = self.context.position_of_value(value)
            heapq.heappush(self._queue, (-position, len(self._needs), value))
        needs.setdefault(item, set()).add(map_)

    def _dot_reads(self, index: int, item: DotItem) -> None:
        for operand, load in zip(item.op.operands[:2], item.loads, strict=True):
            if load is None:
                self._read(operand, index, False)
        if item.accumulates:
            self._read(item.acc, index, True)

    def _control_reads(self, index: int, item: ControlItem) -> None:
        for inner in item.op.walk():
            if inner is item.op:
                continue  # initial values are read by the nests that put them into their homes
            for operand in inner.operands:
                if is_block(operand) and operand in self.context.blocks:
                    self._read(operand, index, False)
                elif is_block(operand):
                    self._outer_reads(operand, index, set())

    def _outer_reads(self, value: Value, index: int, seen: set[Value]) -> None:
        """Blocks under a lazy value that control flow uses."""
        if value in seen or not is_block(value):
            return
        seen.add(value)
        if value in self.context.blocks:
            self._read(value, index, False)
            return
        if value in self.context.forms.inductions:
            self._outer_reads(self.context.forms.inductions[value][0], index, seen)
            return
        op = value.defining_op
        if op is not None and is_lazy(op):
            for operand in op.operands:
                self._outer_reads(operand, index, seen)

    def _read(self, value: Value, item: int, aligned: bool) -> None:
        block = self.context.blocks[value]
        self.reads.setdefault(block.version, []).append((item, aligned))

    def _resolve(self, value: Value, needs: dict[int, set[IndexMap]]) -> None:
        context, schedule = self.context, self.schedule
        own_map = identity_map(shape_of(value.type))
        shape = nest_shape(shape_of(value.type))

        def is_aligned(item: int) -> bool:
            nest = schedule.items[item]
            return isinstance(nest, Nest) and nest.shape == shape and needs[item] == {own_map}

        block = context.blocks.get(value)
        computing = set(needs)
        if block is None and value not in context.forms.inductions:
            first = min(needs)
            nest = schedule.items[first]
            if (
                len(needs) > 1
                and isinstance(nest, Nest)
                and not nest.is_sequential
                and nest.shape == shape
                and own_map in needs[first]
                and context.costs.of(value) > CHEAP
                and not context.costs.is_index(value)
            ):
                block = Block(
                    shape_of(value.type), element_type(value.type), schedule, first, first
                )
                nest.add(MaterialiseRoot((value,), block))
                context.blocks[value] = block
                context.costs.forget()
        if block is not None:
            computing = {k for k in needs if block.owner is schedule and k <= block.item}
            for item in needs:
                if item not in computing:
                    self.reads.setdefault(block.version, []).append((item, is_aligned(item)))
        if value in context.forms.inductions:
            for item in computing:
                for map_ in needs[item]:
                    self._need(context.forms.inductions[value][0], item, map_)
            return
        op = value.defining_op
        if op is None or not is_lazy(op):
            return
        for item in computing:
            for map_ in needs[item]:
                for position, operand in enumerate(op.operands):
                    self._need(operand, item, operand_map(op, position, map_, value.index))

    # In-place updates ------------------------------------------------------------------------

    def lay_over(self, homes: dict[int, Block], arguments: dict[int, Block]) -> set[int]:
        """Let forwarded blocks live in their homes; the positions that still need a copy.

        `arguments` are blocks that hold carried values at the start, by position; those may be
        overwritten once they are no longer read.
        """
        mine = set(arguments.values())
        for item in range(len(self.schedule.items)):
            dot = self.schedule.items[item]
            if isinstance(dot, DotItem) and dot.accumulates:
                acc = self.context.blocks[dot.acc]
                if (acc.owner is self.schedule or acc in mine) and self._dies_at(acc, item):
                    dot.result.base = acc
        copies: set[int] = set()
        taken: set[Block] = set()
        for position, source in self.schedule.forwarded.items():
            home = homes[position]
            if source.storage is home.storage:
                continue
            storage = source.storage
            if (
                storage.owner is not self.schedule
                or storage in taken
                or storage in mine
                or not self._may_take(storage, arguments.get(position))
            ):
                copies.add(position)
                continue
            storage.base = home
            taken.add(storage)
        return copies

    def _dies_at(self, block: Block, item: int) -> bool:
        reads = self.reads.get(block.version, [])
        at_item = [aligned for k, aligned in reads if k == item]
        return all(k <= item for k, _ in reads) and at_item == [True]

    def _may_take(self, block: Block, old: Block | None) -> bool:
        """Whether `block` may be written over `old`, the value that its home holds before."""
        if old is None:
            return True
        first = block.first
        writer = self.schedule.items[first]
        for item, aligned in self.reads.get(old.version, []):
            if item < first:
                continue
            if item == first and aligned and isinstance(writer, Nest):
                continue
            return False
        return True
