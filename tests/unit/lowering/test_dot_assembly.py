"""The inner loop of products: fused multiply-adds on full registers, nothing spilled."""

from __future__ import annotations

import re

import pytest

from isthmus.core.target import TargetDescription
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function
from isthmus.ir.types import F32, F64, I8, I32, I64, PointerType, ScalarType
from isthmus.lowering.nest.dot import DotOperand, DotResult, dot_scratch_bytes, emit_dot
from isthmus.targets import target_named
from isthmus.targets.llvm.compile import assembly
from isthmus.targets.llvm.emit import emit_module


def inner_loop(target: TargetDescription, element: ScalarType, size: int) -> str:
    """Assembly of the loop with the most multiply-adds in a size**3 product."""
    fn = Function("product", [PointerType(I64), PointerType(I32), I64, I64, PointerType(I8)])
    b = Builder(fn)

    def pointer(position: int):
        address = b.emit("nest.load", b.emit("ptr.add", fn.args[0], b.i64(position)), type=I64)
        return b.emit("ptr.cast", address, type=PointerType(element))

    assert dot_scratch_bytes(target, size, size, size, element, element, element) > 0
    emit_dot(
        b,
        target,
        DotOperand(element, pointer(0), size, 1),
        DotOperand(element, pointer(1), size, 1),
        DotResult(element, pointer(2), size),
        size,
        size,
        size,
        accumulate=True,
        scratch=fn.args[4],
    )
    b.create("func.return")
    text = assembly(emit_module([fn], target), target)
    blocks = re.split(r"^(?:\.LBB\w+|# %bb\.\d+):.*$", text, flags=re.MULTILINE)
    # What follows the jump back belongs to the loop around it.
    return re.split(r"^\tj", max(blocks, key=_multiply_adds), flags=re.MULTILINE)[0]


def _multiply_adds(block: str) -> int:
    return block.count("vfmadd")


@pytest.mark.parametrize(("level", "register"), [("avx512", "zmm"), ("avx2", "ymm")])
@pytest.mark.parametrize("element", [F32, F64], ids=str)
def test_inner_loop_stays_in_registers(level, register, element):
    loop = inner_loop(target_named("x86_64", level=level), element, 128)
    lines = [line.strip() for line in loop.splitlines() if line.startswith("\t")]
    fused = [line for line in lines if line.startswith("vfmadd")]
    assert len(fused) >= 4 * 12
    assert all(register in line for line in fused)
    assert not [line for line in lines if "rsp" in line or "rbp" in line]
    # Nothing is stored or moved between registers.
    moves = [line for line in lines if line.startswith(("vmovups\t%", "vmovaps\t%", "vmovupd\t%"))]
    assert not moves


def test_without_fused_multiply_add_it_is_two_instructions():
    target = target_named("x86_64", level="sse42")
    fn_text = inner_loop(target, F32, 64)
    assert "vfmadd" not in fn_text
