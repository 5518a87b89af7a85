"""The CPU driver: memory, code, command lists, both thread pools."""

from __future__ import annotations

import gc
import os
import time

import numpy as np
import pytest

from isthmus.core.errors import ConfigError, DeviceError
from isthmus.hal.device import BufferRef, EntryPoint
from isthmus.hal.drivers.cpu.device import CpuDevice, CpuExecutable, pack_argument
from isthmus.hal.drivers.cpu.memory import HostBuffer
from isthmus.hal.drivers.cpu.threads import find_libgomp
from isthmus.hal.registry import driver_names, open_device
from isthmus.targets import host_target
from isthmus.targets.llvm.compile import compile_object

#: out[p] += value for every program p; counts in scratch how often each program ran.
KERNEL = """
define void @bump(ptr %args, ptr %grid, i64 %begin, i64 %end, ptr %scratch) {
  %out = load ptr, ptr %args
  %slot = getelementptr i64, ptr %args, i64 1
  %value = load float, ptr %slot
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %loop, label %out_block
loop:
  %p = phi i64 [ %begin, %0 ], [ %next, %loop ]
  %place = getelementptr float, ptr %out, i64 %p
  %old = load float, ptr %place
  %new = fadd float %old, %value
  store float %new, ptr %place
  %next = add i64 %p, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %out_block
out_block:
  ret void
}
"""
ENTRY = EntryPoint("bump", ("ptr", "f32"), 64)


@pytest.fixture(scope="module")
def code() -> bytes:
    target = host_target()
    return compile_object(f'target triple = "{target.triple}"\n{KERNEL}', target)


@pytest.fixture(params=["own", "libgomp", "one"])
def device(request, monkeypatch) -> CpuDevice:
    if request.param == "one":
        return CpuDevice(host_target(), threads=1)
    monkeypatch.setenv("ISTHMUS_THREAD_POOL", request.param)
    if request.param == "libgomp" and find_libgomp() is None:
        pytest.skip("needs libgomp (Debian: libgomp1)")
    made = CpuDevice(host_target(), threads=3)
    assert made.threads.pool_name == request.param
    return made


def test_every_program_runs_once(device, code):
    executable = device.load([code], [ENTRY])
    for total in (0, 1, 2, 3, 7, 1000, 100_003):
        buffer = device.allocate(4 * max(total, 1))
        commands = device.command_list()
        commands.add_launch(executable, "bump", [BufferRef(buffer), 2.5], (total, 1, 1))
        commands.finish()
        for _ in range(3):
            device.queue().submit(commands).wait()
        assert (buffer.view(np.dtype(np.float32), (total,)) == 7.5).all()


def test_grid_dimensions_multiply(device, code):
    buffer = device.allocate(4 * 60)
    commands = device.command_list()
    commands.add_launch(device.load([code], [ENTRY]), "bump", [BufferRef(buffer), 1.0], (3, 4, 5))
    commands.finish()
    device.queue().submit(commands)
    assert (buffer.view(np.dtype(np.float32), (60,)) == 1).all()


def test_commands_run_in_order_and_can_be_patched(device, code):
    executable = device.load([code], [ENTRY])
    first, second = device.allocate(400), device.allocate(400)
    commands = device.command_list()
    commands.add_fill(BufferRef(first), 0, 400)
    launch = commands.add_launch(executable, "bump", [BufferRef(first), 1.0], (100, 1, 1))
    commands.add_copy(BufferRef(second), BufferRef(first), 400)
    commands.add_launch(executable, "bump", [BufferRef(second), 10.0], (50, 1, 1))
    commands.finish()
    queue = device.queue()
    queue.submit(commands)
    view = second.view(np.dtype(np.float32), (100,))
    assert view.tolist() == [11.0] * 50 + [1.0] * 50
    commands.set_argument(launch, 1, 5.0)
    queue.submit(commands)
    assert view.tolist() == [15.0] * 50 + [5.0] * 50


def test_profile_has_a_time_for_each_command(device, code):
    buffer = device.allocate(4_000_000)
    commands = device.command_list()
    executable = device.load([code], [ENTRY])
    for total in (10, 1_000_000):
        commands.add_launch(executable, "bump", [BufferRef(buffer), 1.0], (total, 1, 1))
    commands.finish()
    times = np.zeros(2, np.int64)
    device.queue().submit(commands, profile=times)
    assert (times > 0).all()
    assert times[1] > times[0]


