"""The MLIR export is read by xDSL and keeps every operation."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from tile_kernels import F32_POINTER, I32_POINTER, TileKernel
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from isthmus.ir.core import Function
from isthmus.ir.mlir import export
from isthmus.ir.types import BF16, F8E4M3, I1, I32, PointerType
from isthmus.lowering.nest import lower
from isthmus.targets import host_target


def loop_kernel() -> Function:
    k = TileKernel("loop", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(16)
    with k.loop(0, n, 1, k.full((16,), 1e-20)) as loop:
        k.leave(loop.carried[0] + k.load(x + index + loop.index, index < n, math.inf))
    k.store(out + index, k.reduce(loop.results[0]))
    k.function.arg_attrs[0] = {"divisibility": 16, "noalias": True}
    return k.finish()


def branch_kernel() -> Function:
    k = TileKernel("branch", x=I32_POINTER, half=PointerType(BF16), tiny=PointerType(F8E4M3))
    x, half, tiny = k.args()
    block = k.load(tiny.broadcast_to((4, 4)) + k.row_major(4, 4)).trans()
    k.store(half.broadcast_to((4, 4)) + k.row_major(4, 4), block.to(BF16))
    value = k.load(x)
    op = k.builder.if_else((value > 0).value, [I32])
    for region, number in zip(op.regions, (value, k.scalar(-7, I32)), strict=True):
        with k.inside(region):
            k.leave(number)
    k.builder.create("tile.assert", k.scalar(1, I1).value, message='a "quote" \\ \n é')
    k.builder.create("tile.store", x.value, op.result)
    return k.finish()


def nest_function() -> Function:
    return lower(loop_kernel(), host_target()).function


@pytest.mark.parametrize("kernel", [loop_kernel, branch_kernel, nest_function])
def test_xdsl_reads_the_export(kernel):
    function = kernel()
    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    module = Parser(context, export(function)).parse_module()
    module.verify()
    found = Counter(
        op.op_name.data if op.name == "builtin.unregistered" else op.name for op in module.walk()
    )
    expected = Counter(
        op.name if op.name == "func.return" else f"isthmus.{op.name}" for op in function.walk()
    )
    assert found == expected + Counter(["builtin.module", "func.func"])
