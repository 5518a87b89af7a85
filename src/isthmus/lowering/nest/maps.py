"""Index maps: how the dimensions of a block value follow the dimensions of a loop nest.

A map has one entry per dimension of the value: the number of the nest dimension that runs along
it, or, negative, a fixed index: -1 is index 0, -2 index 1 and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.ir.core import Operation
from isthmus.ir.types import shape_of

__all__ = [
    "IndexMap", "fixed", "identity_map", "is_fixed", "is_unit_reshape", "nest_shape",
    "operand_map",
]  # fmt: skip

IndexMap = tuple[int, ...]


def fixed(index: int) -> int:
    """The map entry of the fixed index `index`."""
    return -1 - index


def is_fixed(entry: int) -> bool:
    return entry < 0


def nest_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The iteration shape for a block shape: dimensions of size 1 need no loop."""
    return tuple(size for size in shape if size != 1)


def identity_map(shape: Sequence[int]) -> IndexMap:
    """The map of a value that fills the nest of its own shape."""
    entries: list[int] = []
    dimension = 0
    for size in shape:
        if size == 1:
            entries.append(fixed(0))
        else:
            entries.append(dimension)
            dimension += 1
    return tuple(entries)


def is_unit_reshape(op: Operation) -> bool:
    """Whether a reshape only adds or removes dimensions of size 1."""
    return nest_shape(shape_of(op.operands[0].type)) == nest_shape(shape_of(op.result.type))


def operand_map(op: Operation, position: int, result_map: IndexMap, result: int = 0) -> IndexMap:
    """The map of operand `position` when result number `result` of a lazy `op` has `result_map`."""
    source = shape_of(op.operands[position].type)
    if not source:
        return ()
    if op.name == "tile.broadcast":
        return tuple(
            fixed(0) if size == 1 else entry for size, entry in zip(source, result_map, strict=True)
        )
    if op.name == "tile.expand_dims":
        axis = op.attrs["axis"]
        return result_map[:axis] + result_map[axis + 1 :]
    if op.name == "tile.trans":
        entries = [0] * len(source)
        for axis, entry in zip(op.attrs["order"], result_map, strict=True):
            entries[axis] = entry
        return tuple(entries)
    if op.name == "tile.reshape":
        target = shape_of(op.result.type)
        rest = [entry for size, entry in zip(target, result_map, strict=True) if size != 1]
        return tuple(fixed(0) if size == 1 else rest.pop(0) for size in source)
    if op.name == "tile.split":
        return (*result_map, fixed(result))
    return result_map