def test_works_in_a_forked_child(device, code):
    """FIELD_REPORTS B44: fork after the pool has started."""
    executable = device.load([code], [ENTRY])
    buffer = device.allocate(4000)
    commands = device.command_list()
    commands.add_launch(executable, "bump", [BufferRef(buffer), 1.0], (1000, 1, 1))
    commands.finish()
    device.queue().submit(commands)
    child = os.fork()
    if child == 0:
        device.queue().submit(commands)
        good = (buffer.view(np.dtype(np.float32), (1000,)) == 2).all()
        os._exit(0 if good else 1)
    deadline = time.monotonic() + 60
    status = (0, 0)
    while status[0] == 0 and time.monotonic() < deadline:
        status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    assert status == (child, 0)


def test_own_pool_sleeps_and_wakes(code, monkeypatch):
    monkeypatch.setenv("ISTHMUS_THREAD_POOL", "own")
    device = CpuDevice(host_target(), threads=2)
    buffer = device.allocate(4000)
    commands = device.command_list()
    commands.add_launch(
        device.load([code], [ENTRY]), "bump", [BufferRef(buffer), 1.0], (1000, 1, 1)
    )
    commands.finish()
    for _ in range(20):
        time.sleep(0.01)  # long enough for the worker to go to sleep
        device.queue().submit(commands)
    assert (buffer.view(np.dtype(np.float32), (1000,)) == 20).all()
    device.threads.close()
    device.queue().submit(commands)
    assert (buffer.view(np.dtype(np.float32), (1000,)) == 21).all()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4096, 20 << 20])
def test_buffers_are_aligned_and_zeroed(size):
    buffer = HostBuffer(size)
    assert buffer.address % 64 == 0
    assert not buffer.view(np.dtype(np.uint8), (size,)).any()
    if size >= 8:
        buffer.write(4, b"abcd")
        assert buffer.read(3, 6) == b"\0abcd\0"


def test_wrapped_arrays_share_memory():
    array = np.zeros(10, np.float32)
    buffer = HostBuffer.wrap(array)
    buffer.view(np.dtype(np.float32), (10,))[3] = 7
    assert array[3] == 7
    with pytest.raises(DeviceError, match="contiguous"):
        HostBuffer.wrap(np.zeros((4, 4))[:, 1])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("i1", 1, 1), ("i8", -1, 2**64 - 1), ("i32", 2**31, 2**64 - 2**31), ("i64", -5, 2**64 - 5),
        ("f32", 1.0, 0x3F800000), ("f64", 1.0, 0x3FF0000000000000), ("ptr", 4096, 4096),
    ],
)  # fmt: skip
def test_argument_slots(kind, value, expected):
    assert int.from_bytes(pack_argument(kind, value), "little") == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda d, e: d.command_list().add_launch(e, "bump", [1.0], (1, 1, 1)),
            "takes 2 arguments, got 1",
        ),
        (lambda d, e: d.command_list().add_launch(e, "bump", [0, 1.0], (-1, 1, 1)), "a grid is"),
        (lambda d, e: d.queue().submit(d.command_list()), "finish the command list"),
        (lambda d, e: pack_argument("i8", 300), "300 does not fit"),
        (lambda d, e: pack_argument("f32", BufferRef(d.allocate(4))), "a buffer was given"),
        (lambda d, e: HostBuffer(10).view(np.dtype(np.float32), (3,)), "reach past a buffer of 10"),
        (lambda d, e: HostBuffer(-1), "cannot allocate -1"),
        (lambda d, e: HostBuffer(2**60), "cannot allocate"),
        (lambda d, e: CpuDevice(host_target(), threads=0), "threads is 0"),
        (lambda d, e: open_device("tpu", host_target()), "there is no device 'tpu'; there are cpu"),
    ],
)  # fmt: skip
def test_errors(code, call, message):
    device = CpuDevice(host_target(), threads=1)
    with pytest.raises(DeviceError, match=message):
        call(device, device.load([code], [ENTRY]))


def test_unknown_pool_names_the_choices(monkeypatch):
    monkeypatch.setenv("ISTHMUS_THREAD_POOL", "tbb")
    with pytest.raises(ConfigError, match="auto, libgomp or own"):
        CpuDevice(host_target(), threads=2)


def test_code_is_freed(code):
    import weakref

    executable = CpuExecutable([code], [ENTRY])
    gone = weakref.ref(executable)
    del executable
    gc.collect()
    assert gone() is None


def test_cpu_is_a_driver():
    assert "cpu" in driver_names()
