"""Tile IR written like array code, for tests below the kernel language.

    k = TileKernel("add", x=F32_POINTER, n=I32)
    index = k.arange(64)
    k.store(k.arg("x") + index, k.load(k.arg("x") + index, index < k.arg("n")) * 2.0)
    function = k.finish()

Shapes broadcast as in NumPy; Python numbers take the type of the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Operation, Region, Value
from isthmus.ir.types import (
    F32,
    I32,
    PointerType,
    ScalarType,
    TileType,
    Type,
    element_type,
    is_float,
    is_pointer,
    shape_of,
    with_element,
)

__all__ = ["F32_POINTER", "I32_POINTER", "Tile", "TileKernel"]

F32_POINTER = PointerType(F32)
I32_POINTER = PointerType(I32)


class TileKernel:
    """A kernel under construction."""

    def __init__(self, name: str, **arguments: Type) -> None:
        self.function = Function(name, list(arguments.values()), list(arguments))
        self.builder = Builder(self.function)
        self._arguments = dict(zip(arguments, self.function.args, strict=True))
        for position, arg in enumerate(self.function.args):
            if is_pointer(arg.type):
                self.function.arg_attrs[position] = {"noalias": True}

    def may_alias(self) -> None:
        """Forget that pointer arguments do not overlap."""
        for attrs in self.function.arg_attrs:
            attrs.pop("noalias", None)

    def arg(self, name: str) -> Tile:
        return Tile(self, self._arguments[name])

    def args(self) -> list[Tile]:
        return [Tile(self, value) for value in self.function.args]

    def finish(self) -> Function:
        self.builder.create("func.return")
        return self.function

    # Values ----------------------------------------------------------------------------------

    def emit(self, name: str, *operands: Tile, **keywords: object) -> Tile:
        values = [operand.value for operand in operands]
        return Tile(self, self.builder.emit(name, *values, **keywords))

    def program_id(self, axis: int = 0) -> Tile:
        return self.emit("tile.program_id", axis=axis)

    def arange(self, end: int, start: int = 0) -> Tile:
        return self.emit("tile.arange", start=start, end=end)

    def grid(self, *extents: int) -> list[Tile]:
        """One index block per dimension, shaped to broadcast against the others."""
        indices = []
        for axis, extent in enumerate(extents):
            index = self.arange(extent)
            for position in range(len(extents)):
                if position != axis:
                    index = self.emit("tile.expand_dims", index, axis=position)
            indices.append(index)
        return indices

    def row_major(self, *extents: int) -> Tile:
        """Offsets of a dense block."""
        offset: Tile | None = None
        step = int(np.prod(extents))
        for index, extent in zip(self.grid(*extents), extents, strict=True):
            step //= extent
            term = index * step
            offset = term if offset is None else offset + term
        assert offset is not None, "a block has dimensions"
        return offset

    def scalar(self, number: float, type_: Type = F32) -> Tile:
        return Tile(self, self.builder.constant(number, type_))

    def full(self, shape: tuple[int, ...], number: float, element: Type = F32) -> Tile:
        return Tile(self, self.builder.constant(number, TileType(shape, element)))

    def lift(self, value: Tile | float, like: Tile) -> Tile:
        if isinstance(value, Tile):
            return value
        element = element_type(like.value.type)
        return self.scalar(value, I32 if is_pointer(element) else element)

    def broadcast(self, *tiles: Tile) -> list[Tile]:
        shapes = [tile.shape for tile in tiles]
        shape = np.broadcast_shapes(*shapes)
        return [tile.broadcast_to(shape) if shape else tile for tile in tiles]

    # Memory ----------------------------------------------------------------------------------

    def load(self, pointer: Tile, mask: Tile | None = None, other: float | None = None) -> Tile:
        operands = [pointer]
        if mask is not None:
            operands.append(mask)
        if other is not None:
            operands.append(self.scalar(other, pointer.pointee))
        return self.emit("tile.load", *self.broadcast(*operands))

    def store(self, pointer: Tile, value: Tile | float, mask: Tile | None = None) -> None:
        if not isinstance(value, Tile):
            value = self.scalar(value, pointer.pointee)
        operands = [pointer, value] + ([] if mask is None else [mask])
        tiles = self.broadcast(*operands)
        self.builder.create("tile.store", *(tile.value for tile in tiles))

    # Operations ------------------------------------------------------------------------------

    def where(self, condition: Tile, yes: Tile | float, no: Tile | float) -> Tile:
        sample = yes if isinstance(yes, Tile) else no
        assert isinstance(sample, Tile), "one side must be a block"
        yes, no = self.lift(yes, sample), self.lift(no, sample)
        return self.emit("arith.select", *self.broadcast(condition, yes, no))

    def maximum(self, left: Tile, right: Tile | float) -> Tile:
        kind = "maxnumf" if is_float(left.value.type) else "maxsi"
        return self.emit(f"arith.{kind}", *self.broadcast(left, self.lift(right, left)))

    def math(self, name: str, tile: Tile) -> Tile:
        return self.emit(f"math.{name}", tile)

    def reduce(self, tile: Tile, axis: int = 0, kind: str | None = None) -> Tile:
        kind = kind or ("addf" if is_float(tile.value.type) else "addi")
        return self.emit("tile.reduce", tile, axis=axis, kind=kind, regions=[Region()])

    def scan(self, tile: Tile, axis: int, kind: str = "addf", reverse: bool = False) -> Tile:
        return self.emit(
            "tile.scan", tile, axis=axis, kind=kind, reverse=reverse, regions=[Region()]
        )

    def combine(
        self, name: str, tiles: Sequence[Tile], axis: int,
        rule: Callable[[Builder, list[Value]], list[Value]], **attrs: object,
    ) -> list[Tile]:  # fmt: skip
        """tile.reduce or tile.scan with a region that `rule` fills."""
        elements = [element_type(tile.value.type) for tile in tiles]
        region = Region([*elements, *elements])
        inner = Builder(region)
        inner.create("scf.yield", *rule(inner, region.args))
        op = self.builder.create(
            name, *(tile.value for tile in tiles), axis=axis, kind="region",
            regions=[region], **attrs,
        )  # fmt: skip
        return [Tile(self, result) for result in op.results]

    def dot(self, left: Tile, right: Tile, acc: Tile | None = None) -> Tile:
        if acc is None:
            acc = self.full((*left.shape[:-1], right.shape[-1]), 0.0)
        return self.emit("tile.dot", left, right, acc)

    # Control flow ----------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, lower: Tile | int, upper: Tile | int, step: int, *initial: Tile
    ) -> Iterator[Loop]:
        bounds = [self.lift(bound, self.scalar(0, I32)).value for bound in (lower, upper, step)]
        op, region = self.builder.for_loop(*bounds, [tile.value for tile in initial])
        with self.builder.at(region):
            yield Loop(self, op, region)

    @contextmanager
    def inside(self, region: Region) -> Iterator[None]:
        with self.builder.at(region):
            yield

    def leave(self, *tiles: Tile, name: str = "scf.yield") -> None:
        self.builder.create(name, *(tile.value for tile in tiles))


class Loop:
    """A loop being filled: `index`, `carried`, then `results`."""

    def __init__(self, kernel: TileKernel, op: Operation, region: Region) -> None:
        self.index, *self.carried = (Tile(kernel, arg) for arg in region.args)
        self.results = [Tile(kernel, result) for result in op.results]


class Tile:
    """A value with operators."""

    def __init__(self, kernel: TileKernel, value: Value) -> None:
        self.kernel = kernel
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.value.type)

    @property
    def pointee(self) -> ScalarType:
        pointer = element_type(self.value.type)
        assert isinstance(pointer, PointerType), "expected pointers"
        return pointer.pointee

    def broadcast_to(self, shape: tuple[int, ...]) -> Tile:
        kernel, tile = self.kernel, self
        if not self.shape:
            splat = TileType(shape, self.value.type)
            return Tile(kernel, kernel.builder.splat(self.value, splat))
        while len(tile.shape) < len(shape):
            tile = kernel.emit("tile.expand_dims", tile, axis=0)
        if tile.shape != shape:
            tile = kernel.emit(
                "tile.broadcast", tile, type=TileType(shape, element_type(self.value.type))
            )
        return tile

    def __getitem__(self, item: tuple[slice | None, ...]) -> Tile:
        tile = self
        for axis, entry in enumerate(item):
            if entry is None:
                tile = self.kernel.emit("tile.expand_dims", tile, axis=axis)
        return tile

    def reshape(self, *shape: int) -> Tile:
        type_ = TileType(shape, element_type(self.value.type))
        return self.kernel.emit("tile.reshape", self, type=type_)

    def trans(self, *order: int) -> Tile:
        return self.kernel.emit("tile.trans", self, order=order or (1, 0))

    def to(self, element: ScalarType) -> Tile:
        source = element_type(self.value.type)
        assert isinstance(source, ScalarType), "pointers do not convert"
        if source is element:
            return self
        wider = element.bits > source.bits
        name = {
            ("int", "int"): "extsi" if wider else "trunci",
            ("float", "float"): "extf" if wider else "truncf",
            ("int", "float"): "sitofp",
            ("float", "int"): "fptosi",
        }[source.kind, element.kind]
        return self.kernel.emit(f"arith.{name}", self, type=with_element(self.value.type, element))

    def _binary(self, other: Tile | float, name: str, swapped: bool = False) -> Tile:
        left, right = self.kernel.broadcast(self, self.kernel.lift(other, self))
        if swapped:
            left, right = right, left
        if is_pointer(left.value.type):
            return self.kernel.emit("ptr.add", left, right)
        if name in ("and", "or", "xor"):
            return self.kernel.emit(f"arith.{name}i", left, right)
        if is_float(left.value.type):
            return self.kernel.emit(f"arith.{name}f", left, right)
        signed = {"div": "divsi", "rem": "remsi"}.get(name, f"{name}i")
        return self.kernel.emit(f"arith.{signed}", left, right)

    def __add__(self, other: Tile | float) -> Tile:
        return self._binary(other, "add")

    def __sub__(self, other: Tile | float) -> Tile:
        return self._binary(other, "sub")

    def __rsub__(self, other: Tile | float) -> Tile:
        return self._binary(other, "sub", swapped=True)

    def __mul__(self, other: Tile | float) -> Tile:
        return self._binary(other, "mul")

    def __truediv__(self, other: Tile | float) -> Tile:
        return self._binary(other, "div")

    def __mod__(self, other: Tile | float) -> Tile:
        return self._binary(other, "rem")

    def __and__(self, other: Tile | float) -> Tile:
        return self._binary(other, "and")

    def __or__(self, other: Tile | float) -> Tile:
        return self._binary(other, "or")

    def __xor__(self, other: Tile | float) -> Tile:
        return self._binary(other, "xor")

    def compare(self, other: Tile | float, predicate: str) -> Tile:
        left, right = self.kernel.broadcast(self, self.kernel.lift(other, self))
        floats = is_float(left.value.type)
        if predicate in ("eq", "ne"):
            predicate = {"eq": "oeq", "ne": "une"}[predicate] if floats else predicate
        else:
            predicate = f"{'o' if floats else 's'}{predicate}"
        return self.kernel.emit(
            f"arith.cmp{'f' if floats else 'i'}", left, right, predicate=predicate
        )

    def __lt__(self, other: Tile | float) -> Tile:
        return self.compare(other, "lt")

    def __le__(self, other: Tile | float) -> Tile:
        return self.compare(other, "le")

    def __gt__(self, other: Tile | float) -> Tile:
        return self.compare(other, "gt")

    def __ge__(self, other: Tile | float) -> Tile:
        return self.compare(other, "ge")
