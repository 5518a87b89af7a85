"""Which threads run launches: libgomp's where the process has it loaded, else a pool of our own.

Sharing libgomp with PyTorch keeps one pool of threads instead of two that fight for the cores;
without PyTorch the own pool is better: it never waits for a thread that lost its core.

The own pool's threads are Python threads that stay in native code. After a fork the child has
no threads left: it starts a pool of its own with its first step, if it ever takes one.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import platform
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np

from isthmus.core.errors import ConfigError, DeviceError
from isthmus.hal.drivers.cpu.memory import HostBuffer
from isthmus.hal.drivers.cpu.runtime import HOST_CALLS, POOL, THREADING

__all__ = ["Threads", "find_libgomp"]

#: How long an idle worker looks for the next launch before it sleeps.
_SPIN_NS = 100_000

_alive: weakref.WeakSet[Threads] = weakref.WeakSet()


def find_libgomp(*, loaded_only: bool = False) -> ctypes.CDLL | None:
    """libgomp: the copy that this process has loaded (PyTorch's), else the system's, else None."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        for line in maps.read_text().splitlines():
            path = line.split(maxsplit=5)[-1]
            if "libgomp" in path and path.startswith("/"):
                return ctypes.CDLL(path)
    if loaded_only:
        return None
    with contextlib.suppress(OSError):
        return ctypes.CDLL("libgomp.so.1")
    return None


class Threads:
    """Threads for launches, and the scratch memory of each.

    kind: "auto", "libgomp" or "own"; worker, stop: addresses of the runtime's functions.
    record, address: what the runtime reads (see THREADING), and where.
    lock: held during a step, so that steps of several Python threads follow one another.
    """

    def __init__(self, count: int, kind: str, worker: int, stop: int) -> None:
        self.count = count
        self.kind = kind
        self.lock = threading.Lock()
        self._worker_address, self._stop_address = worker, stop
        self.record = np.zeros(1, THREADING)
        self.record["threads"] = count
        self.address: int = self.record.ctypes.data
        self._workers: list[threading.Thread] = []
        self._pool = np.zeros(0, POOL)
        self._process = os.getpid()
        self.is_forked = False
        self.scratch_bytes = 0
        self.ensure_scratch(4096)
        _alive.add(self)
        self._start(kind)

    def _start(self, kind: str) -> None:
        if self.count == 1:
            self.record["mode"] = 0
            return
        library = None
        if kind != "own":
            library = find_libgomp(loaded_only=kind == "auto" and HOST_CALLS.futex > 0)
        if kind == "libgomp" and library is None:
            raise ConfigError(
                "ISTHMUS_THREAD_POOL is libgomp, but there is no libgomp on this machine",
                hint="install it, or use ISTHMUS_THREAD_POOL=own",
            )
        if library is not None:
            address = ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value
            number = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p).value
            self.record["mode"] = 1
            self.record["gomp_parallel"] = address
            self.record["thread_number"] = number
            return
        if not HOST_CALLS.futex:
            raise DeviceError(
                f"the own thread pool is not available on {platform.system()} {platform.machine()}",
                hint="install libgomp, or set ISTHMUS_NUM_THREADS=1",
            )
        raw = np.zeros(POOL.itemsize + 64, np.uint8)
        start = -raw.ctypes.data % 64
        self._pool = raw[start : start + POOL.itemsize].view(POOL)
        enter = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64)(
            self._worker_address
        )
        self._workers = [
            threading.Thread(
                target=_work, args=(enter, self._pool, number),
                name=f"isthmus-{number}", daemon=True,
            )
            for number in range(1, self.count)
        ]  # fmt: skip
        for worker in self._workers:
            worker.start()
        self.record["pool"] = self._pool.ctypes.data
        self.record["mode"] = 2

    @property
    def pool_name(self) -> str:
        return ("none", "libgomp", "own")[int(self.record["mode"][0])]

    def ensure_scratch(self, size_bytes: int) -> None:
        """Give every thread at least `size_bytes` of scratch. Call it with the lock held."""
        if self.scratch_bytes >= size_bytes:
            return
        stride = (size_bytes + 4095) // 4096 * 4096 + 256  # threads do not share cache sets
        self._scratch = HostBuffer(stride * self.count)
        self.record["scratch"] = self._scratch.address
        self.record["scratch_stride"] = stride
        self.scratch_bytes = stride

    def after_fork(self) -> None:
        """In a child process: the threads are gone, and libgomp's pool would hang."""
        self.lock = threading.Lock()
        self._workers = []
        self._process = os.getpid()
        self.record["mode"] = 0
        self.is_forked = True

    def restart(self) -> None:
        """After a fork: start a pool of our own. Call it with the lock held."""
        self.is_forked = False
        if self.count > 1 and HOST_CALLS.futex:
            self._start("own")

    def __del__(self) -> None:
        if "_workers" in self.__dict__:
            self.close()

    def close(self) -> None:
        """Stop the workers of the own pool; later launches run in the calling thread."""
        if not self._workers or self._process != os.getpid():
            return
        self.record["mode"] = 0
        stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._stop_address)
        stop(self._pool.ctypes.data)
        for worker in self._workers:
            worker.join(timeout=5.0)
        self._workers = []


def _work(enter: Callable[..., None], pool: np.ndarray, number: int) -> None:
    """The life of a worker; it keeps the pool's memory alive for as long as it reads it."""
    enter(pool.ctypes.data, number, _SPIN_NS)


def _after_fork() -> None:
    for threads in list(_alive):
        threads.after_fork()


def _at_exit() -> None:
    for threads in list(_alive):
        threads.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
