"""What nests are made for: stores, reductions, scans, atomics, and blocks put in scratch."""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus.ir.core import Operation, Value
from isthmus.ir.types import shape_of
from isthmus.lowering.nest.maps import IndexMap, identity_map, is_fixed, nest_shape
from isthmus.lowering.nest.memory import Block, row_major

__all__ = [
    "AtomicRoot", "ControlItem", "DotItem", "HistogramRoot", "Item", "MaterialiseRoot", "Nest",
    "ReduceRoot", "Root", "ScanRoot", "StoreRoot",
]  # fmt: skip


@dataclass(slots=True, eq=False)
class Root:
    """One reason for a nest. `inputs` are evaluated at the nest's own indices."""

    inputs: tuple[Value, ...]

    @property
    def block_shape(self) -> tuple[int, ...]:
        return next(shape_of(v.type) for v in self.inputs if shape_of(v.type))

    @property
    def shape(self) -> tuple[int, ...]:
        return nest_shape(self.block_shape)

    @property
    def map(self) -> IndexMap:
        return identity_map(self.block_shape)

    @property
    def axis(self) -> int | None:
        """The nest dimension that must run innermost, carrying state; None for no such."""
        return None

    @property
    def is_sequential(self) -> bool:
        """Whether lanes must be visited one by one."""
        return False

    def written(self) -> list[Block]:
        """The scratch blocks this root fills."""
        return []


def _nest_axis(shape: tuple[int, ...], axis: int) -> int | None:
    entry = identity_map(shape)[axis]
    return None if is_fixed(entry) else entry


@dataclass(slots=True, eq=False)
class StoreRoot(Root):
    """tile.store."""

    op: Operation


@dataclass(slots=True, eq=False)
class MaterialiseRoot(Root):
    """Put a value into scratch: element i goes to `offset` + sum of stride * i."""

    block: Block
    strides: tuple[int, ...] = ()
    offset: int = 0

    def __post_init__(self) -> None:
        if not self.strides:
            self.strides = row_major(self.block_shape)

    def written(self) -> list[Block]:
        return [self.block]


@dataclass(slots=True, eq=False)
class ReduceRoot(Root):
    """tile.reduce; `blocks` take the results, None where a result is a scalar."""

    op: Operation
    blocks: list[Block | None]

    @property
    def axis(self) -> int | None:
        return _nest_axis(self.block_shape, self.op.attrs["axis"])

    def written(self) -> list[Block]:
        return [block for block in self.blocks if block is not None]


@dataclass(slots=True, eq=False)
class ScanRoot(Root):
    """tile.scan."""

    op: Operation
    blocks: list[Block]

    @property
    def axis(self) -> int | None:
        return _nest_axis(self.block_shape, self.op.attrs["axis"])

    def written(self) -> list[Block]:
        return list(self.blocks)


@dataclass(slots=True, eq=False)
class AtomicRoot(Root):
    """tile.atomic_rmw or tile.atomic_cas; `block` takes the old values where they are used."""

    op: Operation
    block: Block | None

    @property
    def is_sequential(self) -> bool:
        return True

    def written(self) -> list[Block]:
        return [] if self.block is None else [self.block]


@dataclass(slots=True, eq=False)
class HistogramRoot(Root):
    """tile.histogram, counting into `block`."""

    op: Operation
    block: Block

    @property
    def is_sequential(self) -> bool:
        return True

    def written(self) -> list[Block]:
        return [self.block]


@dataclass(slots=True, eq=False)
class Nest:
    """Loops over `shape` that serve several roots, in program order."""

    shape: tuple[int, ...]
    roots: list[Root] = field(default_factory=list)
    axis: int | None = None
    is_sequential: bool = False
    is_scan: bool = False

    def accepts(self, root: Root) -> bool:
        if self.is_sequential or self.is_scan or root.is_sequential or isinstance(root, ScanRoot):
            return False
        return self.shape == root.shape and (
            root.axis is None or self.axis is None or root.axis == self.axis
        )

    def add(self, root: Root) -> None:
        self.roots.append(root)
        if root.axis is not None:
            self.axis = root.axis
        self.is_sequential = self.is_sequential or root.is_sequential
        self.is_scan = self.is_scan or isinstance(root, ScanRoot)


@dataclass(slots=True, eq=False)
class DotItem:
    """tile.dot. An operand is a load read in place (`loads`), or a block in scratch.

    `total` is the operation whose result is the accumulated product: the dot itself, or the
    addition that takes it up. `swapped` marks operands read through a transpose of the load.
    """

    op: Operation
    total: Operation
    acc: Value
    result: Block
    accumulates: bool
    loads: list[Operation | None]
    swapped: list[bool]


@dataclass(slots=True, eq=False)
class ControlItem:
    """scf.for, scf.while or scf.if; `homes` are the blocks of its block results."""

    op: Operation
    homes: dict[int, Block]


Item = Nest | DotItem | ControlItem
