"""Control flow, memory, vectors and atomics in machine code; what the text must not contain."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from isthmus.core.errors import ConfigError, InternalError
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Region, Value
from isthmus.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    PointerType,
    ScalarType,
    VectorType,
)  # fmt: skip
from isthmus.targets import host_target, target_named
from isthmus.targets.llvm.compile import assembly, compile_object, optimised, undefined_symbols
from isthmus.targets.llvm.emit import emit_module

NUMPY = {
    I8: np.int8, I32: np.int32, I64: np.int64, F16: np.float16, BF16: ml_dtypes.bfloat16,
    F32: np.float32, F64: np.float64, I1: np.uint8,
}  # fmt: skip


def kernel(types: list[ScalarType], body: Callable[[Builder, list[Value]], None]) -> Function:
    """One program with a pointer argument per entry of `types`."""
    fn = Function("structure", [PointerType(I64), PointerType(I32), I64, I64, PointerType(I8)])
    b = Builder(fn)
    pointers = []
    for position, element in enumerate(types):
        slot = b.emit("ptr.add", fn.args[0], b.i64(position))
        address = b.emit("nest.load", slot, type=I64)
        pointers.append(b.emit("ptr.cast", address, type=PointerType(element)))
    body(b, pointers)
    b.create("func.return")
    return fn


def at(b: Builder, pointer: Value, index: int | Value) -> Value:
    return b.emit("ptr.add", pointer, b.i64(index) if isinstance(index, int) else index)


@pytest.mark.parametrize(
    ("lower", "upper", "step"),
    [(0, 10, 1), (0, 10, 3), (5, 5, 1), (7, 3, 1), (-4, 4, 2), (2**31 - 10, 2**31 - 1, 6)],
)
@pytest.mark.parametrize("known", [True, False])
def test_for_counts_as_range(lower, upper, step, known, native, target):
    def body(b: Builder, p: list[Value]) -> None:
        bounds = [
            b.i32(value) if known else b.emit("nest.load", at(b, p[0], i), type=I32)
            for i, value in enumerate((lower, upper, step))
        ]
        loop, region = b.for_loop(*bounds, [b.i32(0), b.i32(0)])
        with b.at(region):
            i, count, last = region.args
            del last
            b.create("scf.yield", b.emit("arith.addi", count, b.i32(1)), i)
        b.create("nest.store", loop.results[0], at(b, p[1], 0))
        b.create("nest.store", loop.results[1], at(b, p[1], 1))

    out = np.zeros(2, np.int32)
    arguments = np.array([lower, upper, step], np.int32)
    native(kernel([I32, I32], body), target)("structure", [arguments, out])
    expected = list(range(lower, upper, step))
    assert out.tolist() == [len(expected), expected[-1] if expected else 0]


def test_nested_loops_and_branches_carry_values(native, target):
    def body(b: Builder, p: list[Value]) -> None:
        n = b.emit("nest.load", p[0], type=I64)
        outer, outer_region = b.for_loop(b.i64(0), n, b.i64(1), [b.i64(0)])
        with b.at(outer_region):
            i, total = outer_region.args
            inner, inner_region = b.for_loop(b.i64(0), i, b.i64(1), [total])
            with b.at(inner_region):
                j, sum_ = inner_region.args
                odd = b.emit(
                    "arith.cmpi", b.emit("arith.andi", j, b.i64(1)), b.i64(1), predicate="eq"
                )
                branch = b.if_else(odd, [I64])
                with b.at(branch.regions[0]):
                    b.create("scf.yield", b.emit("arith.addi", sum_, j))
                with b.at(branch.regions[1]):
                    b.create("scf.yield", b.emit("arith.subi", sum_, b.i64(1)))
                b.create("scf.yield", branch.result)
            b.create("scf.yield", inner.result)
        b.create("nest.store", outer.result, p[1])

    out = np.zeros(1, np.int64)
    native(kernel([I64, I64], body), target)("structure", [np.array([9]), out])
    assert out[0] == sum(j if j & 1 else -1 for i in range(9) for j in range(i))


def test_while(native, target):
    def body(b: Builder, p: list[Value]) -> None:
        start = b.emit("nest.load", p[0], type=I64)
        test, inner = Region([I64, I64]), Region([I64, I64])
        with b.at(test):
            n, steps = test.args
            going = b.emit("arith.cmpi", n, b.i64(1), predicate="ne")
            b.create("scf.condition", going, n, steps)
        with b.at(inner):
            n, steps = inner.args
            odd = b.emit("arith.cmpi", b.emit("arith.andi", n, b.i64(1)), b.i64(1), predicate="eq")
            triple = b.emit("arith.addi", b.emit("arith.muli", n, b.i64(3)), b.i64(1))
            following = b.emit("arith.select", odd, triple, b.emit("arith.divsi", n, b.i64(2)))
            b.create("scf.yield", following, b.emit("arith.addi", steps, b.i64(1)))
        loop = b.create("scf.while", start, b.i64(0), type=[I64, I64], regions=[test, inner])
        b.create("nest.store", loop.results[1], p[1])

    out = np.zeros(1, np.int64)
    native(kernel([I64, I64], body), target)("structure", [np.array([27]), out])
    assert out[0] == 111


@pytest.mark.parametrize("element", [I8, F16, BF16, F32, F64, I64], ids=str)
def test_masked_lanes_touch_nothing(element, native, target):
    """Loads give `other`, stores leave memory: also at the end of an array (report B03)."""
    lanes = 16

    def body(b: Builder, p: list[Value]) -> None:
        type_, numbers = VectorType((lanes,), element), VectorType((lanes,), I32)
        mask = b.emit(
            "arith.cmpi",
            b.emit("vector.iota", type=numbers),
            b.constant(5, numbers),
            predicate="slt",
        )
        value = b.emit("nest.masked_load", p[0], mask, b.constant(7, type_), type=type_)
        b.create("nest.store", value, p[1])
        b.create("nest.masked_store", value, p[2], mask)

    source = np.arange(1, 6).astype(NUMPY[element])
    loaded, stored = np.zeros(lanes, NUMPY[element]), np.full(lanes, 9).astype(NUMPY[element])
    native(kernel([element] * 3, body), target)("structure", [source, loaded, stored])
    assert loaded.astype(int).tolist() == [1, 2, 3, 4, 5] + [7] * 11
    assert stored.astype(int).tolist() == [1, 2, 3, 4, 5] + [9] * 11


def test_gather_and_scatter(native, target):
    """Masked-off addresses may be wild; of equal addresses the last lane wins."""

    def body(b: Builder, p: list[Value]) -> None:
        numbers = VectorType((8,), I64)
        indices = b.emit("nest.load", p[0], type=numbers)
        mask = b.emit("arith.cmpi", indices, b.constant(0, numbers), predicate="sge")
        far = b.emit("arith.select", mask, indices, b.constant(1 << 60, numbers))

        def pointers(base: Value) -> Value:
            return b.emit("ptr.add", b.splat(base, numbers), far)

        value = b.emit("nest.gather", pointers(p[1]), mask, b.constant(-1.0, VectorType((8,), F32)))
        b.create("nest.store", value, p[2])
        b.create("nest.scatter", b.emit("vector.iota", type=numbers), pointers(p[3]), mask)

    indices = np.array([3, -1, 0, 3, 7, -1, 1, 7])
    table, got, scattered = (
        np.arange(8, dtype=np.float32) * 10,
        np.zeros(8, np.float32),
        np.full(8, -5),
    )
    native(kernel([I64, F32, F32, I64], body), target)(
        "structure", [indices, table, got, scattered]
    )
    assert got.tolist() == [30, -1, 0, 30, 70, -1, 10, 70]
    assert scattered.tolist() == [2, 6, -5, 3, -5, -5, -5, 7]


def test_truth_values_lie_in_bytes(native, target):
    def body(b: Builder, p: list[Value]) -> None:
        bits = VectorType((8,), I1)
        mask = b.emit("nest.load", p[0], type=bits)
        b.create("nest.store", b.emit("arith.xori", mask, b.constant(1, bits)), p[1])
        b.create("nest.store", b.emit("vector.any", mask), at(b, p[1], 8))
        b.create("nest.store", b.emit("vector.all", mask), at(b, p[1], 9))

    source, out = np.array([0, 1, 2, 0, 255, 0, 0, 1], np.uint8), np.zeros(10, np.uint8)
    native(kernel([I1, I1], body), target)("structure", [source, out])
    assert out.tolist() == [1, 0, 0, 1, 0, 1, 1, 0, 1, 0]


def test_vector_moves(native, target):
    def body(b: Builder, p: list[Value]) -> None:
        type_ = VectorType((4,), F32)
        a = b.emit("nest.load", p[0], type=type_)
        c = b.emit("nest.load", at(b, p[0], 4), type=type_)
        shuffled = b.emit("vector.shuffle", a, c, lanes=(7, 0, 5, 2))
        inserted = b.emit("vector.insert", shuffled, b.emit("vector.extract", a, lane=3), lane=1)
        b.create("nest.store", inserted, p[1])
        lane = b.emit("arith.trunci", b.emit("nest.load", p[2], type=I64), type=I32)
        b.create("nest.store", b.emit("vector.extract_at", c, lane), at(b, p[1], 4))
        b.create("nest.store", b.splat(b.emit("vector.extract", a, lane=1), type_), at(b, p[1], 5))

    source, out = np.arange(8, dtype=np.float32), np.zeros(9, np.float32)
    native(kernel([F32, F32, I64], body), target)("structure", [source, out, np.array([2])])
    assert out.tolist() == [7, 3, 5, 2, 6, 1, 1, 1, 1]


@pytest.mark.parametrize("kind", ["addf", "maxnumf", "minimumf", "maximumf", "mulf"])
def test_reductions_halve(kind, native, target):
    def body(b: Builder, p: list[Value]) -> None:
        value = b.emit("nest.load", p[0], type=VectorType((16,), F32))
        b.create("nest.store", b.emit("vector.reduce", value, kind=kind), p[1])

    combine = {"addf": np.add, "mulf": np.multiply, "maxnumf": np.fmax,
               "minimumf": np.minimum, "maximumf": np.maximum}[kind]  # fmt: skip
    generator = np.random.default_rng(3)
    for trial in range(20):
        source = (generator.standard_normal(16) * 10.0 ** generator.integers(-3, 3, 16)).astype(
            np.float32
        )
        if trial > 10:
            source[trial % 16] = np.nan
        expected = source
        while expected.size > 1:
            half = expected.size // 2
            expected = combine(expected[:half], expected[half:])
        out = np.zeros(1, np.float32)
        native(kernel([F32, F32], body), target)("structure", [source, out])
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("kind", "element", "before", "operand", "after"),
    [
        ("add", I32, 5, 7, 12), ("add", I64, -1, 1, 0), ("fadd", F32, 1.5, 2.0, 3.5),
        ("fadd", F64, 1.5, 2.0, 3.5), ("fadd", F16, 1.5, 2.0, 3.5), ("fadd", BF16, 1.5, 2.0, 3.5),
        ("maxs", I32, -3, 2, 2), ("maxu", I32, -3, 2, -3), ("mins", I32, -3, 2, -3),
        ("minu", I32, -3, 2, 2), ("and", I32, 12, 10, 8), ("or", I32, 12, 10, 14),
        ("xor", I32, 12, 10, 6), ("xchg", I32, 1, 2, 2), ("xchg", F32, 1.0, 2.0, 2.0),
    ],
    ids=str,
)  # fmt: skip
def test_atomics(kind, element, before, operand, after, native, target):
    def body(b: Builder, p: list[Value]) -> None:
        old = b.emit("nest.atomic_rmw", p[0], b.constant(operand, element), kind=kind)
        b.create("nest.store", old, p[1])

    cell, old = np.array([before]).astype(NUMPY[element]), np.zeros(1, NUMPY[element])
    native(kernel([element, element], body), target)("structure", [cell, old])
    assert (old[0], cell[0]) == (before, after)


def test_compare_and_swap(native, target):
    def body(b: Builder, p: list[Value]) -> None:
        for index, expected in enumerate((1.0, 5.0)):
            old = b.emit(
                "nest.atomic_cas",
                at(b, p[0], index),
                b.constant(expected, F32),
                b.constant(9.0, F32),
            )
            b.create("nest.store", old, at(b, p[1], index))

    cells, old = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    native(kernel([F32, F32], body), target)("structure", [cells, old])
    assert (cells.tolist(), old.tolist()) == ([9, 2], [1, 2])


def test_stack_memory_is_entered_once(native, target):
    def body(b: Builder, p: list[Value]) -> None:
        _, region = b.for_loop(b.i64(0), b.i64(1000), b.i64(1))
        with b.at(region):
            place = b.emit("nest.alloca", type=PointerType(F32), count=4096)
            b.create("nest.store", b.constant(2.0, F32), at(b, place, region.args[0]))
            value = b.emit("nest.load", at(b, place, region.args[0]), type=F32)
            b.create("nest.store", value, at(b, p[0], region.args[0]))
            b.create("scf.yield")

    out = np.zeros(1000, np.float32)
    native(kernel([F32], body), target)("structure", [out])
    assert (out == 2).all()


def _multiply_add(b: Builder, p: list[Value]) -> None:
    type_ = VectorType((16,), F32)
    a, c = (b.emit("nest.load", pointer, type=type_) for pointer in p[:2])
    b.create("nest.store", b.emit("arith.fma", a, c, b.emit("arith.mulf", a, c)), p[2])


def test_no_fast_math_and_no_library(target):
    text = emit_module([kernel([F32] * 3, _multiply_add)], target)
    for flag in (" fast ", " reassoc ", " contract ", " nnan ", " afn "):
        assert flag not in text
    assert undefined_symbols(compile_object(text, target)) == []


def test_library_calls_are_refused():
    def body(b: Builder, p: list[Value]) -> None:
        b.create("nest.store", b.emit("nest.load", p[0], type=F32), p[0])

    text = emit_module([kernel([F32], body)], host_target())
    call = """  %x = load volatile float, ptr %a4
  %y = call float @llvm.sin.f32(float %x)
  store float %y, ptr %a4
  ret void"""
    text = text.replace("  ret void", call)
    with pytest.raises(InternalError, match="sinf"):
        compile_object(text, host_target())


def test_refused_text_names_the_stage():
    with pytest.raises(InternalError, match="refuses"):
        compile_object("define void @f() { ret i32 0 }", host_target())


def test_unknown_operations_are_internal_errors():
    def body(b: Builder, p: list[Value]) -> None:
        b.emit("math.exp", b.emit("nest.load", p[0], type=F32))

    with pytest.raises(InternalError, match=r"math\.exp has no LLVM form"):
        emit_module([kernel([F32], body)], host_target())


def test_registers_follow_the_description():
    wide = target_named("x86_64", level="avx512")
    narrow = target_named("x86_64", level="avx2")
    oldest = target_named("x86_64", level="sse42")
    for target, register in ((wide, "zmm"), (narrow, "ymm"), (oldest, "xmm")):
        text = assembly(emit_module([kernel([F32] * 3, _multiply_add)], target), target)
        assert register in text
        assert ("vfmadd" in text) == target.fma
    assert "zmm" not in assembly(emit_module([kernel([F32] * 3, _multiply_add)], narrow), narrow)


def test_optimised_text_is_llvm_ir():
    text = optimised(emit_module([kernel([F32] * 3, _multiply_add)], host_target()), host_target())
    assert "@llvm.fma.v16f32" in text


def test_host_description():
    target = host_target()
    assert target.cores >= 1
    assert target.cache_bytes(1, 0) >= 8 << 10
    assert target.vector_bits in (128, 256, 512)
    assert target_named("host") is target


def test_unknown_names_are_config_errors():
    with pytest.raises(ConfigError, match="known targets"):
        target_named("vax")
    with pytest.raises(ConfigError, match="avx2"):
        target_named("x86_64", level="avx3")
