"""The way from Python arguments to a native call, kept short: it is walked at every launch.

`bind` turns arguments into a cheap key (equal keys mean equal code), the numbers for the argument
slots, and how the arrays lie to one another. Whatever it does not know at a glance it leaves to
`arguments.classify`, which is the full rule.
"""

from __future__ import annotations

import ctypes
import math
import operator
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from isthmus.core.errors import DeviceError
from isthmus.hal.drivers.cpu.device import CpuDevice, CpuExecutable
from isthmus.hal.drivers.cpu.runtime import COMMAND, LAUNCH
from isthmus.jit.arguments import classify, constant_key, memory_range
from isthmus.jit.compile import CompiledKernel
from isthmus.jit.specialise import CONSTANT, SPECIALISED, Layout
from isthmus.language.values import unwrap

__all__ = ["LoadedKernel", "bind", "grid_sizes"]

#: Where an array object keeps the address of its data: right behind the object header.
_DATA_OFFSET = object.__basicsize__
_pointer_at: Any = ctypes.c_void_p.from_address


def _address_by_attribute(array: np.ndarray) -> int:
    return array.ctypes.data


def _address_by_layout(array: np.ndarray) -> int:
    return _pointer_at(id(array) + _DATA_OFFSET).value or 0


def _layout_is_known() -> bool:
    probes = [np.zeros(3, np.float32), np.zeros((4, 4))[1:, 2:], np.zeros(8, np.int8)[5:]]
    return all(_address_by_layout(probe) == probe.ctypes.data for probe in probes)


#: The address of an array's data; `ndarray.ctypes` takes five times as long.
_address: Callable[[np.ndarray], int] = (
    _address_by_layout if _layout_is_known() else _address_by_attribute
)

_tensor_types: set[type] = set()


def bind(
    values: Sequence[Any], modes: Sequence[str]
) -> tuple[list[Any], list[int | float], Layout]:
    """Key, slot values of the run-time arguments, and how the arrays lie to one another."""
    key: list[Any] = []
    slots: list[int | float] = []
    ranges: list[int] = []
    unaligned = 0
    for value, mode in zip(values, modes, strict=True):
        kind = type(value)
        if mode is CONSTANT:
            if kind is int or kind is bool or kind is str:
                key += (kind, value)
            else:
                key.append(constant_key(value))
        elif kind is np.ndarray:
            address = _address(value)
            key.append(value.dtype)
            unaligned = unaligned << 1 | (address & 15 != 0)
            slots.append(address)
            flags = value.flags
            if flags.c_contiguous:
                ranges += (address, address + value.nbytes)
            else:
                ranges += memory_range(value)
            if not flags.writeable:
                key.append("read-only")
        elif kind is int:
            slots.append(value)
            if value == 1 and mode is SPECIALISED:
                key.append("=1")
            elif -0x80000000 <= value <= 0x7FFFFFFF:
                key.append("16" if mode is SPECIALISED and not value & 15 else "i32")
            else:
                key.append(classify(value, mode is SPECIALISED))
                if value > 0x7FFFFFFFFFFFFFFF:
                    slots[-1] = value - (1 << 64)
        elif kind is float:
            key.append("f32")
            slots.append(value)
        elif kind in _tensor_types and value.is_cpu:
            address = value.data_ptr()
            key.append(value.dtype)
            unaligned = unaligned << 1 | (address & 15 != 0)
            slots.append(address)
            if value.is_contiguous():
                ranges += (address, address + value.nbytes)
            else:
                ranges += memory_range(value)
        else:
            unaligned = _bind_other(value, mode, key, slots, ranges, unaligned)
    layout = _layout(ranges) if len(ranges) > 2 else None
    key += (unaligned, layout)
    return key, slots, layout


