"""Block sizes and grids: what the plans of the operators share.

Numbers come from shapes and the target description. Where a number decides the order of a sum
(partial sums) it comes from shapes alone, so that results are the same on any number of cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import isthmus.language as tl
from isthmus.core.dtypes import DType
from isthmus.ops.standard import Slot, View

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__ = [
    "ELEMENTS_PER_PROGRAM", "MAX_ROW", "accumulate_type", "block_size", "ceil_div", "collapse",
    "divide", "fold_axis", "inputs", "language_type", "optional_input", "outputs", "row_block",
    "rows_per_program", "workspace",
]  # fmt: skip

#: Elements that give a program a few tens of microseconds of element-wise work.
ELEMENTS_PER_PROGRAM = 32768
#: Longest row that row kernels keep as one block.
MAX_ROW = 8192
#: Block of a longer row.
ROW_CHUNK = 4096


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def block_size(size: int, limit: int, target: TargetDescription) -> int:
    """A block for `size` elements, `limit` at most: exact where the target allows any size."""
    if size >= limit:
        return limit
    return max(size, 1) if target.any_block_size else next_power_of_2(max(size, 1))


def row_block(width: int, target: TargetDescription) -> int:
    """The block of a row kernel: the whole row, or a chunk of it."""
    return block_size(width, MAX_ROW, target) if width <= MAX_ROW else ROW_CHUNK


def divide(size: int, limit: int, multiple: int = 1) -> int:
    """Split `size` into equal parts of at most `limit`: the size of a part, a multiple of
    `multiple` where there is more than one."""
    parts = max(1, ceil_div(size, limit))
    part = ceil_div(size, parts)
    return max(1, part if parts == 1 else ceil_div(part, multiple) * multiple)


def rows_per_program(rows: int, width: int) -> int:
    """Rows for one program: enough work, yet at least 8 programs where there are rows for it."""
    enough = ceil_div(ELEMENTS_PER_PROGRAM, max(width, 1))
    return max(1, min(enough, ceil_div(rows, 8)))


def accumulate_type(dtype: DType) -> tl.dtype:
    """The language's type for sums of `dtype`: f32, f64 for f64, i64 for integers."""
    if dtype.is_float:
        return tl.float64 if dtype.name == "f64" else tl.float32
    return tl.int64


def language_type(dtype: DType) -> tl.dtype:
    """The language's type of `dtype`; bool is loaded and stored as i8 by the language."""
    return getattr(tl, _LANGUAGE_NAMES[dtype.name])


_LANGUAGE_NAMES = {
    "bool": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip


def fold_axis(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """(outer, size, inner): the sizes before, at and after `axis`, multiplied up."""
    axis %= len(shape)
    outer = inner = 1
    for size in shape[:axis]:
        outer *= size
    for size in shape[axis + 1 :]:
        inner *= size
    return outer, shape[axis], inner


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Merge neighbouring dimensions that every tensor walks with one stride.

    `strides` holds one list per tensor. Dimensions of size 1 vanish. Gives the merged sizes and
    strides, outermost first.
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis in reversed(range(len(shape))):
        size = shape[axis]
        if size == 1:
            continue
        here = [stride[axis] for stride in strides]
        if sizes and all(
            step == lines[0] * sizes[0] for step, lines in zip(here, merged, strict=True)
        ):
            sizes[0] *= size
        else:
            sizes.insert(0, size)
            for step, lines in zip(here, merged, strict=True):
                lines.insert(0, step)
    return sizes, merged


def inputs(index: int) -> Slot:
    return Slot("input", index)


def outputs(index: int) -> Slot:
    return Slot("output", index)


def workspace(index: int, dtype: DType) -> Slot:
    return Slot("workspace", index, dtype)


def optional_input(view: View | None, index: int) -> Slot | None:
    """The slot of an input, None where it is absent."""
    return None if view is None else Slot("input", index)
