"""Matrix products of blocks: `emit_dot` multiplies two strided blocks into a scratch block.

Both factors are packed into panels (unless they already lie well), and a micro-kernel keeps a
tile of the result in registers across all of k:

    for each panel of rows                      left panel in the first cache
        for each panel of columns               right panels stream from the second
            load the tile of the result
            for k: right vectors; for each row: broadcast, multiply, add
            store the tile

Packed panels are kept for the next products of the same call of the kernel (`dot_cache.py`):

    lowering, at kernel entry      emit_dot_cache_reset(builder, cache, ...)
    lowering, at each tile.dot     emit_dot(..., cache=cache)

where `cache` is `dot_cache_bytes(...)` of scratch that belongs to this tile.dot alone, from
kernel entry to its end (no other buffer may overlap it, in any program). An operand takes part
when it is `cacheable`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from isthmus.ir.core import Value
from isthmus.ir.types import PointerType, ScalarType, Type, VectorType, shape_of
from isthmus.lowering.nest import dot_pack
from isthmus.lowering.nest.dot_cache import PanelCache, cache_entries
from isthmus.lowering.nest.dot_pack import Source, converted, counted, moved
from isthmus.lowering.nest.dot_tiles import (
    Panels,
    Tiling,
    computed_in,
    depth_block,
    powers_of_two,
    tiling,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from isthmus.core.target import TargetDescription
    from isthmus.ir.builder import Builder

__all__ = [
    "DotOperand",
    "DotResult",
    "dot_cache_bytes",
    "dot_scratch_bytes",
    "emit_dot",
    "emit_dot_cache_reset",
]

#: A right factor that takes at most this share of the first cache is read where it lies.
UNPACKED_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class DotOperand:
    """One factor of a product: a strided block in memory.

    pointer: address of element [0, 0]; strides count elements, as i64 values or known integers.
    rows, columns: how many rows and columns may be read, as i64 values; elements outside count
        as zero and must not be touched. None: the whole block.
    cacheable: nothing in this kernel writes the memory that the block lies in, so that a packed
        copy found under the same address, strides and extents is still right.
    """

    element: ScalarType
    pointer: Value
    row_stride: Value | int
    column_stride: Value | int
    rows: Value | None = None
    columns: Value | None = None
    cacheable: bool = False

    @property
    def source(self) -> Source:
        return Source(
            self.element,
            self.pointer,
            self.row_stride,
            self.column_stride,
            self.rows,
            self.columns,
        )


@dataclass(frozen=True, slots=True)
class DotResult:
    """The accumulator in scratch: row-major [m, n], rows `row_stride` elements apart."""

    element: ScalarType
    pointer: Value
    row_stride: int


@dataclass(frozen=True, slots=True)
class _Panel:
    """Where the micro-kernel finds one side: base and the strides of k and of panels."""

    pointer: Value
    depth_stride: int
    lane_stride: int
    panel_stride: int


@dataclass(frozen=True, slots=True)
class _Depth:
    """Steps of k: `k` in all, `unroll` (a divisor) at a time, until `bound`."""

    k: int
    unroll: int
    bound: Value


@dataclass(frozen=True, slots=True)
class _Limits:
    """How many rows, columns and steps of k can give anything but zero; None: all."""

    rows: Value | None
    columns: Value | None
    depth: Value | None


def _aligned(size_bytes: int) -> int:
    return (size_bytes + 63) // 64 * 64


def _pack_bytes(size: int, k: int, element: ScalarType) -> int:
    return _aligned(size * depth_block(k) * element.size_bytes)


def dot_scratch_bytes(
    target: TargetDescription, m: int, n: int, k: int,
    lhs: ScalarType, rhs: ScalarType, result: ScalarType,
) -> int:  # fmt: skip
    """Bytes of scratch that `emit_dot` needs for packed panels that are not kept."""
    del target, lhs, rhs
    element = computed_in(result)
    return _pack_bytes(m, k, element) + _pack_bytes(n, k, element)


def dot_cache_bytes(
    target: TargetDescription, m: int, n: int, k: int, result: ScalarType,
    *, lhs_cacheable: bool, rhs_cacheable: bool,
) -> int:  # fmt: skip
    """Bytes of scratch in which `emit_dot` keeps packed panels between programs."""
    element = computed_in(result)
    total = 0
    for size, cacheable in ((m, lhs_cacheable), (n, rhs_cacheable)):
        if cacheable:
            block_bytes = _pack_bytes(size, k, element)
            total += PanelCache.size_bytes(cache_entries(target, block_bytes), block_bytes)
    return total


def emit_dot_cache_reset(
    builder: Builder, cache: Value, target: TargetDescription, m: int, n: int, k: int,
    result: ScalarType, *, lhs_cacheable: bool, rhs_cacheable: bool,
) -> None:  # fmt: skip
    """Forget all kept panels: to be emitted once, before the loop over programs."""
    element = computed_in(result)
    for panel_cache in _caches(
        builder, cache, target, m, n, k, element, lhs_cacheable, rhs_cacheable
    ):
        if panel_cache is not None:
            panel_cache.reset()


def _caches(
    b: Builder, cache: Value, target: TargetDescription, m: int, n: int, k: int,
    element: ScalarType, lhs_cacheable: bool, rhs_cacheable: bool,
) -> list[PanelCache | None]:  # fmt: skip
    """The caches of both operands, one after the other in `cache`."""
    caches: list[PanelCache | None] = []
    offset = 0
    for size, cacheable in ((m, lhs_cacheable), (n, rhs_cacheable)):
        if not cacheable:
            caches.append(None)
            continue
        block_bytes = _pack_bytes(size, k, element)
        entries = cache_entries(target, block_bytes)
        place = b.emit("ptr.add", cache, b.i64(offset))
        caches.append(PanelCache(b, place, entries, block_bytes))
        offset += PanelCache.size_bytes(entries, block_bytes)
    return caches


def emit_dot(
    builder: Builder, target: TargetDescription, lhs: DotOperand, rhs: DotOperand,
    result: DotResult, m: int, n: int, k: int, *, accumulate: bool, scratch: Value | None,
    cache: Value | None = None,
) -> None:  # fmt: skip
    """Emit result = lhs @ rhs (+ result when `accumulate`) at the insertion point.

    lhs is [m, k], rhs [k, n]; products and sums are in `result.element` (in f32 for f16 and
    bf16, rounded once at the end). Rows and columns outside the extents are zero whatever they
    meet, infinity and NaN too. `scratch` is a ptr<i8> to `dot_scratch_bytes` bytes aligned
    to 64, or None where that is 0; `cache` a ptr<i8> to `dot_cache_bytes` bytes that live as
    long as the call of the kernel.
    """
    element = computed_in(result.element)
    product = _Product(builder, target, result, m, n, element)
    caches: list[PanelCache | None] = [None, None]
    if cache is not None:
        caches = _caches(builder, cache, target, m, n, k, element, lhs.cacheable, rhs.cacheable)
    places: list[Value | None] = [None, None]
    if scratch is not None:
        pointer = PointerType(element)
        second = builder.emit("ptr.add", scratch, builder.i64(_pack_bytes(m, k, element)))
        places = [builder.emit("ptr.cast", place, type=pointer) for place in (scratch, second)]

    def step(left: DotOperand, right: DotOperand, depth: int, accumulates: bool) -> None:
        a = product.left(left, depth, places[0], caches[0])
        b = product.right(right, depth, places[1], caches[1])
        limits = _Limits(left.rows, right.columns, _deeper(builder, left.columns, right.rows))
        product.multiply(a, b, depth, limits, accumulates)

    deep = depth_block(k)
    limited = lhs.rows is not None or rhs.columns is not None
    if not accumulate and (limited or k != deep):
        product.clear()
        accumulate = True
    if k == deep:
        step(lhs, rhs, k, accumulate)
        return
    whole = k // deep * deep
    with counted(builder, whole, deep) as start:
        step(
            _from_depth(builder, lhs, start, "column"),
            _from_depth(builder, rhs, start, "row"),
            deep,
            True,
        )
    if k > whole:
        start = builder.i64(whole)
        step(
            _from_depth(builder, lhs, start, "column"),
            _from_depth(builder, rhs, start, "row"),
            k - whole,
            True,
        )


def _deeper(b: Builder, one: Value | None, other: Value | None) -> Value | None:
    """From where on both factors are zero; None where one of them is valid to the end."""
    if one is None or other is None:
        return None
    return one if one is other else b.emit("arith.maxsi", one, other)


def _from_depth(b: Builder, operand: DotOperand, start: Value, axis: str) -> DotOperand:
    """The part of a factor from k = `start` on."""
    stride = operand.column_stride if axis == "column" else operand.row_stride
    limit = operand.columns if axis == "column" else operand.rows
    pointer = moved(b, operand.pointer, (start, stride))
    if limit is not None:
        limit = b.emit("arith.subi", limit, start)
    if axis == "column":
        return replace(operand, pointer=pointer, columns=limit)
    return replace(operand, pointer=pointer, rows=limit)


class _Product:
    """Emission of one product: packing of either side and the loops around the micro-kernel."""

    def __init__(
        self,
        b: Builder,
        target: TargetDescription,
        result: DotResult,
        m: int,
        n: int,
        element: ScalarType,
    ) -> None:
        self.b = b
        self.target = target
        self.result = result
        self.element = element
        self.n = n
        self.m = m
        self.tiling: Tiling = tiling(target, m, n, element)
        self.vector_lanes = target.lanes(element.bits)

    def clear(self) -> None:
        """Set the result to zero."""
        b, lanes = self.b, self.tiling.lanes
        with counted(b, self.m) as row:
            for start in range(0, self.n, lanes):
                width = min(lanes, self.n - start)
                offset = start
                for part in powers_of_two(width, lanes):
                    zero = b.constant(0, VectorType((part,), self.result.element))
                    where = moved(
                        b, self.result.pointer, (row, self.result.row_stride), (offset, 1)
                    )
                    b.create("nest.store", zero, where)
                    offset += part

    # Where the factors lie ----------------------------------------------------------------

    def _lies_well(self, operand: DotOperand) -> bool:
        return (
            operand.element is self.element
            and operand.rows is None
            and operand.columns is None
            and isinstance(operand.row_stride, int)
            and isinstance(operand.column_stride, int)
        )

    def left(
        self, operand: DotOperand, k: int, place: Value | None, cache: PanelCache | None
    ) -> _Panel:
        """The left factor: elements are broadcast one by one, so any order will do."""
        b, rows = self.b, self.tiling.rows
        row_stride, column_stride = operand.row_stride, operand.column_stride
        if (
            self._lies_well(operand)
            and not operand.cacheable
            and isinstance(row_stride, int)
            and isinstance(column_stride, int)
            and (column_stride == 1 or (row_stride == 1 and self.m <= 2 * rows.width))
        ):
            return _Panel(operand.pointer, column_stride, row_stride, row_stride * rows.width)
        source = operand.source
        if column_stride == 1:

            def pack(to: Value) -> None:
                lanes = min(self.vector_lanes, 1 << (k.bit_length() - 1))
                dot_pack.pack_rows(b, source, self.m, k, lanes, self.element, to)

            panel = _Panel(operand.pointer, 1, k, k * rows.width)
        elif row_stride == 1:

            def pack(to: Value) -> None:
                dot_pack.pack_panels(
                    b, source.swapped(), rows, k, self.vector_lanes, self.element, to
                )

            panel = _Panel(operand.pointer, -1, 1, k * rows.width)
        else:

            def pack(to: Value) -> None:
                dot_pack.pack_strided(b, source, rows, k, self.element, to)

            panel = _Panel(operand.pointer, -1, 1, k * rows.width)
        return replace(panel, pointer=self._packed(operand, pack, place, cache, k))

    def right(
        self, operand: DotOperand, k: int, place: Value | None, cache: PanelCache | None
    ) -> _Panel:
        """The right factor: read in vectors, in panels of columns."""
        b, columns = self.b, self.tiling.columns
        if (
            self._lies_well(operand)
            and not operand.cacheable
            and operand.column_stride == 1
            and isinstance(operand.row_stride, int)
            and (
                operand.row_stride * k * self.element.size_bytes <= UNPACKED_BYTES
                or self.tiling.rows.count <= 1
            )
        ):
            return _Panel(operand.pointer, operand.row_stride, 1, columns.width)
        source = operand.source
        if operand.column_stride == 1:

            def pack(to: Value) -> None:
                dot_pack.pack_panels(b, source, columns, k, self.vector_lanes, self.element, to)

        elif operand.row_stride == 1:

            def pack(to: Value) -> None:
                dot_pack.pack_transposed(
                    b, source.swapped(), columns, k, self.vector_lanes, self.element, to
                )

        else:

            def pack(to: Value) -> None:
                dot_pack.pack_strided(b, source.swapped(), columns, k, self.element, to)

        pointer = self._packed(operand, pack, place, cache, k)
        return _Panel(pointer, -1, 1, k * columns.width)

    def _packed(
        self,
        operand: DotOperand,
        pack: Callable[[Value], None],
        place: Value | None,
        cache: PanelCache | None,
        depth: int,
    ) -> Value:
        """The packed block: found in the cache, or packed now."""
        pointer = PointerType(self.element)
        if operand.cacheable and cache is not None:
            return cache.find_or_pack(operand.source, depth, pointer, pack)
        assert place is not None, "packing needs scratch memory"
        pack(place)
        return place

    # The loops around the micro-kernel ----------------------------------------------------

    def multiply(
        self, left: _Panel, right: _Panel, k: int, limits: _Limits, accumulates: bool
    ) -> None:
        """Multiply all panels that are not entirely outside the limits."""
        b = self.b
        rows, columns = self.tiling.rows, self.tiling.columns
        unroll = next(step for step in (4, 2, 1) if k % step == 0)
        depth = _Depth(k, unroll, b.i64(k))
        if limits.depth is not None:
            depth = replace(depth, bound=b.emit("arith.minsi", limits.depth, depth.bound))

        def of_rows(index: Value | int, height: int) -> None:
            panel = moved(b, left.pointer, (index, left.panel_stride))
            tile_row = moved(b, self.result.pointer, (index, rows.width * self.result.row_stride))
            side = replace(left, pointer=panel, depth_stride=_or(left.depth_stride, height))

            def of_columns(column: Value | int, width: int) -> None:
                other = replace(
                    right,
                    pointer=moved(b, right.pointer, (column, right.panel_stride)),
                    depth_stride=_or(right.depth_stride, width),
                )
                tile = moved(b, tile_row, (column, columns.width))
                self._tiles(side, other, tile, height, width, depth, accumulates)

            self._panels(columns, limits.columns, of_columns)

        self._panels(rows, limits.rows, of_rows)

    def _panels(
        self, panels: Panels, limit: Value | None, body: Callable[[Value | int, int], None]
    ) -> None:
        """`body(panel number, width)` for the panels that begin before `limit`."""
        b = self.b
        if limit is None:
            if panels.count:
                with counted(b, panels.count) as index:
                    body(index, panels.width)
            if panels.rest:
                body(panels.count, panels.rest)
            return
        if panels.count:
            inside = b.emit("arith.minsi", limit, b.i64(panels.count * panels.width))
            _, region = b.for_loop(b.i64(0), inside, b.i64(panels.width))
            with b.at(region):
                body(b.emit("arith.divsi", region.args[0], b.i64(panels.width)), panels.width)
                b.create("scf.yield")
        if panels.rest:
            first = b.i64(panels.count * panels.width)
            branch = b.if_else(b.emit("arith.cmpi", limit, first, predicate="sgt"))
            with b.at(branch.regions[0]):
                body(panels.count, panels.rest)
                b.create("scf.yield")
            with b.at(branch.regions[1]):
                b.create("scf.yield")

    def _tiles(
        self, left: _Panel, right: _Panel, tile: Value, height: int, width: int, depth: _Depth,
        accumulates: bool,
    ) -> None:  # fmt: skip
        """Micro-kernels for one panel of columns: one, or several where its width is odd."""
        lanes = self.tiling.lanes
        whole = width // lanes
        offset = 0
        parts = [(lanes, whole)] if whole else []
        parts += [(part, 1) for part in powers_of_two(width - whole * lanes, lanes)]
        for part, vectors in parts:
            side = replace(right, pointer=moved(self.b, right.pointer, (offset, 1)))
            where = moved(self.b, tile, (offset, 1))
            self._micro_kernel(left, side, where, height, part, vectors, depth, accumulates)
            offset += part * vectors

    def _micro_kernel(
        self, left: _Panel, right: _Panel, tile: Value, height: int, lanes: int, vectors: int,
        depth: _Depth, accumulates: bool,
    ) -> None:  # fmt: skip
        b, result = self.b, self.result
        vector = VectorType((lanes,), self.element)
        stored = VectorType((lanes,), result.element)
        places = [
            moved(b, tile, (row, result.row_stride), (column * lanes, 1))
            for row in range(height)
            for column in range(vectors)
        ]
        if accumulates:
            initial = [
                converted(b, b.emit("nest.load", place, type=stored), self.element)
                for place in places
            ]
        else:
            initial = [b.constant(0, vector)] * len(places)
        unroll = depth.unroll
        if depth.k == unroll:
            totals = self._steps(left, right, b.i64(0), initial, height, vectors, vector, unroll)
        else:
            loop, region = b.for_loop(b.i64(0), depth.bound, b.i64(unroll), initial)
            with b.at(region):
                index, *carried = region.args
                sums = self._steps(
                    left, right, index, list(carried), height, vectors, vector, unroll
                )
                b.create("scf.yield", *sums)
            totals = loop.results
        for place, total in zip(places, totals, strict=True):
            b.create("nest.store", converted(b, total, result.element), place)

    def _steps(
        self, left: _Panel, right: _Panel, index: Value, sums: list[Value], height: int,
        vectors: int, vector: Type, unroll: int,
    ) -> list[Value]:  # fmt: skip
        """`unroll` steps of k."""
        b, (lanes,) = self.b, shape_of(vector)
        left_at = moved(b, left.pointer, (index, left.depth_stride))
        right_at = moved(b, right.pointer, (index, right.depth_stride))
        for step in range(unroll):
            factors = [
                b.emit(
                    "nest.load",
                    moved(b, right_at, (step, right.depth_stride), (column * lanes, 1)),
                    type=vector,
                )
                for column in range(vectors)
            ]
            for row in range(height):
                where = moved(b, left_at, (step, left.depth_stride), (row, left.lane_stride))
                one = b.splat(b.emit("nest.load", where, type=self.element), vector)
                for column, factor in enumerate(factors):
                    position = row * vectors + column
                    sums[position] = self._multiply_add(one, factor, sums[position])
        return sums

    def _multiply_add(self, a: Value, b: Value, total: Value) -> Value:
        build = self.b
        if self.element.kind == "int":
            return build.emit("arith.addi", total, build.emit("arith.muli", a, b))
        if self.target.fma:
            return build.emit("arith.fma", a, b, total)
        return build.emit("arith.addf", total, build.emit("arith.mulf", a, b))


def _or(stride: int, width: int) -> int:
    """-1 stands for the width of the panel itself."""
    return width if stride < 0 else stride
