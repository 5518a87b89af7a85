"""The device protocol: a few small objects that every driver implements.

Device       allocates buffers, loads executables, makes command lists and queues
Buffer       memory on a device
Executable   loaded code; freed when the last reference is gone
CommandList  launches, copies and fills in order; built once, submitted often
Queue        takes command lists and gives an event each
Event        completion of a submission
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from isthmus.core.errors import DeviceError
from isthmus.core.target import TargetDescription

__all__ = [
    "Argument", "Buffer", "BufferRef", "CommandList", "Device", "EntryPoint", "Event", "Executable",
    "Queue", "check_launch",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One kernel of an object.

    parameters: kind of each parameter in order: "ptr", "i1", "i8", "i16", "i32", "i64", "f32" or
        "f64".
    scratch_bytes: per-thread memory that it needs.
    """

    name: str
    parameters: tuple[str, ...]
    scratch_bytes: int


class Buffer(Protocol):
    """`size_bytes` of device memory."""

    size_bytes: int

    def read(self, offset_bytes: int, size_bytes: int) -> bytes: ...

    def write(self, offset_bytes: int, content: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A place in a buffer: what a pointer argument is bound to."""

    buffer: Any
    offset_bytes: int = 0


Argument = BufferRef | int | float


def check_launch(
    entry: EntryPoint, arguments: Sequence[Argument], grid: tuple[int, int, int]
) -> None:
    """Refuse a launch that no driver can run.

    Raises: DeviceError for a wrong number of arguments, or a grid that is not three sizes.
    """
    if len(arguments) != len(entry.parameters):
        raise DeviceError(
            f"{entry.name} takes {len(entry.parameters)} arguments, got {len(arguments)}"
        )
    if len(grid) != 3 or min(grid) < 0 or max(grid) >= 2**31:
        raise DeviceError(f"a grid is three numbers from 0 to 2**31 - 1, got {grid}")


class Executable(Protocol):
    """Loaded code with its entry points by name."""

    entries: dict[str, EntryPoint]


class Event(Protocol):
    """Completion of a submission."""

    def wait(self) -> None: ...

    @property
    def done(self) -> bool: ...


class CommandList(Protocol):
    """Commands in order. `finish` freezes the list; arguments may be patched afterwards."""

    def add_launch(
        self, executable: Executable, entry: str, arguments: Sequence[Argument],
        grid: tuple[int, int, int], *, label: str = "",
    ) -> int: ...  # fmt: skip

    def add_copy(self, target: BufferRef, source: BufferRef, size_bytes: int) -> int: ...

    def add_fill(self, target: BufferRef, value: int, size_bytes: int) -> int: ...

    def set_argument(self, command: int, position: int, value: Argument) -> None: ...

    def finish(self) -> None: ...


class Queue(Protocol):
    """Runs command lists in the order of submission.

    A profile (i64, one place a command) gets the nanoseconds of each command added.
    """

    def submit(self, commands: Any, profile: Any = None) -> Event: ...


class Device(Protocol):
    """One device. `target` describes it to the compiler."""

    name: str
    target: TargetDescription

    def allocate(self, size_bytes: int) -> Buffer: ...

    def load(self, objects: Sequence[bytes], entries: Sequence[EntryPoint]) -> Executable: ...

    def command_list(self) -> CommandList: ...

    def queue(self) -> Queue: ...
