"""The CPU device: buffers in host memory, objects linked by ORC, one native call per submission."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import struct
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from isthmus.core.cache import load_entry, store_entry
from isthmus.core.config import config
from isthmus.core.errors import DeviceError
from isthmus.core.target import TargetDescription
from isthmus.hal.device import Argument, BufferRef, EntryPoint, check_launch
from isthmus.hal.drivers.cpu.memory import HostBuffer
from isthmus.hal.drivers.cpu.runtime import COMMAND, COPY, FILL, LAUNCH, runtime_ir
from isthmus.hal.drivers.cpu.threads import Threads

__all__ = ["CpuCommandList", "CpuDevice", "CpuExecutable", "CpuQueue"]

_numbers = itertools.count()
_STEP = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)  # fmt: skip
#: Held while code is linked; a fork waits for it, so that a child never finds the linker half-way.
_link_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_link_lock.acquire,
        after_in_parent=_link_lock.release,
        after_in_child=_link_lock.release,
    )


@lru_cache(maxsize=1)
def _linker() -> llvm.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


def _link(objects: Sequence[bytes], names: Sequence[str]) -> llvm.ResourceTracker:
    """Objects linked into this process, with `names` to be looked up. Raises RuntimeError."""
    builder = llvm.JITLibraryBuilder()
    for code in objects:
        builder.add_object_img(code)
    for name in names:
        builder.export_symbol(name)
    builder.add_current_process()
    with _link_lock:
        return builder.link(_linker(), f"isthmus-{next(_numbers)}")


def _runtime_object() -> bytes:
    """The runtime's machine code, from disk or compiled now."""
    text = runtime_ir()
    triple = llvm.get_process_triple()
    key = hashlib.sha256(f"{llvmlite.__version__}\0{triple}\0{text}".encode()).hexdigest()
    stored = load_entry("runtime", key)
    if stored is not None:
        return stored[1]
    with _link_lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_triple(triple).create_target_machine(
            opt=2, reloc="pic", codemodel="default"
        )
        module = llvm.parse_assembly(text)
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
        builder.getModulePassManager().run(module, builder)
        code = machine.emit_object(module)
    store_entry("runtime", key, {}, code)
    return code


class _Runtime:
    """The native runtime of this process."""

    def __init__(self) -> None:
        names = ("isthmus_step", "isthmus_worker", "isthmus_stop")
        self._tracker = _link([_runtime_object()], names)
        self.step = _STEP(self._tracker["isthmus_step"])
        self.worker_address: int = self._tracker["isthmus_worker"]
        self.stop_address: int = self._tracker["isthmus_stop"]


@lru_cache(maxsize=1)
def _runtime() -> _Runtime:
    with _link_lock:
        return _Runtime()


class CpuExecutable:
    """Objects linked into this process; the code is freed with the last reference."""

    def __init__(self, objects: Sequence[bytes], entries: Sequence[EntryPoint]) -> None:
        self.entries = {entry.name: entry for entry in entries}
        try:
            self._tracker = _link(objects, list(self.entries))
        except RuntimeError as error:
            raise DeviceError(f"cannot link {', '.join(self.entries)}: {error}") from error
        self.addresses: dict[str, int] = {name: self._tracker[name] for name in self.entries}


_PACKERS = {
    "ptr": struct.Struct("<Q"), "f32": struct.Struct("<fI"), "f64": struct.Struct("<d"),
    "int": struct.Struct("<q"),
}  # fmt: skip


def pack_argument(kind: str, value: Argument) -> bytes:
    """The eight bytes of one argument slot."""
    if kind == "ptr":
        if isinstance(value, BufferRef):
            return _PACKERS["ptr"].pack(value.buffer.address + value.offset_bytes)
        return _PACKERS["ptr"].pack(int(value))
    if isinstance(value, BufferRef):
        raise DeviceError(f"a buffer was given for a parameter of kind {kind}")
    if kind == "f32":
        return _PACKERS["f32"].pack(value, 0)
    if kind == "f64":
        return _PACKERS["f64"].pack(value)
    bits = int(kind[1:])
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise DeviceError(f"{number} does not fit a parameter of kind {kind}")
    if number >= 1 << (bits - 1) and bits > 1:
        number -= 1 << bits
    return _PACKERS["int"].pack(number)


