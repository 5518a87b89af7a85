"""The IR that kernels become: few operations, scalars kept scalar, facts about arguments."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.support.language_kernels import SIGNATURE, build_body, kernel_text, module_from

import isthmus.language as tl
from isthmus.core.target import TargetDescription
from isthmus.ir.core import Function
from isthmus.ir.printer import print_function
from isthmus.jit.decorator import jit
from isthmus.language.frontend import build
from isthmus.ops.attention import attention_kernel


def names(function: Function) -> list[str]:
    return [op.name.removeprefix("arith.") for op in function.walk() if op.name != "arith.constant"]


def test_offsets_are_one_splat_and_one_addition() -> None:
    function = build_body(
        """
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(p + offsets, tl.load(p + offsets, mask=offsets < n), mask=offsets < n)
        """,
        BLOCK=64,
    )
    assert names(function)[:5] == [
        "tile.program_id", "muli", "tile.arange", "tile.splat", "addi"
    ]  # fmt: skip


def test_scalars_move_the_pointer_before_blocks_do() -> None:
    function = build_body("tl.store(p + n * 16 + m + tl.arange(0, 16), 1.0)")
    assert names(function) == [
        "muli", "ptr.add", "ptr.add", "tile.arange", "tile.splat", "ptr.add", "tile.store",
        "func.return",
    ]  # fmt: skip


def test_compile_time_arithmetic_leaves_nothing() -> None:
    function = build_body(
        """
        HALF: tl.constexpr = BLOCK // 2
        a = 3
        b = a * 4 + 2
        tl.store(q + b, HALF - 1 + b)
        """,
        BLOCK=64,
    )
    assert names(function) == ["ptr.add", "tile.store", "func.return"]


def test_equal_constants_are_one_value_per_region() -> None:
    function = build_body("tl.store(q, n * 5)\ntl.store(q + n * 5, 5)")
    fives = [op for op in function.walk() if op.attrs.get("value") == 5]
    assert len(fives) == 1


def test_names_types_facts_and_places_are_kept() -> None:
    kernel = module_from(kernel_text("total = n + 1\ntl.store(p, total)", "p, n"))["k"]
    facts = {"p": {"divisibility": 16, "noalias": True}}
    function = build(kernel.source, {"p": "*i32", "n": "i32"}, attrs=facts, name="renamed")
    assert function.name == "renamed"
    assert function.arg_attrs == [{"divisibility": 16, "noalias": True}, {}]
    text = print_function(function)
    assert "%p: ptr<i32>" in text
    assert "%total" in text
    add = next(op for op in function.walk() if op.name == "arith.addi")
    assert add.location is not None
    assert (add.location.line, add.location.column, add.location.end_column) == (5, 13, 18)


def test_pointers_and_scalars_by_signature() -> None:
    function = build_body("pass")
    types = {value.hint: str(value.type) for value in function.args}
    assert types["b"] == "ptr<i8>"
    assert types["u"] == "ptr<i32>"
    assert types["m"] == "i64"
    assert len(types) == len(SIGNATURE)


def test_target_facts_are_compile_time_values() -> None:
    target = TargetDescription("test", vector_bits=512, fast_types=("f32", "f16"))
    body = """
        if tl.target.has_f16 and not tl.target.has_f64:
            tl.store(q, tl.target.vector_bits // 32)
        """
    function = build_body(body, options={"target": target})
    assert any(op.attrs.get("value") == 16 for op in function.walk())
    other = replace(target, fast_types=("f32", "f64"))
    assert "tile.store" not in names(build_body(body, options={"target": other}))


@jit
def unused_kernel(p):
    """A docstring is not a statement."""
    return


def test_an_empty_kernel() -> None:
    assert names(build(unused_kernel.source, {"p": "*f32"})) == ["func.return"]


def test_building_takes_milliseconds() -> None:
    """The attention kernel (70 lines with its helper) builds well inside 15 ms on a warm start."""
    source = attention_kernel.source
    signature = {
        parameter.name: "*f32" if parameter.name.endswith("_ptr") else "i32"
        for parameter in source.parameters
        if not parameter.is_constexpr
    }
    constants = {"SCALE": 0.125, "CAUSAL": True, "D": 64, "BLOCK_T": 64, "BLOCK_S": 64,
                 "ACC": tl.float32}  # fmt: skip
    times = []
    for _ in range(7):
        start = time.perf_counter()
        build(source, signature, constants)
        times.append(time.perf_counter() - start)
    if min(times) > 0.015:
        pytest.fail(f"building took {min(times) * 1e3:.1f} ms")
