"""Launching kernels from Python: arguments, grids, specialisation, errors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from isthmus.core.errors import DeviceError, KernelError
from isthmus.jit.decorator import cdiv, next_power_of_2
from isthmus.jit.statistics import statistics


def _kernels():
    path = Path(__file__).with_name("kernels.py")
    spec = importlib.util.spec_from_file_location("launch_kernels", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["launch_kernels"] = module
    spec.loader.exec_module(module)
    return module


kernels = _kernels()


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int64]
)
def test_add_for_sizes_and_dtypes(n, dtype):
    x, y = (np.arange(n) % 50).astype(dtype), (np.arange(n) % 7).astype(dtype)
    out = np.full(n + 3, 99).astype(dtype)
    kernels.add_kernel[(cdiv(n, 64),)](x, y, out, n, BLOCK=64)
    np.testing.assert_array_equal(out[:n].astype(np.float64), (x + y).astype(np.float64))
    assert (out[n:] == np.array(99).astype(dtype)).all()


def test_torch_tensors_are_used_in_place():
    x, y = torch.randn(500), torch.randn(500)
    out = torch.empty(500)
    kernels.add_kernel[lambda meta: (cdiv(500, meta["BLOCK"]),)](x, y, out, 500, BLOCK=128)
    torch.testing.assert_close(out, x + y, rtol=0, atol=0)
    half = torch.randn(64, dtype=torch.bfloat16)
    result = torch.empty_like(half)
    kernels.add_kernel[(1,)](half, half, result, 64, BLOCK=64)
    torch.testing.assert_close(result, half + half, rtol=0, atol=0)


def test_in_place_and_overlapping_arguments():
    x = np.arange(200, dtype=np.float32)
    kernels.add_kernel[(2,)](x, x, x, 200, BLOCK=128)
    np.testing.assert_array_equal(x, np.arange(200) * 2)
    # Programs that overlap partially: one block reads all it needs before it writes.
    base = np.arange(65, dtype=np.float32)
    kernels.add_kernel[(1,)](base[:-1], base[:-1], base[1:], 64, BLOCK=64)
    np.testing.assert_array_equal(base[1:], np.arange(64) * 2)


def test_defaults_keywords_and_vendor_options():
    x = np.ones(64, np.float32)
    kernels.scale_kernel[(1,)](x, factor=3.0, n=64, num_warps=8, waves_per_eu=2)
    assert (x == 3).all()


def test_a_grid_is_a_number_a_tuple_or_a_function():
    for grid in (2, (2,), (2, 1), (2, 1, 1), lambda meta: (2,), [np.int64(2)]):
        x = np.ones(128, np.float32)
        kernels.scale_kernel[grid](x, 2.0, 128)
        assert (x == 2).all()


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)])
def test_an_empty_grid_runs_nothing(shape):
    """FIELD_REPORTS B32."""
    x = np.ones(64, np.float32)
    kernels.scale_kernel[shape](x, 2.0, 64)
    assert (x == 1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, x: k[(1,)](x, 2.0), "needs argument 'n'"),
        (lambda k, x: k[(1,)](x, 2.0, 64, 64, 5), "takes 4 arguments, got 5"),
        (lambda k, x: k[(1,)](x, 2.0, 64, wrong=1), "has no argument 'wrong'"),
        (lambda k, x: k[(1,)](x, 2.0, 64, factor=1.0), "got 'factor' twice"),
        (lambda k, x: k[(1, 1, 1, 1)](x, 2.0, 64), "one to three numbers"),
        (lambda k, x: k[(-1,)](x, 2.0, 64), "whole numbers from 0 to"),
        (lambda k, x: k[(1.5,)](x, 2.0, 64), "whole numbers from 0 to"),
        (lambda k, x: k[(1,)](object(), 2.0, 64), "cannot take object"),
        (
            lambda k, x: k[(1,)](x.astype(np.complex64), 2.0, 64),
            "cannot take an array of complex64",
        ),
    ],
)
def test_launch_errors(call, message):
    with pytest.raises(DeviceError, match=message):
        call(kernels.scale_kernel, np.ones(64, np.float32))


def test_read_only_arrays_are_read_and_never_written():
    source, target = np.ones(64, np.float32), np.zeros(64, np.float32)
    source.flags.writeable = False
    for _ in range(2):
        kernels.add_kernel[(1,)](source, source, target, 64, BLOCK=64)
        with pytest.raises(DeviceError, match="writes to 'out_ptr', which is a read-only array"):
            kernels.add_kernel[(1,)](target, target, source, 64, BLOCK=64)
        with pytest.raises(DeviceError, match="writes to 'x_ptr'"):
            kernels.scale_kernel[(1,)](source, 2.0, 64)
    assert (source == 1).all()
    assert (target == 2).all()


def test_calling_a_kernel_says_how_to_launch_it():
    with pytest.raises(KernelError, match=r"scale_kernel\[grid\]"):
        kernels.scale_kernel(1, 2, 3)


def test_recompiles_are_few_and_counted():
    """FIELD_REPORTS B46: sizes 32, 32, 17, 1, 16, 32 give at most three classes."""
    x = np.ones(64, np.float32)
    before = statistics.compiles + statistics.disk_hits
    memory = len(kernels.scale_kernel._loaded)
    for n in (32, 32, 17, 1, 16, 32, 48, 33):
        x[:] = 1
        kernels.scale_kernel[(1,)](x, 2.0, n)
        assert (x[:n] == 2).all()
        assert (x[n:] == 1).all()
    assert len(kernels.scale_kernel._loaded) - memory <= 3
    assert statistics.compiles + statistics.disk_hits - before <= 3


def test_large_integers_are_64_bits_wide():
    x = np.zeros(64, np.int64)
    kernels.add_kernel[(1,)](x, x, x, 2**40, BLOCK=64)


@pytest.mark.parametrize(("n", "power"), [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128)])
def test_next_power_of_2(n, power):
    assert next_power_of_2(n) == power


def test_sum_in_two_threads_and_after_fork():
    """FIELD_REPORTS B44."""
    import os
    import threading

    x = np.arange(9999 + 1, dtype=np.int64)
    wrong: list[int] = []

    def work() -> None:
        for _ in range(100):
            partial = np.zeros(10, np.int64)
            kernels.sum_kernel[(10,)](x, partial, x.size, BLOCK=1024)
            if partial.sum() != 49995000:
                wrong.append(int(partial.sum()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    child = os.fork()
    if child == 0:
        partial = np.zeros(10, np.int64)
        kernels.sum_kernel[(10,)](x, partial, x.size, BLOCK=1024)
        os._exit(0 if partial.sum() == 49995000 else 1)
    assert os.waitpid(child, 0)[1] == 0
