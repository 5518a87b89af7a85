"""Products of blocks against float64 (integers exactly): types, layouts, extents, shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest

from isthmus.core.target import CacheDescription, TargetDescription
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Value
from isthmus.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    PointerType,
    ScalarType,
)
from isthmus.lowering.nest.dot import (
    DotOperand,
    DotResult,
    dot_cache_bytes,
    dot_scratch_bytes,
    emit_dot,
    emit_dot_cache_reset,
)
from isthmus.targets import host_target

NUMPY = {
    F16: np.dtype(np.float16),
    BF16: np.dtype(ml_dtypes.bfloat16),
    F32: np.dtype(np.float32),
    F64: np.dtype(np.float64),
    I8: np.dtype(np.int8),
    I32: np.dtype(np.int32),
}


@dataclass(frozen=True)
class Case:
    """One product in one program. Layouts: n row-major, t column-major, s strides at run time."""

    m: int
    n: int
    k: int
    lhs: ScalarType = F32
    rhs: ScalarType = F32
    result: ScalarType = F32
    layouts: str = "nn"
    limited: bool = False
    cacheable: bool = False
    accumulate: bool = True


def product_kernel(case: Case, target: TargetDescription) -> tuple[Function, int]:
    """A kernel of arguments a, b, c, rows of a, depth, columns of b, strides; c is the result."""
    fn = Function("product", [PointerType(I64), PointerType(I32), I64, I64, PointerType(I8)])
    b = Builder(fn)

    def argument(position: int) -> Value:
        return b.emit("nest.load", b.emit("ptr.add", fn.args[0], b.i64(position)), type=I64)

    def pointer(position: int, element: ScalarType) -> Value:
        return b.emit("ptr.cast", argument(position), type=PointerType(element))

    limits = [argument(3 + i) if case.limited else None for i in range(3)]
    strides = {
        "n": lambda width, _at: (width, 1),
        "t": lambda width, _at: (1, width),
        "s": lambda _width, at: (argument(at), argument(at + 1)),
    }
    a_strides = strides[case.layouts[0]](case.k if case.layouts[0] == "n" else case.m, 6)
    b_strides = strides[case.layouts[1]](case.n if case.layouts[1] == "n" else case.k, 8)
    scratch_bytes = dot_scratch_bytes(
        target, case.m, case.n, case.k, case.lhs, case.rhs, case.result
    )
    options = {"lhs_cacheable": case.cacheable, "rhs_cacheable": case.cacheable}
    shape = (case.m, case.n, case.k)
    cache_bytes = dot_cache_bytes(target, *shape, case.result, **options)
    cache = b.emit("ptr.add", fn.args[4], b.i64(scratch_bytes))
    if case.cacheable:
        emit_dot_cache_reset(b, cache, target, *shape, case.result, **options)
    _, body = b.for_loop(fn.args[2], fn.args[3], b.i64(1))
    with b.at(body):
        emit_dot(
            b,
            target,
            DotOperand(
                case.lhs, pointer(0, case.lhs), *a_strides, limits[0], limits[1], case.cacheable
            ),
            DotOperand(
                case.rhs, pointer(1, case.rhs), *b_strides, limits[1], limits[2], case.cacheable
            ),
            DotResult(case.result, pointer(2, case.result), case.n),
            *shape,
            accumulate=case.accumulate,
            scratch=fn.args[4],
            cache=cache if case.cacheable else None,
        )
        b.create("scf.yield")
    b.create("func.return")
    return fn, scratch_bytes + cache_bytes


def check(case: Case, target: TargetDescription, native: Callable, programs: int = 1) -> None:
    generator = np.random.default_rng(0)

    def matrix(rows: int, columns: int, element: ScalarType) -> np.ndarray:
        if element.kind == "int":
            return generator.integers(-100, 100, (rows, columns)).astype(NUMPY[element])
        return generator.standard_normal((rows, columns)).astype(NUMPY[element])

    a, b = matrix(case.m, case.k, case.lhs), matrix(case.k, case.n, case.rhs)
    c = matrix(case.m, case.n, case.result)
    limits = (case.m, case.k, case.n)
    if case.limited:
        limits = (case.m - case.m // 3, case.k - case.k // 4, case.n - case.n // 3)
    wide = np.int64 if case.result.kind == "int" else np.float64
    left, right = a.astype(wide), b.astype(wide)
    left[limits[0] :], left[:, limits[1] :] = 0, 0
    right[limits[1] :], right[:, limits[2] :] = 0, 0
    expected = left @ right * (programs if case.accumulate else 1)
    expected = expected + c.astype(wide) if case.accumulate else expected
    # Outside the extents memory is poisoned: reading it as a number shows.
    if case.limited and case.lhs.kind == "float":
        a[limits[0] :], a[:, limits[1] :] = np.nan, np.nan
        b[limits[1] :], b[:, limits[2] :] = np.nan, np.nan
    stored_a = np.ascontiguousarray(a.T if case.layouts[0] == "t" else a)
    stored_b = np.ascontiguousarray(b.T if case.layouts[1] == "t" else b)
    fn, scratch_bytes = product_kernel(case, target)
    native(fn, target)(
        "product",
        [stored_a, stored_b, c, *limits, case.k, 1, case.n, 1],
        scratch_bytes=scratch_bytes,
        span=(0, programs),
    )
    if case.result.kind == "int":
        np.testing.assert_array_equal(c, expected)
        return
    bound = {F16: 2**-9, BF16: 2**-6, F32: 1e-6, F64: 1e-14}[case.result]
    scale = np.abs(left) @ np.abs(right) * programs + 1.0
    error = np.abs(c.astype(np.float64) - expected) / scale
    assert error.max() <= bound * max(1.0, case.k / 64), (case, error.max())


SHAPES = [
    (64, 64, 64),
    (128, 256, 32),
    (16, 16, 16),
    (1, 64, 64),
    (64, 1, 8),
    (2, 8, 4),
    (32, 32, 512),
]


@pytest.mark.parametrize("layouts", ["nn", "nt", "tn", "tt", "ss"])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_f32_layouts_and_extents(shape, limited, layouts, native, target):
    check(Case(*shape, layouts=layouts, limited=limited), target, native)


@pytest.mark.parametrize("layouts", ["nn", "nt", "tn"])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize(
    ("element", "result"),
    [(BF16, F32), (F16, F32), (F64, F64), (I8, I32), (F16, F16), (BF16, BF16)],
    ids=lambda t: str(t),
)
def test_other_types(element, result, limited, layouts, native, target):
    case = Case(32, 64, 48, element, element, result, layouts, limited)
    check(case, target, native)


@pytest.mark.parametrize("shape", [(13, 40, 24), (50, 7, 3), (5, 100, 300), (33, 65, 17)], ids=str)
@pytest.mark.parametrize("layouts", ["nn", "nt", "tn", "tt"])
def test_sizes_that_are_no_powers_of_two(shape, layouts, native):
    for limited in (False, True):
        check(Case(*shape, layouts=layouts, limited=limited), host_target(), native)


@pytest.mark.parametrize("layouts", ["nn", "nt", "tn", "ss"])
@pytest.mark.parametrize("limited", [False, True])
def test_kept_panels(layouts, limited, native, target):
    check(Case(32, 64, 300, layouts=layouts, limited=limited, cacheable=True), target, native, 3)


@pytest.mark.parametrize("cache_bytes", [64, 300_000])
def test_kept_panels_are_replaced_in_turn(cache_bytes, native):
    """With room for one block or a few, each program finds or repacks what it needs."""
    target = replace(host_target(), caches=(CacheDescription(1, cache_bytes),))
    check(Case(32, 64, 1100, cacheable=True), target, native, 5)


def test_kept_panels_are_forgotten_between_calls(native):
    case = Case(32, 32, 32, cacheable=True)
    fn, scratch_bytes = product_kernel(case, host_target())
    code = native(fn, host_target())
    a, b, c = (np.ones((32, 32), np.float32) for _ in range(3))
    for factor in (1.0, 5.0):
        a[:], c[:] = factor, 0
        code("product", [a, b, c, 32, 32, 32, 32, 1, 32, 1], scratch_bytes=scratch_bytes)
        assert (c == 32 * factor).all()


def test_without_accumulation(native, target):
    for k in (16, 300):
        check(Case(24, 32, k, accumulate=False), target, native)


def test_rows_outside_stay_zero_next_to_infinity(native, target):
    case = Case(32, 32, 16, limited=True)
    a, b = np.ones((32, 16), np.float32), np.full((16, 32), np.inf, np.float32)
    c = np.zeros((32, 32), np.float32)
    fn, scratch_bytes = product_kernel(case, target)
    native(fn, target)("product", [a, b, c, 20, 16, 10, 16, 1, 32, 1], scratch_bytes=scratch_bytes)
    assert np.isinf(c[:20, :10]).all()
    panels = -(-20 // 14) * 14
    assert (c[panels:] == 0).all()
