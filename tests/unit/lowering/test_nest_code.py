"""What the machine code of simple kernels must not contain: spills, gathers, calls."""

from __future__ import annotations

import re

import pytest
from run_kernels import Kernel
from tile_kernels import F32_POINTER, TileKernel

from isthmus.ir.core import Function
from isthmus.ir.types import I32
from isthmus.targets import target_named
from isthmus.targets.llvm.compile import assembly


def softmax() -> Function:
    k = TileKernel("softmax", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index, row = k.arange(1024), k.program_id()
    value = k.load(x + row * n + index, index < n, float("-inf"))
    power = k.math("exp", value - k.reduce(value, 0, "maxnumf"))
    k.store(out + row * n + index, power / k.reduce(power), index < n)
    return k.finish()


def gelu() -> Function:
    k = TileKernel("gelu", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.program_id() * 1024 + k.arange(1024)
    value = k.load(x + index, index < n)
    k.store(out + index, value * 0.5 * (k.math("erf", value * 0.70710678) + 1.0), index < n)
    return k.finish()


def column_sums() -> Function:
    k = TileKernel("columns", x=F32_POINTER, out=F32_POINTER, m=I32, n=I32)
    x, out, m, n = k.args()
    row, column = k.grid(32, 128)
    value = k.load(x + (row * n + column), (row < m) & (column < n), 0.0)
    k.store(out + k.arange(128), k.reduce(value, 0), k.arange(128) < n)
    return k.finish()


@pytest.mark.parametrize(
    ("make", "level"),
    # 16 registers do not hold the constants of exp and erf: reloading them is no fault.
    [(softmax, "avx512"), (gelu, "avx512"), (column_sums, "avx512"), (column_sums, "avx2")],
)
def test_no_spills_gathers_or_calls(make, level):
    target = target_named("x86_64", level=level)
    kernel = Kernel.__new__(Kernel)  # code for a level that this machine may lack is not loaded
    text = kernel.compile(make(), target)
    code = assembly(text, target)
    register = "ymm" if level == "avx2" else "zmm"
    assert register in code
    assert re.findall(rf"{register}\d+, -?\d*\(%rsp\)|\(%rsp\), %{register}", code) == []
    assert "gather" not in code
    assert not re.search(r"\bcallq?\b", code)
