"""The null device: buffers hold bytes, command lists are kept, kernels do nothing.

Tests use it to see what would run where, and to time everything around the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isthmus.core.errors import DeviceError
from isthmus.core.target import TargetDescription
from isthmus.hal.device import Argument, BufferRef, EntryPoint, check_launch
from isthmus.hal.drivers.cpu.memory import HostBuffer

__all__ = ["NullCommandList", "NullDevice", "NullEvent", "NullExecutable", "NullQueue", "Record"]


@dataclass(frozen=True, slots=True)
class Record:
    """One command. operation: "launch", "copy" or "fill"; a launch has an entry and a grid."""

    operation: str
    label: str
    arguments: tuple[Any, ...]
    entry: str = ""
    grid: tuple[int, int, int] = (0, 0, 0)


class NullExecutable:
    """Entry points without code."""

    def __init__(self, entries: Sequence[EntryPoint]) -> None:
        self.entries = {entry.name: entry for entry in entries}


class NullCommandList:
    """Commands as records."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.labels: list[str] = []
        self.is_finished = False

    def __len__(self) -> int:
        return len(self.records)

    def add_launch(
        self, executable: NullExecutable, entry: str, arguments: Sequence[Argument],
        grid: tuple[int, int, int], *, label: str = "",
    ) -> int:  # fmt: skip
        check_launch(executable.entries[entry], arguments, grid)
        return self._add(Record("launch", label or entry, tuple(arguments), entry, grid))

    def add_copy(self, target: BufferRef, source: BufferRef, size_bytes: int) -> int:
        return self._add(Record("copy", "copy", (target, source, size_bytes)))

    def add_fill(self, target: BufferRef, value: int, size_bytes: int) -> int:
        return self._add(Record("fill", "fill", (target, value, size_bytes)))

    def _add(self, record: Record) -> int:
        if self.is_finished:
            raise DeviceError("this command list is finished")
        self.records.append(record)
        self.labels.append(record.label)
        return len(self.records) - 1

    def set_argument(self, command: int, position: int, value: Argument) -> None:
        """Give one argument of a launch another value."""
        record = self.records[command]
        arguments = list(record.arguments)
        arguments[position] = value
        self.records[command] = replace(record, arguments=tuple(arguments))

    def finish(self) -> None:
        """Freeze the list. Arguments may still be patched."""
        self.is_finished = True


class NullEvent:
    """A submission is complete at once."""

    done = True

    def wait(self) -> None:
        """Return at once."""


class NullQueue:
    """Adds the commands of each submission to `device.submitted`."""

    def __init__(self, device: NullDevice) -> None:
        self.device = device

    def submit(self, commands: NullCommandList, profile: np.ndarray | None = None) -> NullEvent:
        """Record a submission; a profile is left as it is."""
        if not commands.is_finished:
            raise DeviceError("finish the command list before it is submitted")
        self.device.submitted.append(tuple(commands.records))
        return NullEvent()


class NullDevice:
    """A device that takes everything and does nothing.

    submitted: the records of each submission, in order.
    """

    name = "null"

    def __init__(self, target: TargetDescription) -> None:
        self.target = target
        self.submitted: list[tuple[Record, ...]] = []

    def allocate(self, size_bytes: int) -> HostBuffer:
        return HostBuffer(size_bytes)

    def load(self, objects: Sequence[bytes], entries: Sequence[EntryPoint]) -> NullExecutable:
        return NullExecutable(entries)

    def command_list(self) -> NullCommandList:
        return NullCommandList()

    def queue(self) -> NullQueue:
        return NullQueue(self)
