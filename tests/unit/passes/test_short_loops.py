"""Loops that run at most once are inlined."""

from __future__ import annotations

import numpy as np
import pytest
from run_kernels import Kernel
from tile_kernels import F32_POINTER, TileKernel

from isthmus.ir.types import I32
from isthmus.passes.short_loops import inline_short_loops


def loop_kernel(upper: int):
    k = TileKernel("short", x=F32_POINTER, out=F32_POINTER)
    x, out = k.args()
    index = k.arange(16)
    with k.loop(0, upper, 16, k.full((16,), 1.0), k.scalar(0, I32)) as loop:
        total, count = loop.carried
        k.leave(total + k.load(x + loop.index + index), count + 1)
    total, count = loop.results
    k.store(out + index + count, total)
    return k.finish()


@pytest.mark.parametrize(("upper", "loops"), [(0, 0), (1, 0), (16, 0), (17, 1), (32, 1)])
def test_only_loops_of_at_most_one_iteration_go(upper, loops):
    function = loop_kernel(upper)
    inline_short_loops(function)
    assert sum(op.name == "scf.for" for op in function.walk()) == loops
    trips = -(-upper // 16)
    data, result = np.arange(64, dtype=np.float32), np.zeros(32, np.float32)
    Kernel(function)(data, result)
    expected = 1 + data.reshape(-1, 16)[:trips].sum(0)
    np.testing.assert_array_equal(result[trips : trips + 16], expected)


def test_nested_loops_go_from_the_inside():
    k = TileKernel("nested", out=F32_POINTER)
    (out,) = k.args()
    with k.loop(0, 1, 1, k.full((8,), 1.0)) as outer:
        with k.loop(3, 4, 1, outer.carried[0]) as inner:
            k.leave(inner.carried[0] + 2.0)
        k.leave(inner.results[0] * 3.0)
    k.store(out + k.arange(8), outer.results[0])
    function = k.finish()
    inline_short_loops(function)
    assert all(op.name != "scf.for" for op in function.walk())
    result = np.zeros(8, np.float32)
    Kernel(function)(result)
    assert (result == 9).all()
