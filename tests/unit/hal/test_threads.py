"""Launches from several Python threads, forks, sleeping workers, exit: both thread pools."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from isthmus.hal.device import BufferRef, EntryPoint
from isthmus.hal.drivers.cpu.device import CpuDevice
from isthmus.hal.drivers.cpu.threads import find_libgomp
from isthmus.targets import host_target
from isthmus.targets.llvm.compile import compile_object

#: out[p] counts how often program p ran; it writes to its scratch first, as kernels do.
COUNT = """
define void @count(ptr %args, ptr %grid, i64 %begin, i64 %end, ptr %scratch) {
  %out = load ptr, ptr %args
  br label %loop
loop:
  %p = phi i64 [ %begin, %0 ], [ %next, %loop ]
  store volatile i64 %p, ptr %scratch
  %place = getelementptr i32, ptr %out, i64 %p
  %old = load i32, ptr %place
  %new = add i32 %old, 1
  %seen = load volatile i64, ptr %scratch
  %good = icmp eq i64 %seen, %p
  %kept = select i1 %good, i32 %new, i32 -1000
  store i32 %kept, ptr %place
  %next = add i64 %p, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %out_block
out_block:
  ret void
}
"""
ENTRY = EntryPoint("count", ("ptr",), 64)
PROGRAMS = 500


@pytest.fixture(scope="module")
def code() -> bytes:
    target = host_target()
    return compile_object(f'target triple = "{target.triple}"\n{COUNT}', target)


@pytest.fixture(params=["own", "libgomp"])
def device(request, monkeypatch) -> CpuDevice:
    monkeypatch.setenv("ISTHMUS_THREAD_POOL", request.param)
    if request.param == "libgomp" and find_libgomp() is None:
        pytest.skip("needs libgomp (Debian: libgomp1)")
    return CpuDevice(host_target(), threads=4)


def _counter(device: CpuDevice, code: bytes, launches: int):
    executable = device.load([code], [ENTRY])
    buffer = device.allocate(4 * PROGRAMS)
    commands = device.command_list()
    for _ in range(launches):
        commands.add_launch(executable, "count", [BufferRef(buffer)], (PROGRAMS, 1, 1))
    commands.finish()
    return commands, buffer.view(np.dtype(np.int32), (PROGRAMS,))


def test_steps_of_several_python_threads(device, code):
    """FIELD_REPORTS B44: every program of every launch runs exactly once."""
    results = []

    def work() -> None:
        commands, counts = _counter(device, code, launches=20)
        for _ in range(100):
            device.queue().submit(commands)
        results.append(bool((counts == 2000).all()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert results == [True] * 3


def test_more_launches_than_the_gate_has_seen(device, code):
    commands, counts = _counter(device, code, launches=1000)
    for _ in range(5):
        device.queue().submit(commands)
    assert (counts == 5000).all()


def test_fork_while_another_thread_launches(device, code):
    """The child finds the device usable though its parent was in the middle of a step."""
    commands, _ = _counter(device, code, launches=200)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            device.queue().submit(commands)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3):
            child = os.fork()
            if child == 0:
                own, counts = _counter(device, code, launches=3)
                device.queue().submit(own)
                os._exit(0 if (counts == 3).all() else 1)
            deadline = time.monotonic() + 60
            done = (0, 0)
            while done[0] == 0 and time.monotonic() < deadline:
                done = os.waitpid(child, os.WNOHANG)
                time.sleep(0.005)
            assert done == (child, 0)
    finally:
        stop.set()
        thread.join(timeout=60)


def test_a_child_starts_threads_with_its_first_step(device, code):
    """A child that launches nothing has one thread, and none that keeps it from ending."""
    commands, counts = _counter(device, code, launches=2)
    device.queue().submit(commands)
    child = os.fork()
    if child == 0:
        before = threading.active_count()
        device.queue().submit(commands)
        workers = threading.active_count() - before
        right = before == 1 and workers == device.threads.count - 1 and (counts == 4).all()
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_end_with_their_device(code, monkeypatch):
    monkeypatch.setenv("ISTHMUS_THREAD_POOL", "own")
    gc.collect()
    before = threading.active_count()
    for _ in range(20):
        device = CpuDevice(host_target(), threads=4)
        commands, counts = _counter(device, code, launches=2)
        device.queue().submit(commands)
        assert (counts == 2).all()
        del device, commands
        gc.collect()
    assert threading.active_count() <= before


def test_scratch_grows_between_steps(device, code):
    first = device.threads.scratch_bytes
    large = EntryPoint("count", ("ptr",), 3 * first)
    buffer = device.allocate(4 * PROGRAMS)
    commands = device.command_list()
    commands.add_launch(
        device.load([code], [large]), "count", [BufferRef(buffer)], (PROGRAMS, 1, 1)
    )
    commands.finish()
    device.queue().submit(commands)
    assert device.threads.scratch_bytes >= 3 * first
    assert int(device.threads.record["scratch"][0]) % 64 == 0
    assert (buffer.view(np.dtype(np.int32), (PROGRAMS,)) == 1).all()


SCRIPT = """
import threading, numpy as np
from isthmus.hal.drivers.cpu.device import CpuDevice
from isthmus.targets import host_target
kept = CpuDevice(host_target(), threads=3)
print(kept.threads.pool_name, sum(t.name.startswith("isthmus-") for t in threading.enumerate()))
"""


def _run(script: str, **settings: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **settings},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.strip()


def test_a_process_with_idle_workers_ends(tmp_path):
    assert _run(SCRIPT, ISTHMUS_THREAD_POOL="own", ISTHMUS_CACHE_DIR=str(tmp_path)) == "own 2"


@pytest.mark.parametrize("damage", [b"", b"isthmus cache 1\n{}\nnot code", b"\0" * 4000])
def test_the_stored_runtime_is_made_again_when_damaged(tmp_path, damage):
    settings = {"ISTHMUS_THREAD_POOL": "own", "ISTHMUS_CACHE_DIR": str(tmp_path)}
    _run(SCRIPT, **settings)
    (path,) = (tmp_path / "runtime").rglob("*.bin")
    good = path.read_bytes()
    path.write_bytes(damage)
    assert _run(SCRIPT, **settings) == "own 2"
    assert path.read_bytes() == good
