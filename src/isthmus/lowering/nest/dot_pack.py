"""Copying a block into the order in which the micro-kernel reads it.

    rows       [outer, inner] dense: the left factor where k is contiguous in memory
    panels     [outer / width][depth][width]: either factor where its panel side is contiguous
    transposed the same panels from memory where k is contiguous, through registers

Elements are converted on the way, and what lies outside the valid extents becomes zero. A block
that is entirely valid takes a path without masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from isthmus.ir.builder import Builder
from isthmus.ir.core import Value
from isthmus.ir.types import I32, ScalarType, VectorType, element_type, is_float, with_element
from isthmus.lowering.nest.dot_tiles import Panels, powers_of_two

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Source",
    "converted",
    "counted",
    "pack_panels",
    "pack_rows",
    "pack_strided",
    "pack_transposed",
]

Stride = Value | int


@dataclass(frozen=True, slots=True)
class Source:
    """A strided block; [outer, inner] with `inner` contiguous unless said otherwise.

    `outer_limit`, `inner_limit`: how many may be read, as i64; None: all.
    """

    element: ScalarType
    pointer: Value
    outer_stride: Stride
    inner_stride: Stride
    outer_limit: Value | None
    inner_limit: Value | None

    def swapped(self) -> Source:
        """The transposed view."""
        return replace(
            self,
            outer_stride=self.inner_stride,
            inner_stride=self.outer_stride,
            outer_limit=self.inner_limit,
            inner_limit=self.outer_limit,
        )


@contextmanager
def counted(b: Builder, count: int, step: int = 1) -> Iterator[Value]:
    """A loop over 0, step, .. below `count`; no loop where there is one turn."""
    if count <= step:
        yield b.i64(0)
        return
    _, region = b.for_loop(b.i64(0), b.i64(count), b.i64(step))
    with b.at(region):
        yield region.args[0]
        b.create("scf.yield")


def moved(b: Builder, pointer: Value, *terms: tuple[Value | int, Stride]) -> Value:
    """pointer + sum of index * stride."""
    constant = 0
    total: Value | None = None
    for index, stride in terms:
        if isinstance(index, int) and isinstance(stride, int):
            constant += index * stride
            continue
        index = b.i64(index) if isinstance(index, int) else index
        if not (isinstance(stride, int) and stride == 1):
            factor = b.i64(stride) if isinstance(stride, int) else stride
            index = b.emit("arith.muli", index, factor)
        total = index if total is None else b.emit("arith.addi", total, index)
    if total is not None:
        pointer = b.emit("ptr.add", pointer, total)
    return b.emit("ptr.add", pointer, b.i64(constant)) if constant else pointer


def converted(b: Builder, value: Value, element: ScalarType) -> Value:
    """`value` with elements of type `element`."""
    type_ = with_element(value.type, element)
    if value.type is type_:
        return value
    source = element_type(value.type)
    assert isinstance(source, ScalarType), f"{value.type} is no number"
    if is_float(type_):
        name = "arith.extf" if source.bits < element.bits else "arith.truncf"
    else:
        name = "arith.extsi" if source.bits < element.bits else "arith.trunci"
    return b.emit(name, value, type=type_)


def _if_all_valid(
    b: Builder, source: Source, outer: int, inner: int, body: Callable[[Source], None]
) -> None:
    """`body` without limits where the whole block is valid, with limits elsewhere."""
    whole = None
    for limit, size in ((source.outer_limit, outer), (source.inner_limit, inner)):
        if limit is not None:
            test = b.emit("arith.cmpi", limit, b.i64(size), predicate="sge")
            whole = test if whole is None else b.emit("arith.andi", whole, test)
    if whole is None:
        body(source)
        return
    branch = b.if_else(whole)
    for region, chosen in zip(
        branch.regions, (replace(source, outer_limit=None, inner_limit=None), source), strict=True
    ):
        with b.at(region):
            body(chosen)
            b.create("scf.yield")


def _read(
    b: Builder, source: Source, outer: Value | int, inner: Value | int, offset: int, lanes: int
) -> Value:
    """`lanes` contiguous elements at [outer, inner + offset], zero outside the limits."""
    pointer = moved(
        b, source.pointer, (outer, source.outer_stride), (inner, source.inner_stride), (offset, 1)
    )
    type_ = VectorType((lanes,), source.element)
    if source.inner_limit is None and source.outer_limit is None:
        return b.emit("nest.load", pointer, type=type_)
    limit = source.inner_limit if source.inner_limit is not None else b.i64(1 << 40)
    if source.outer_limit is not None:
        outer_value = b.i64(outer) if isinstance(outer, int) else outer
        inside = b.emit("arith.cmpi", outer_value, source.outer_limit, predicate="slt")
        limit = b.emit("arith.select", inside, limit, b.i64(0))
    inner_value = b.i64(inner) if isinstance(inner, int) else inner
    start = b.emit("arith.addi", inner_value, b.i64(offset))
    left = b.emit("arith.subi", limit, start)
    left = b.emit("arith.maxsi", b.emit("arith.minsi", left, b.i64(lanes)), b.i64(0))
    left = b.emit("arith.trunci", left, type=I32)
    numbers = VectorType((lanes,), I32)
    mask = b.emit(
        "arith.cmpi", b.emit("vector.iota", type=numbers), b.splat(left, numbers), predicate="slt"
    )
    return b.emit("nest.masked_load", pointer, mask, b.constant(0, type_), type=type_)


def pack_rows(
    b: Builder, source: Source, outer: int, inner: int, lanes: int, element: ScalarType, to: Value
) -> None:
    """to[outer][inner], dense."""

    def body(chosen: Source) -> None:
        with counted(b, outer) as row:
            whole = inner // lanes * lanes
            if whole:
                with counted(b, whole, lanes) as start:
                    value = converted(b, _read(b, chosen, row, start, 0, lanes), element)
                    b.create("nest.store", value, moved(b, to, (row, inner), (start, 1)))
            offset = whole
            for part in powers_of_two(inner - whole, lanes):
                value = converted(b, _read(b, chosen, row, 0, offset, part), element)
                b.create("nest.store", value, moved(b, to, (row, inner), (offset, 1)))
                offset += part

    _if_all_valid(b, source, outer, inner, body)


def pack_panels(
    b: Builder, source: Source, panels: Panels, depth: int, lanes: int, element: ScalarType,
    to: Value,
) -> None:  # fmt: skip
    """to[panel][depth][width] from source[depth, panel side]."""

    def panel(chosen: Source, start: Value | int, width: int, place: Value) -> None:
        with counted(b, depth) as index:
            offset = 0
            for part in powers_of_two(width, lanes):
                value = converted(b, _read(b, chosen, index, start, offset, part), element)
                b.create("nest.store", value, moved(b, place, (index, width), (offset, 1)))
                offset += part

    def body(chosen: Source) -> None:
        _each_panel(b, panels, depth, to, lambda *a: panel(chosen, *a))

    _if_all_valid(b, source, depth, panels.size, body)


def _each_panel(
    b: Builder,
    panels: Panels,
    depth: int,
    to: Value,
    body: Callable[[Value | int, int, Value], None],
) -> None:
    """`body(first row or column, width, where the panel goes)` for every panel."""
    if panels.count:
        with counted(b, panels.count * panels.width, panels.width) as start:
            body(start, panels.width, moved(b, to, (start, depth)))
    if panels.rest:
        first = panels.count * panels.width
        body(first, panels.rest, moved(b, to, (first, depth)))


def pack_transposed(
    b: Builder, source: Source, panels: Panels, depth: int, lanes: int, element: ScalarType,
    to: Value,
) -> None:  # fmt: skip
    """to[panel][depth][width] from source[panel side, depth], squares turned in registers."""

    def panel(chosen: Source, start: Value | int, width: int, place: Value) -> None:
        if chosen.outer_limit is not None or chosen.inner_limit is not None:
            with counted(b, width) as lane:
                scattered(chosen, start, lane, width, place)
            return
        offset = 0
        for part in powers_of_two(width, lanes):
            for first, steps, deep in _pieces(depth, part):
                with counted(b, steps * deep, deep) as index:
                    square(chosen, start, offset, part, (index, first), deep, place, width)
            offset += part

    def square(
        chosen: Source, start: Value | int, offset: int, part: int, index: tuple[Value, int],
        deep: int, place: Value, width: int,
    ) -> None:  # fmt: skip
        """`part` rows of `deep` elements, turned in registers."""
        rows = [
            converted(b, _read(b, chosen, _plus(b, start, offset + lane), *index, deep), element)
            for lane in range(part)
        ]
        for step, column in enumerate(_transposed(b, rows, deep)):
            where = moved(b, place, (index[0], width), ((index[1] + step) * width + offset, 1))
            b.create("nest.store", column, where)

    def scattered(
        chosen: Source, start: Value | int, lane: Value, width: int, place: Value
    ) -> None:
        """One row, element by element: short code for blocks that are cut off."""
        row = b.emit("arith.addi", lane, b.i64(start) if isinstance(start, int) else start)
        for first, steps, deep in _pieces(depth, lanes):
            with counted(b, steps * deep, deep) as index:
                value = converted(b, _read(b, chosen, row, index, first, deep), element)
                column = moved(b, place, (lane, 1), (index, width))
                for step in range(deep):
                    one = b.emit("vector.extract", value, lane=step)
                    b.create("nest.store", one, moved(b, column, ((first + step) * width, 1)))

    def body(chosen: Source) -> None:
        _each_panel(b, panels, depth, to, lambda *a: panel(chosen, *a))

    _if_all_valid(b, source, panels.size, depth, body)


def _pieces(size: int, most: int) -> list[tuple[int, int, int]]:
    """`size` as runs of powers of two: (first, how many, length)."""
    whole = min(most, 1 << (size.bit_length() - 1))
    runs = [(0, size // whole, whole)]
    first = size // whole * whole
    for part in powers_of_two(size - first, whole):
        runs.append((first, 1, part))
        first += part
    return runs


def _plus(b: Builder, index: Value | int, offset: int) -> Value | int:
    if isinstance(index, int):
        return index + offset
    return b.emit("arith.addi", index, b.i64(offset))


def _transposed(b: Builder, rows: Sequence[Value], columns: int) -> list[Value]:
    """The columns of `rows` (a power of two of vectors with `columns` lanes) as vectors.

    Halves the number of rows and doubles their length until there is one, then cuts it.
    """
    count = len(rows)
    if count == columns:
        return _butterfly(b, list(rows))
    if count == 1:
        element = rows[0].type.element  # type: ignore[attr-defined]
        return [
            b.splat(b.emit("vector.extract", rows[0], lane=lane), VectorType((1,), element))
            for lane in range(columns)
        ]
    joined = list(rows)
    while len(joined) > 1:
        half = len(joined) // 2
        size = joined[0].type.shape[0]  # type: ignore[attr-defined]
        # Lane by lane: x0 y0 x1 y1 ... of rows i and i + half.
        lanes = tuple(lane for i in range(size) for lane in (i, size + i))
        joined = [
            b.emit("vector.shuffle", joined[i], joined[i + half], lanes=lanes) for i in range(half)
        ]
    whole = joined[0]
    return [
        b.emit("vector.shuffle", whole, whole, lanes=tuple(range(c * count, (c + 1) * count)))
        for c in range(columns)
    ]


def _butterfly(b: Builder, rows: list[Value]) -> list[Value]:
    """A square transposed: blocks of 1, 2, 4, .. lanes change places between row pairs."""
    size = len(rows)
    step = 1
    while step < size:
        first = tuple(i if not i & step else size + i - step for i in range(size))
        second = tuple(i + step if not i & step else size + i for i in range(size))
        result = list(rows)
        for i in range(size):
            if not i & step:
                a, c = rows[i], rows[i + step]
                result[i] = b.emit("vector.shuffle", a, c, lanes=first)
                result[i + step] = b.emit("vector.shuffle", a, c, lanes=second)
        rows = result
        step *= 2
    return rows


def pack_strided(
    b: Builder, source: Source, panels: Panels, depth: int, element: ScalarType, to: Value
) -> None:
    """to[panel][depth][width] from source[panel side, depth] with any strides, one by one."""

    def panel(start: Value | int, width: int, place: Value) -> None:
        with counted(b, depth) as index, counted(b, width) as lane:
            first = b.i64(start) if isinstance(start, int) else start
            row = b.emit("arith.addi", first, lane)
            value = _element(b, source, row, index)
            where = moved(b, place, (index, width), (lane, 1))
            b.create("nest.store", converted(b, value, element), where)

    _each_panel(b, panels, depth, to, panel)


def _element(b: Builder, source: Source, outer: Value, inner: Value) -> Value:
    inside = None
    for index, limit in ((outer, source.outer_limit), (inner, source.inner_limit)):
        if limit is not None:
            test = b.emit("arith.cmpi", index, limit, predicate="slt")
            inside = test if inside is None else b.emit("arith.andi", inside, test)
    if inside is None:
        pointer = moved(
            b, source.pointer, (outer, source.outer_stride), (inner, source.inner_stride)
        )
        return b.emit("nest.load", pointer, type=source.element)
    branch = b.if_else(inside, [source.element])
    with b.at(branch.regions[0]):
        pointer = moved(
            b, source.pointer, (outer, source.outer_stride), (inner, source.inner_stride)
        )
        b.create("scf.yield", b.emit("nest.load", pointer, type=source.element))
    with b.at(branch.regions[1]):
        b.create("scf.yield", b.constant(0, source.element))
    return branch.result
