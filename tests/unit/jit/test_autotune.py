"""Configurations chosen by measuring, constants chosen by rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import isthmus
import isthmus.language as tl
from isthmus.core.errors import DeviceError, KernelError
from isthmus.jit.decorator import cdiv
from isthmus.jit.written import written_arguments

BLOCKS = [isthmus.Config({"BLOCK": block}, num_warps=4) for block in (16, 32, 64, 128)]


def _increment(**settings):
    @isthmus.autotune(BLOCKS, key=["n"], **settings)
    @isthmus.jit
    def increment(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        step = tl.load(y_ptr + offsets, mask=mask)
        tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + step, mask=mask)

    return increment


def _grid(meta):
    return (cdiv(meta["n"], meta["BLOCK"]),)


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_a_kernel_in_place_changes_data_once(make):
    """FIELD_REPORTS B39: x += 1 with four configurations."""
    increment = _increment()
    x, ones = make(100), make(100) + 1
    increment[_grid](x, ones, 100)
    assert (x == 1).all()
    assert (ones == 1).all()
    assert len(increment.timings) == 4
    assert all(0 < seconds < 10 for seconds in increment.timings.values())
    increment[_grid](x, ones, 100)
    assert (x == 2).all()


def test_a_tensor_that_needs_gradients_is_put_back():
    x = torch.zeros(100, requires_grad=True)
    _increment()[_grid](x, torch.ones(100), 100)
    assert (x == 1).all()


def test_each_value_of_the_key_is_tuned_once():
    increment = _increment()
    x, ones = np.zeros(100), np.ones(100)
    for n in (100, 50, 100, 50):
        increment[_grid](x, ones, n)
    assert len(increment.cache) == 2
    increment[_grid](x.astype(np.float32), ones.astype(np.float32), 50)
    assert len(increment.cache) == 3


def test_hooks_and_zeroed_arrays():
    seen = []
    increment = _increment(
        reset_to_zero=["x_ptr"], pre_hook=lambda named: seen.append(float(named["x_ptr"].max()))
    )
    x = np.full(100, 5.0)
    increment[_grid](x, np.ones(100), 100)
    assert (x == 6).all()
    assert seen
    assert set(seen) == {0.0}


def test_pruning():
    increment = _increment(
        prune_configs_by={
            "early_config_prune": lambda configs, named: configs[1:],
            "perf_model": lambda **named: -named["BLOCK"],
            "top_k": 2,
        }
    )
    increment[_grid](np.zeros(100), np.ones(100), 100)
    assert sorted(c.kwargs["BLOCK"] for c in increment.timings) == [64, 128]


def test_configurations_that_do_not_compile_are_passed_over():
    @isthmus.autotune([isthmus.Config({"BLOCK": 24}), isthmus.Config({"BLOCK": 32})], key=[])
    @isthmus.jit
    def fill(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

    x = np.zeros(32)
    fill[(1,)](x)
    assert fill.best_config.kwargs == {"BLOCK": 32}
    assert (x == 1).all()

    @isthmus.autotune([isthmus.Config({"BLOCK": 24}), isthmus.Config({"BLOCK": 25})], key=[])
    @isthmus.jit
    def never(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

    with pytest.raises(KernelError, match="power of"):
        never[(1,)](x)


def test_mistakes():
    with pytest.raises(KernelError, match="autotune names m, but increment has no such"):
        isthmus.autotune(BLOCKS, key=["m"])(_increment().fn)
    with pytest.raises(KernelError, match="is not a kernel"):
        isthmus.autotune(BLOCKS, key=[])(print)
    with pytest.raises(DeviceError, match="got BLOCK, which autotune sets"):
        _increment()[(1,)](np.zeros(4), np.zeros(4), 4, BLOCK=16)


def test_heuristics_below_autotune():
    @isthmus.autotune(BLOCKS, key=["n"])
    @isthmus.heuristics({"EVEN": lambda named: named["n"] % named["BLOCK"] == 0})
    @isthmus.jit
    def double(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) * 2)
        else:
            mask = offsets < n
            tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)

    for n in (128, 100):
        x = np.ones(140)
        double[_grid](x, n)
        assert (x[:n] == 2).all()
        assert (x[n:] == 1).all()


@isthmus.jit
def _many_writes(a_ptr, b_ptr, c_ptr, d_ptr, n):
    if n > 3:  # noqa: SIM108
        p = a_ptr
    else:
        p = b_ptr
    for i in range(n):
        tl.store(p, tl.load(d_ptr + i))
        p += 1
    tl.atomic_add(c_ptr, 1.0)


def test_written_arguments_follow_branches_and_loops():
    signature = {**dict.fromkeys(("a_ptr", "b_ptr", "c_ptr", "d_ptr"), "*f32"), "n": "i32"}
    function = _many_writes.compile(signature).stages().tile
    assert written_arguments(function) == {0, 1, 2}
