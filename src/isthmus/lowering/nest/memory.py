"""Scratch memory: blocks that outlive one nest, placed by the time they are live.

Time is the number of buffer accesses emitted so far. A buffer lives from its first access to its
last; one that was there before a loop and is used inside it lives to the end of that loop.
Offsets are chosen once everything is emitted, and filled into the constants that stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from isthmus.ir.builder import Builder
from isthmus.ir.core import Operation, Value
from isthmus.ir.types import I1, I8, I64, PointerType, ScalarType, Type

__all__ = ["ALIGNMENT_BYTES", "Block", "Buffer", "Scratch", "row_major", "storage_type"]

#: Every buffer starts on a cache line.
ALIGNMENT_BYTES = 64
_FOREVER = 1 << 62


def storage_type(element: Type) -> ScalarType:
    """How an element lies in scratch: truth values as bytes, pointers as i64."""
    if isinstance(element, PointerType):
        return I64
    assert isinstance(element, ScalarType), f"{element} is not stored in scratch"
    return I8 if element is I1 else element


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense block, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(slots=True, eq=False)
class Buffer:
    """A piece of scratch memory. `offsets` are the constants to fill in."""

    size_bytes: int
    start: int = -1
    end: int = -1
    offsets: list[Operation] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Block:
    """A block value in memory: dense, row-major, elements of `element`.

    `owner` and `item` say which schedule writes it and at which of its items it is complete; no
    owner: it is there before the schedule starts. `first` is the first item that writes.
    `base` is the block whose storage this one uses; `view_of` the block that it shows under
    another shape.
    """

    shape: tuple[int, ...]
    element: Type
    owner: object | None = None
    item: int = -1
    first: int = -1
    base: Block | None = None
    view_of: Block | None = None
    _buffer: Buffer | None = None

    @property
    def storage(self) -> Block:
        """The block that owns the buffer."""
        block = self
        while block.base is not None:
            block = block.base
        return block

    @property
    def version(self) -> Block:
        """The block whose value this is."""
        block = self
        while block.view_of is not None:
            block = block.view_of
        return block

    @property
    def buffer(self) -> Buffer:
        block = self.storage
        if block._buffer is None:
            block._buffer = Buffer(block.size_bytes)
        return block._buffer

    @property
    def strides(self) -> tuple[int, ...]:
        return row_major(self.shape)

    @property
    def size_bytes(self) -> int:
        size = storage_type(self.element).size_bytes
        for extent in self.shape:
            size *= extent
        return size


@dataclass(slots=True)
class _Loop:
    start: int
    extended: list[Buffer] = field(default_factory=list)


class Scratch:
    """Hands out buffers during emission and places them afterwards."""

    def __init__(self, pointer: Value) -> None:
        self.pointer = pointer
        self.buffers: list[Buffer] = []
        self._clock = 0
        self._loops: list[_Loop] = []
        self._moment: _Loop | None = None

    def open_loop(self) -> None:
        self._clock += 1
        self._loops.append(_Loop(self._clock))

    def close_loop(self) -> None:
        self._clock += 1
        loop = self._loops.pop()
        for buffer in loop.extended:
            buffer.end = max(buffer.end, self._clock)

    @contextmanager
    def one_time(self) -> Iterator[None]:
        """Everything touched within, a nest or a product, is live throughout."""
        self._clock += 1
        self._moment = _Loop(self._clock)
        yield
        self._clock += 1
        for buffer in self._moment.extended:
            buffer.end = max(buffer.end, self._clock)
        self._moment = None

    def lasting(self, size_bytes: int) -> Buffer:
        """A buffer that lives as long as the call of the kernel, shared by its programs."""
        buffer = Buffer(size_bytes, start=0, end=_FOREVER)
        self.buffers.append(buffer)
        return buffer

    def touch(self, buffer: Buffer) -> None:
        """The buffer is accessed at this point of the program."""
        self._clock += 1
        if buffer.end == _FOREVER:
            return
        if buffer.start < 0:
            buffer.start = self._clock if self._moment is None else self._moment.start
            self.buffers.append(buffer)
        if self._moment is not None:
            self._moment.extended.append(buffer)
        buffer.end = self._clock
        for loop in self._loops:
            if loop.start > buffer.start:
                loop.extended.append(buffer)
                break

    def address(self, builder: Builder, buffer: Buffer, element: ScalarType) -> Value:
        """The start of the buffer as a pointer to `element`."""
        self.touch(buffer)
        offset = builder.emit("arith.constant", type=I64, value=0)
        operation = offset.defining_op
        assert operation is not None, "a constant has a defining operation"
        buffer.offsets.append(operation)
        place = builder.emit("ptr.add", self.pointer, offset)
        if element is I8:
            return place
        return builder.emit("ptr.cast", place, type=PointerType(element))

    def block_address(self, builder: Builder, block: Block) -> Value:
        """The first element of a block."""
        return self.address(builder, block.buffer, storage_type(block.element))

    def place(self) -> int:
        """Choose all offsets, largest buffers first; returns the bytes needed."""
        placed: list[tuple[int, Buffer]] = []
        total = 0
        for buffer in sorted(self.buffers, key=lambda b: (-b.size_bytes, b.start)):
            size = _aligned(buffer.size_bytes)
            rivals = sorted(
                (offset, offset + _aligned(other.size_bytes))
                for offset, other in placed
                if other.start <= buffer.end and buffer.start <= other.end
            )
            offset = 0
            for low, high in rivals:
                if offset + size <= low:
                    break
                offset = max(offset, high)
            placed.append((offset, buffer))
            total = max(total, offset + size)
            for operation in buffer.offsets:
                operation.attrs["value"] = offset
        return total


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
