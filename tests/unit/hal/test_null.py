"""The null device: everything is recorded, nothing is computed."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.core.errors import DeviceError
from isthmus.core.target import TargetDescription
from isthmus.hal.device import BufferRef, EntryPoint
from isthmus.hal.registry import open_device

ENTRY = EntryPoint("scale", ("ptr", "f32"), 0)


@pytest.fixture
def device():
    return open_device("null", TargetDescription("null"))


def test_a_submission_is_recorded(device):
    buffer = device.allocate(64)
    executable = device.load([b"no code"], [ENTRY])
    commands = device.command_list()
    launch = commands.add_launch(executable, "scale", [BufferRef(buffer), 2.0], (4, 1, 1))
    commands.add_fill(BufferRef(buffer), 7, 64)
    commands.finish()
    queue = device.queue()
    queue.submit(commands).wait()
    commands.set_argument(launch, 1, 3.0)
    assert queue.submit(commands).done
    first, second = device.submitted
    assert [record.operation for record in first] == ["launch", "fill"]
    assert (first[0].arguments[1], second[0].arguments[1]) == (2.0, 3.0)
    assert first[0].grid == (4, 1, 1)
    assert not buffer.view(np.dtype(np.uint8), (64,)).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, e: c.add_launch(e, "scale", [1.0], (1, 1, 1)), "takes 2 arguments, got 1"),
        (lambda c, e: c.add_launch(e, "scale", [0, 1.0], (1, 1)), "a grid is three numbers"),
        (lambda c, e: (c.finish(), c.add_fill(0, 0, 0)), "is finished"),
    ],
)
def test_it_refuses_what_every_driver_refuses(device, call, message):
    with pytest.raises(DeviceError, match=message):
        call(device.command_list(), device.load([], [ENTRY]))


def test_an_unfinished_list_is_not_submitted(device):
    with pytest.raises(DeviceError, match="finish the command list"):
        device.queue().submit(device.command_list())