class CpuCommandList:
    """Commands as one array of records, with all argument slots in another."""

    def __init__(self, device: CpuDevice) -> None:
        self.device = device
        self.scratch_bytes = 0
        self.labels: list[str] = []
        self._records: list[tuple[Any, ...]] = []
        self._slots: list[bytes] = []
        self._first_slot: list[int] = []
        self._kinds: list[tuple[str, ...]] = []
        self._keep: list[Any] = []
        self._commands: np.ndarray | None = None
        self._arguments = np.zeros(0, np.uint8)

    def __len__(self) -> int:
        return len(self._records)

    def add_launch(
        self, executable: CpuExecutable, entry: str, arguments: Sequence[Argument],
        grid: tuple[int, int, int], *, label: str = "",
    ) -> int:  # fmt: skip
        """Launch `entry` over `grid`; gives the command's number. An empty grid does nothing.

        Raises: DeviceError for a wrong number or kind of arguments, or a negative grid.
        """
        point = executable.entries[entry]
        check_launch(point, arguments, grid)
        self._keep += [a.buffer for a in arguments if isinstance(a, BufferRef)]
        self._keep.append(executable)
        total = grid[0] * grid[1] * grid[2]
        threads = self.device.threads.count
        chunk = max(1, total // (threads * 6))
        self.scratch_bytes = max(self.scratch_bytes, point.scratch_bytes)
        packed = [
            pack_argument(kind, value)
            for kind, value in zip(point.parameters, arguments, strict=True)
        ]
        record = (executable.addresses[entry], 0, grid, LAUNCH, total, chunk)
        return self._add(record, packed, point.parameters, label or entry)

    def add_copy(self, target: BufferRef, source: BufferRef, size_bytes: int) -> int:
        """Copy bytes between buffers that do not overlap."""
        self._keep += [target.buffer, source.buffer]
        addresses = [ref.buffer.address + ref.offset_bytes for ref in (target, source)]
        return self._add((*addresses, (0, 0, 0), COPY, size_bytes, 0), [], (), "copy")

    def add_fill(self, target: BufferRef, value: int, size_bytes: int) -> int:
        """Set every byte to `value`."""
        self._keep.append(target.buffer)
        address = target.buffer.address + target.offset_bytes
        return self._add((address, 0, (0, 0, 0), FILL, size_bytes, value), [], (), "fill")

    def _add(
        self, record: tuple[Any, ...], slots: list[bytes], kinds: tuple[str, ...], label: str
    ) -> int:
        if self._commands is not None:
            raise DeviceError("this command list is finished")
        self._records.append(record)
        self._first_slot.append(len(self._slots))
        self._slots += slots
        self._kinds.append(kinds)
        self.labels.append(label)
        return len(self._records) - 1

    def finish(self) -> None:
        """Freeze the list. Arguments may still be patched."""
        if self._commands is not None:
            return
        self._arguments = np.frombuffer(
            bytearray(b"".join(self._slots) or b"\0" * 8), dtype=np.uint8
        )
        commands = np.zeros(len(self._records), COMMAND)
        base = self._arguments.ctypes.data
        for position, (entry, args, grid, kind, total, chunk) in enumerate(self._records):
            if kind == LAUNCH:
                args = base + 8 * self._first_slot[position]
            commands[position] = (entry, args, grid, kind, total, chunk)
        self._commands = commands

    def set_argument(self, command: int, position: int, value: Argument) -> None:
        """Give one argument of a finished list another value."""
        kind = self._kinds[command][position]
        start = 8 * (self._first_slot[command] + position)
        self._arguments[start : start + 8] = np.frombuffer(pack_argument(kind, value), np.uint8)

    @property
    def commands(self) -> np.ndarray:
        if self._commands is None:
            raise DeviceError("finish the command list before it is submitted")
        return self._commands


class CpuEvent:
    """A submission on the CPU is complete when `submit` returns."""

    done = True

    def wait(self) -> None:
        """Return at once."""


class CpuQueue:
    """Runs command lists; a lock keeps steps of several Python threads apart."""

    def __init__(self, device: CpuDevice) -> None:
        self.device = device
        self._event = CpuEvent()

    def submit(self, commands: CpuCommandList, profile: np.ndarray | None = None) -> CpuEvent:
        """Run all commands in one native call.

        profile: i64 [commands]; the nanoseconds of each command are added to it.
        """
        records = commands.commands
        if profile is not None and (profile.dtype != np.int64 or len(profile) != len(records)):
            raise DeviceError(f"a profile of {len(records)} commands is i64[{len(records)}]")
        self.device.run(
            records.ctypes.data,
            len(records),
            commands.scratch_bytes,
            None if profile is None else profile.ctypes.data,
        )
        return self._event


class CpuDevice:
    """The host CPU with `threads` threads (default: the setting, or the cores at hand)."""

    name = "cpu"

    def __init__(self, target: TargetDescription, threads: int | None = None) -> None:
        self.target = target
        settings = config()
        if threads is not None and threads < 1:
            raise DeviceError(f"threads is {threads}; it must be 1 or more")
        runtime = _runtime()
        self.threads = Threads(
            threads or settings.num_threads,
            settings.thread_pool,
            runtime.worker_address,
            runtime.stop_address,
        )
        self._step = runtime.step

    def allocate(self, size_bytes: int) -> HostBuffer:
        return HostBuffer(size_bytes)

    def load(self, objects: Sequence[bytes], entries: Sequence[EntryPoint]) -> CpuExecutable:
        return CpuExecutable(objects, entries)

    def command_list(self) -> CpuCommandList:
        return CpuCommandList(self)

    def queue(self) -> CpuQueue:
        return CpuQueue(self)

    def run(
        self, commands: int, count: int, scratch_bytes: int, profile: int | None = None
    ) -> None:
        """Run `count` command records at an address: the one native call of a step."""
        threads = self.threads
        with threads.lock:
            if threads.is_forked:
                threads.restart()
            if scratch_bytes > threads.scratch_bytes:
                threads.ensure_scratch(scratch_bytes)
            self._step(commands, count, threads.address, profile)