def _bind_other(
    value: Any, mode: str, key: list[Any], slots: list[int | float], ranges: list[int],
    unaligned: int,
) -> int:  # fmt: skip
    """One argument of a kind that is rare, or seen for the first time."""
    entry = classify(value, mode is SPECIALISED)
    key.append(entry)
    if entry[0] in ("none", "constant"):
        return unaligned
    if entry[0][0] != "*":
        slots.append(float(value) if entry[0][0] == "f" else _signed(int(value)))
        return unaligned
    if isinstance(value, np.ndarray):
        slots.append(value.ctypes.data)
        if not value.flags.writeable:
            key.append("read-only")
    else:
        slots.append(value.data_ptr())
        if hasattr(value, "is_cpu") and hasattr(value, "is_contiguous"):
            _tensor_types.add(type(value))
        key[-1] = value.dtype
    ranges += memory_range(value)
    return unaligned << 1 | (slots[-1] & 15 != 0)  # type: ignore[operator]


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _layout(ranges: list[int]) -> Layout:
    """How arrays lie to one another (see `Layout`)."""
    pairs = sorted(zip(ranges[::2], ranges[1::2], strict=True))
    reached = -1
    for start, end in pairs:
        if start < reached:
            break
        reached = end
    else:
        return None
    starts = ranges[::2]
    apart = all(
        low == other_low or low >= other_high or other_low >= high
        for position, (low, high) in enumerate(pairs)
        for other_low, other_high in pairs[:position]
    )
    return apart, tuple(map(starts.index, starts))


class _Frame(threading.local):
    """Per-thread memory for one command and its argument slots."""

    def __init__(self) -> None:
        self.reserve(16)

    def reserve(self, slots: int) -> None:
        """Make room for that many slots."""
        self.room = slots
        self.memory = bytearray(COMMAND.itemsize + 8 * slots)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))


_frame = _Frame()
_SLOT_FORMATS = {"ptr": "Q", "f32": "f4x", "f64": "d"}


class LoadedKernel:
    """A compiled specialisation in memory, ready to launch.

    positions: which of the slots that `bind` gives are arguments of this code; the others are
    built into it.
    """

    __slots__ = (
        "_address", "_format", "_select", "compiled", "device", "executable", "scratch_bytes",
        "slots",
    )  # fmt: skip

    def __init__(
        self, compiled: CompiledKernel, device: CpuDevice, positions: Sequence[int], given: int
    ) -> None:
        self.compiled = compiled
        self.device = device
        self.executable: CpuExecutable = device.load([compiled.code], [compiled.entry])
        self._address = self.executable.addresses[compiled.entry.name]
        self.scratch_bytes = compiled.entry.scratch_bytes
        kinds = compiled.entry.parameters
        self.slots = len(kinds)
        self._format = struct.Struct(
            "<QQiiiiqq" + "".join(_SLOT_FORMATS.get(kind, "q") for kind in kinds)
        )
        self._select: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        if len(positions) != given:
            self._select = operator.itemgetter(*positions) if len(positions) > 1 else (
                lambda slots: [slots[position] for position in positions]
            )  # fmt: skip

    def launch(self, slots: Sequence[int | float], grid: tuple[int, int, int]) -> None:
        """Run all programs of `grid`."""
        x, y, z = grid
        total = x * y * z
        if total == 0:
            return
        frame = _frame
        if self.slots > frame.room:
            frame.reserve(self.slots)
        if self._select is not None:
            slots = self._select(slots)
        chunk = total // (6 * self.device.threads.count) or 1
        address = frame.address
        head = (self._address, address + COMMAND.itemsize, x, y, z, LAUNCH, total, chunk)
        try:
            self._format.pack_into(frame.memory, 0, *head, *slots)
        except OverflowError:
            kinds = self.compiled.entry.parameters
            self._format.pack_into(frame.memory, 0, *head, *map(_narrowed, kinds, slots))
        self.device.run(address, 1, self.scratch_bytes)


def _narrowed(kind: str, value: int | float) -> int | float:
    """A number as its slot takes it: a float too large for f32 is infinite there."""
    if kind == "f32":
        try:
            struct.pack("<f", value)
        except OverflowError:
            return math.copysign(math.inf, value)
    return value


def grid_sizes(grid: Any) -> tuple[int, int, int]:
    """One to three numbers of programs. Raises DeviceError for anything else."""
    numbers = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(numbers) <= 3:
        raise DeviceError(f"a grid has one to three numbers, got {numbers}")
    sizes = []
    for given in numbers:
        number = unwrap(given)
        if not isinstance(number, (int, np.integer)) or not 0 <= number < 2**31:
            raise DeviceError(f"a grid is made of whole numbers from 0 to 2**31 - 1, got {numbers}")
        sizes.append(int(number))
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]
