"""Grouping the operations of one straight-line region into a sequence of fused nests.

The result is a list of items (nests, products, control flow) with slots of scalar operations
before, between and after them: slot 0, item 0, slot 1, item 1, ... Roots (stores, reductions,
blocks needed in scratch) are placed in program order, each in the earliest item that its
operands and the order of memory accesses allow; everything else is lazy and follows its roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.ir.core import Operation, Region, Value
from isthmus.ir.types import element_type, shape_of
from isthmus.lowering.nest.aliases import READS, WRITES
from isthmus.lowering.nest.lazy import (
    EXPENSIVE_PER_LANE,
    is_block,
    is_lazy,
    is_scalar,
    is_view,
)
from isthmus.lowering.nest.maps import IndexMap, identity_map, nest_shape, operand_map
from isthmus.lowering.nest.memory import Block, row_major
from isthmus.lowering.nest.products import accumulated_dot, direct_load, is_zero
from isthmus.lowering.nest.roots import (
    AtomicRoot,
    ControlItem,
    DotItem,
    HistogramRoot,
    Item,
    MaterialiseRoot,
    Nest,
    ReduceRoot,
    Root,
    ScanRoot,
    StoreRoot,
)

if TYPE_CHECKING:
    from isthmus.lowering.nest.context import Context

__all__ = ["Schedule"]

_IGNORED = ("tile.barrier", "tile.print", "tile.assert")


class Schedule:
    """The items and slots of one region, made by `run`."""

    def __init__(self, context: Context, region: Region) -> None:
        self.context = context
        self.region = region
        self.items: list[Item] = []
        self.slots: list[list[Operation]] = [[]]
        #: Blocks that the terminator forwards: operand position -> block that holds the value.
        self.forwarded: dict[int, Block] = {}
        self._ready: dict[Value, int] = {}
        self._floor = 0
        self._load_floor: dict[Operation, int] = {}
        self._load_items: dict[Operation, list[tuple[int, IndexMap | None]]] = {}
        self._scalar_loads: list[tuple[Operation, int]] = []
        self._writes: list[tuple[Operation, int, bool]] = []
        self._nodes: list[set[Value]] = []
        self._delayed: dict[Operation, Operation] = {}

    def run(self, forwards: dict[int, Value]) -> None:
        """Schedule all operations; `forwards` are block operands of the terminator to keep."""
        for op in self.region.ops[:-1]:
            self._process(op)
        for position, value in forwards.items():
            self.forwarded[position] = self._forward(value)

    # One operation ---------------------------------------------------------------------------

    def _process(self, op: Operation) -> None:
        if op.name in _IGNORED:
            self.context.ignored.add(op.name)
        elif op.name.startswith("scf."):
            self._control(op)
        elif is_scalar(op):
            self._scalar(op)
        elif is_view(op):
            self.force(op.operands[0])
            source = self.context.blocks[op.operands[0]]
            self._define(
                op.result, self.new_block(op.result, base=source, view_of=source), source.item
            )
        elif op in self._delayed:
            self._dot(self._delayed[op], op)
        elif op.name == "tile.load":
            self._load_floor[op] = self._after_writes(op)
        elif is_lazy(op):
            pass
        else:
            self._root(op)

    def _root(self, op: Operation) -> None:
        name = op.name
        if name == "tile.store":
            self._write(StoreRoot(tuple(op.operands), op), op)
        elif name == "tile.reduce":
            blocks = [self.new_block(r) if is_block(r) else None for r in op.results]
            self._define_all(op, blocks, self.place(ReduceRoot(tuple(op.operands), op, blocks)))
        elif name == "tile.scan":
            stored = [self.new_block(result) for result in op.results]
            self._define_all(op, stored, self.place(ScanRoot(tuple(op.operands), op, stored)))
        elif name in WRITES:
            block = self.new_block(op.result) if op.result.uses else None
            item = self._write(AtomicRoot(tuple(op.operands), op, block), op)
            if block is not None:
                self._define(op.result, block, item)
        elif name == "tile.histogram":
            block = self.new_block(op.result)
            root = HistogramRoot(tuple(op.operands), op, block)
            self._define(op.result, block, self.place(root))
        elif name in ("tile.cat", "tile.join"):
            self._combine(op)
        elif name == "tile.split":
            self.force(op.operands[0])
            ready = self._ready_of(op.operands[0])
            self.slots[ready].append(op)
            for result in op.results:
                self._ready[result] = ready
        elif name == "tile.dot":
            total = accumulated_dot(op)
            if total is None:
                self._dot(op, op)
            else:
                self._delayed[total] = op
        else:
            raise self.context.unsupported(op)

    def _combine(self, op: Operation) -> None:
        """cat and join: both operands are written into one block."""
        block = self.new_block(op.result)
        last = 0
        for position, operand in enumerate(op.operands):
            shape = shape_of(operand.type)
            if op.name == "tile.cat":
                strides, step = row_major(shape), row_major(shape)[0] * shape[0]
            else:
                strides, step = row_major((*shape, 2))[:-1], 1
            root = MaterialiseRoot((operand,), block, strides, position * step)
            item = self.place(root)
            block.first = item if position == 0 else min(block.first, item)
            last = max(last, item)
        self._define(op.result, block, last)

    def new_block(
        self, value: Value, base: Block | None = None, view_of: Block | None = None
    ) -> Block:
        return Block(
            shape_of(value.type), element_type(value.type), self, base=base, view_of=view_of
        )

    def _define(self, value: Value, block: Block, item: int) -> None:
        block.item = item
        if block.first < 0:
            block.first = item
        self.context.blocks[value] = block
        self.context.costs.forget()
        self._ready[value] = item + 1

    def _define_all(self, op: Operation, blocks: Sequence[Block | None], item: int) -> None:
        for result, block in zip(op.results, blocks, strict=True):
            if block is None:
                self._ready[result] = item + 1
            else:
                self._define(result, block, item)

    # Readiness -------------------------------------------------------------------------------

    def _ready_of(self, value: Value, memo: dict[Value, int] | None = None) -> int:
        """The first slot at which `value` can be used, or computed where it is lazy."""
        known = self._ready.get(value)
        if known is not None:
            return known
        if value in self.context.blocks:
            return 0
        memo = {} if memo is None else memo
        found = memo.get(value)
        if found is None:
            memo[value] = 0
            op = value.defining_op
            found = 0
            if value in self.context.forms.inductions:
                found = self._ready_of(self.context.forms.inductions[value][0], memo)
            elif op is not None and op.parent is self.region:
                found = max((self._ready_of(v, memo) for v in op.operands), default=0)
                found = max(found, self._load_floor.get(op, 0))
            memo[value] = found
        return found

    def _after_writes(self, op: Operation) -> int:
        """The first slot at which what `op` reads or writes is no longer being written."""
        mine = self.context.aliases.access(op)
        bound = 0
        for other, index, is_item in self._writes:
            if self._conflicts(op, mine, other):
                bound = max(bound, index + 1 if is_item else index)
        return bound

    def _conflicts(self, op: Operation, access: object, other: Operation) -> bool:
        aliases = self.context.aliases
        inner = [o for o in other.walk() if o.name in READS] if other.regions else [other]
        return any(
            aliases.may_overlap(access, aliases.access(o))  # type: ignore[arg-type]
            and not (o is other and aliases.are_disjoint(op, o))
            for o in inner
        )

    # Scalars ---------------------------------------------------------------------------------

    def _scalar(self, op: Operation) -> None:
        slot = max([self._floor, *(self._ready_of(operand) for operand in op.operands)])
        if op.name in WRITES:
            slot = max(slot, self._write_bound(op, {})[0])
            self._writes.append((op, slot, False))
        elif op.name == "tile.load":
            slot = max(slot, self._after_writes(op))
            self._scalar_loads.append((op, slot))
        self.slots[slot].append(op)
        for result in op.results:
            self._ready[result] = slot

    # Writes ----------------------------------------------------------------------------------

    def _write(self, root: Root, op: Operation) -> int:
        for value in root.inputs:
            self._prepare(value)
        own = self._loads_under(root)
        lowest, forced = self._write_bound(op, own)
        item = self.place(root, lowest if not forced else self._write_bound(op, own)[0])
        self._writes.append((op, item, True))
        return item

    def _write_bound(self, op: Operation, own: dict[Operation, list[IndexMap]]) -> tuple[int, bool]:
        """The first slot or item that may hold the write `op`, forcing loads that it would spoil.

        `own` are the loads that the write itself needs.
        """
        context = self.context
        access = context.aliases.access(op)
        shape = nest_shape(shape_of(op.operands[0].type))
        is_store = op.name == "tile.store" and bool(shape)
        bound, forced = 0, False
        for other, index, is_item in self._writes:
            if self._conflicts(op, access, other):
                together = (
                    is_item
                    and is_store
                    and other.name == "tile.store"
                    and nest_shape(shape_of(other.operands[0].type)) == shape
                    and context.aliases.same_elements(
                        other, identity_map(shape_of(other.operands[0].type)), op, shape
                    )
                )
                bound = max(bound, index + 1 if is_item and not together else index)
        for other, slot in self._scalar_loads:
            if self._conflicts(op, access, other):
                bound = max(bound, slot)
        for load in self._load_floor:
            if not self._conflicts(op, access, load):
                continue

            def same(map_: IndexMap | None, load: Operation = load) -> bool:
                return (
                    is_store
                    and map_ is not None
                    and context.aliases.same_elements(load, map_, op, shape)
                )

            pending = context.last_use(load.result) > context.position(op)
            spoiled = load in own and not all(same(map_) for map_ in own[load])
            if (pending or spoiled) and load.result not in context.blocks:
                self.force(load.result)
                forced = True
            for item, map_ in self._load_items.get(load, ()):
                bound = max(bound, item if same(map_) else item + 1)
        return bound, forced

    # Control flow ----------------------------------------------------------------------------

    def _control(self, op: Operation) -> None:
        context = self.context
        own = set(op.walk())
        for inner in own:
            for operand in inner.operands:
                if is_block(operand) and not _is_inside(operand, op):
                    self._keep(operand)
        effects = [o for o in own if o.name in WRITES]
        for load in self._load_floor:
            if (
                load.result not in context.blocks
                and context.last_use(load.result) > context.position(op)
                and any(self._conflicts(load, context.aliases.access(load), o) for o in effects)
            ):
                self.force(load.result)
        homes = {
            position: self.new_block(result)
            for position, result in enumerate(op.results)
            if is_block(result)
        }
        context.control.prepare(self, op, homes)
        index = self._append(ControlItem(op, homes))
        if effects:
            self._writes.append((op, index, True))
        reads = [o for o in own if o.name == "tile.load"]
        self._scalar_loads.extend((o, index + 1) for o in reads)
        for position, result in enumerate(op.results):
            if position in homes:
                self._define(result, homes[position], index)
            self._ready[result] = index + 1
        self._floor = index + 1

    def _keep(self, value: Value) -> None:
        """Make an outer value usable inside control flow: index arithmetic stays lazy."""
        if value in self.context.blocks:
            return
        if value in self.context.forms.inductions:
            self._keep(self.context.forms.inductions[value][0])
            return
        op = value.defining_op
        if self.context.costs.is_index(value):
            for operand in op.operands if op is not None else ():
                if is_block(operand):
                    self._keep(operand)
            return
        self.force(value)

    def _forward(self, value: Value) -> Block:
        """The block that holds a value the terminator forwards."""
        block = self.context.blocks.get(value)
        if block is not None and block.owner is self:
            return block
        if block is not None or value.defining_op is None:
            return self._copy(value)
        if value.defining_op.parent is not self.region:
            return self._copy(value)
        self.force(value)
        return self.context.blocks[value]

    def _copy(self, value: Value) -> Block:
        copy = self.new_block(value)
        copy.first = copy.item = self.place(MaterialiseRoot((value,), copy))
        return copy

    def carry_in(self, value: Value, home: Block) -> None:
        """Put the initial value of a carried block into its home."""
        home.first = self.place(MaterialiseRoot((value,), home))

    # Products --------------------------------------------------------------------------------

    def _dot(self, op: Operation, total: Operation) -> None:
        context = self.context
        lhs, rhs, acc = op.operands
        if total is not op:
            acc = total.operands[1] if total.operands[0] is op.result else total.operands[0]
        lowest = self._floor
        loads: list[Operation | None] = []
        swapped: list[bool] = []
        for operand in (lhs, rhs):
            load, swap = direct_load(context, operand)
            if load is not None and load.parent is not self.region:
                load = None
            loads.append(load)
            swapped.append(swap)
            if load is None:
                self.force(operand)
            lowest = max(lowest, self._ready_of(load.result if load is not None else operand))
        accumulates = not is_zero(acc)
        if accumulates:
            self.force(acc)
            lowest = max(lowest, self._ready_of(acc))
        del lowest  # products come in program order, after everything before them
        result = self.new_block(total.result)
        index = self._append(DotItem(op, total, acc, result, accumulates, loads, swapped))
        for load in loads:
            if load is not None:
                self._load_items.setdefault(load, []).append((index, None))
        self._define(total.result, result, index)

    # Placing ---------------------------------------------------------------------------------

    def _append(self, item: Item) -> int:
        self.items.append(item)
        self.slots.append([])
        self._nodes.append(set())
        return len(self.items) - 1

    def force(self, value: Value) -> int:
        """Make sure that `value` lies in scratch; the item that puts it there."""
        block = self.context.blocks.get(value)
        if block is not None:
            return block.item if block.owner is self else -1
        op = value.defining_op
        if value in self.context.forms.inductions or op is None or is_lazy(op):
            block = self.new_block(value)
            item = self.place(MaterialiseRoot((value,), block))
            self._define(value, block, item)
            return item
        raise self.context.unsupported(op)

    def place(self, root: Root, lowest: int = 0) -> int:
        """Put a root into the best item from `lowest` on; the number of the item."""
        for value in root.inputs:
            self._prepare(value)
        memo: dict[Value, int] = {}
        ready = max([lowest, self._floor, *(self._ready_of(v, memo) for v in root.inputs)])
        nodes: set[Value] = set()
        loads = self._loads_under(root, nodes)
        best, best_score = -1, -1
        for index in range(ready, len(self.items)):
            item = self.items[index]
            if isinstance(item, Nest) and item.accepts(root):
                score = len(nodes & self._nodes[index])
                if score > best_score:
                    best, best_score = index, score
        if best < 0:
            best = self._append(Nest(root.shape))
        nest = self.items[best]
        assert isinstance(nest, Nest), "roots live in nests"
        nest.add(root)
        self._nodes[best] |= nodes
        for load, maps in loads.items():
            self._load_items.setdefault(load, []).extend((best, map_) for map_ in maps)
        return best

    def _prepare(self, value: Value, seen: set[Value] | None = None) -> None:
        """Force what a nest cannot compute cheaply inside itself."""
        seen = set() if seen is None else seen
        if value in seen or not is_block(value) or value in self.context.blocks:
            return
        seen.add(value)
        op = value.defining_op
        if op is None or op.parent is not self.region or not is_lazy(op):
            return
        for operand in op.operands:
            self._prepare(operand, seen)
        if op.name == "tile.gather":
            self.force(op.operands[0])
        elif op.name == "tile.broadcast":
            source = op.operands[0]
            grows = shape_of(source.type) != shape_of(value.type)
            while (
                source.defining_op is not None
                and source.defining_op.name == "tile.expand_dims"
                and source not in self.context.blocks
            ):
                source = source.defining_op.operands[0]
            if (
                grows
                and nest_shape(shape_of(source.type))
                and self.context.costs.of(source) > EXPENSIVE_PER_LANE
                and not self.context.costs.is_index(source)
            ):
                self.force(source)

    def _loads_under(
        self, root: Root, nodes: set[Value] | None = None
    ) -> dict[Operation, list[IndexMap]]:
        """The loads that a root computes lazily, with their maps; `nodes` gets costly values."""
        found: dict[Operation, list[IndexMap]] = {}
        seen: set[tuple[Value, IndexMap]] = set()
        stack = [(value, root.map if is_block(value) else ()) for value in root.inputs]
        while stack:
            value, map_ = stack.pop()
            if (value, map_) in seen or not is_block(value):
                continue
            seen.add((value, map_))
            if value in self.context.blocks:
                if nodes is not None:
                    nodes.add(value)
                continue
            op = value.defining_op
            if value in self.context.forms.inductions:
                stack.append((self.context.forms.inductions[value][0], map_))
                continue
            if op is None or not is_lazy(op):
                continue
            if nodes is not None and not self.context.costs.is_index(value):
                nodes.add(value)
            if op.name == "tile.load":
                found.setdefault(op, []).append(map_)
            stack.extend(
                (operand, operand_map(op, position, map_, value.index))
                for position, operand in enumerate(op.operands)
            )
        return found


def _is_inside(value: Value, op: Operation) -> bool:
    """Whether `value` is defined within the regions of `op`."""
    owner = value.owner
    region = owner if isinstance(owner, Region) else owner.parent
    while region is not None:
        holder = region.owner
        if holder is op:
            return True
        region = holder.parent if isinstance(holder, Operation) else None
    return False
