"""Branches, loops, returns, helpers: what runs, and what the types of carried values are."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.language_kernels import build_body, run_body

from isthmus.ir.core import Function


def ops_of(function: Function, name: str) -> list[object]:
    return [op for op in function.walk() if op.name == name]


def run_integers(body: str, size: int, helpers: str = "", **constants: object) -> list[int]:
    out = np.full(size, -99, np.int32)
    run_body(body, out, helpers=helpers, **constants)
    return out.tolist()


def test_run_time_if_merges_names() -> None:
    assert run_integers(
        """
        n = tl.program_id(0) + 3
        if n > 2:
            a = n * 2
            b = 1
        else:
            a = n
            b = 2
        if n > 100:
            a = 7
        tl.store(x0 + 0, a)
        tl.store(x0 + 1, b)
        """,
        2,
    ) == [6, 1]


def test_elif_chain() -> None:
    out = np.zeros(4, np.int32)
    run_body(
        """
        pid = tl.program_id(0)
        if pid == 0:
            r = 10
        elif pid == 1:
            r = 11
        elif pid == 2:
            r = 12
        else:
            r = 13
        tl.store(x0 + pid, r)
        """,
        out,
        grid=(4,),
    )
    np.testing.assert_array_equal(out, [10, 11, 12, 13])


def test_dead_branch_is_not_looked_at() -> None:
    body = """
        if MODE == 1:
            tl.store(x0, 1)
        else:
            tl.store(x0, nonsense.more(nonsense))
        if BIAS is not None:
            tl.store(x0, tl.load(BIAS))
        """
    assert run_integers(body, 1, MODE=1, BIAS=None) == [1]


def test_early_return_under_run_time_if() -> None:
    out = np.zeros(8, np.int32)
    run_body(
        """
        pid = tl.program_id(0)
        if pid >= 5:
            return
        if pid == 2:
            tl.store(x0 + pid, 100)
            return
        else:
            tl.store(x0 + pid, 1)
        tl.store(x0 + pid, pid + 10)
        """,
        out,
        grid=(8,),
    )
    np.testing.assert_array_equal(out, [10, 11, 100, 13, 14, 0, 0, 0])


def test_helper_returns_from_nested_branches() -> None:
    helpers = """
        @jit
        def pick(x, LIMIT: tl.constexpr):
            if x < LIMIT:
                if x == 0:
                    return -1, x
                return 1, x * 10
            if LIMIT == 3:
                return 2, x
            return 3, x
        """
    body = """
        for i in range(5):
            a, b = pick(i, 3)
            tl.store(x0 + 2 * i, a)
            tl.store(x0 + 2 * i + 1, b)
        """
    wanted = [-1, 0, 1, 10, 1, 20, 2, 3, 2, 4]
    assert run_integers(body, 10, helpers) == wanted


def test_for_carries_scalars_tuples_and_pointers() -> None:
    assert run_integers(
        """
        a, b = 0, 1
        pair = (5, 6)
        place = x0
        for i in range(2, 8, 2):
            a, b = b, a + b
            pair = (pair[1], pair[0] + i)
            tl.store(place, i)
            place += 1
        tl.store(place, a)
        tl.store(place + 1, b)
        tl.store(place + 2, pair[0])
        tl.store(place + 3, pair[1])
        """,
        7,
    ) == [2, 4, 6, 2, 3, 10, 13]


@pytest.mark.parametrize(
    "bounds", ["5", "2, 5", "1, 9, 3", "9, 0, -2", "3, 3", "5, 2", "0, 5, -1", "-3, 4, 2"]
)
def test_range_is_that_of_python(bounds: str) -> None:
    wanted = list(eval(f"range({bounds})"))
    assert run_integers(
        f"""
        count = 0
        for i in range({bounds}):
            tl.store(x0 + 1 + count, i)
            count += 1
        tl.store(x0, count)
        """,
        10,
    )[: len(wanted) + 1] == [len(wanted), *wanted]


def test_loop_variable_has_the_wider_type() -> None:
    build_body(
        """
        for i in range(n, m):
            tl.static_assert(i.dtype == tl.int64)
        for i in tl.range(n, 10, num_stages=3, loop_unroll_factor=2):
            tl.static_assert(i.dtype == tl.int32)
        """
    )


def test_static_range_is_unrolled() -> None:
    body = """
        total = 0
        for i in tl.static_range(1, 4):
            SIZE: tl.constexpr = 2**i
            total += tl.sum(tl.arange(0, SIZE), 0)
        for size in (4, 8):
            total += tl.sum(tl.arange(0, size), 0)
        tl.store(x0, total)
        """
    assert run_integers(body, 1) == [1 + 6 + 28 + 6 + 28]
    assert not ops_of(build_body(body.replace("x0", "q")), "scf.for")


def test_while() -> None:
    assert run_integers(
        """
        n = tl.program_id(0) + 27
        steps = 0
        same = 3
        while n != 1 and steps < 1000:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        tl.store(x0, steps)
        tl.store(x0 + 1, n + same)
        """,
        2,
    ) == [111, 4]


def test_what_a_loop_leaves_alone_is_not_carried() -> None:
    function = build_body(
        """
        kept = n + 1
        total = 0
        if N == 1:
            kept = n
        for i in range(n):
            if N == 2:
                kept = kept + 1
            kept = kept
            total += kept
        tl.store(q, total)
        """,
        N=3,
    )
    (loop,) = ops_of(function, "scf.for")
    assert len(loop.results) == 1  # type: ignore[attr-defined]


def test_specialised_scalars_can_change_in_loops() -> None:
    """An argument that was 1 is a number at first, and a run-time value once a loop changes it."""
    helpers = """
        @jit
        def count(n, out):
            steps = 0
            while n < 100:
                n = n * 3
                steps += 1
            tl.store(out, steps)
        """
    assert run_integers("count(1, x0)", 1, helpers) == [5]


def test_conditional_expressions() -> None:
    function = build_body("tl.store(q, n * 2 if n > 3 else 7)")
    assert not ops_of(function, "scf.if")
    assert len(ops_of(function, "arith.select")) == 1
    guarded = build_body("tl.store(q, tl.load(q + n) if n > 3 else 7)")
    assert len(ops_of(guarded, "scf.if")) == 1
    assert run_integers(
        """
        n = tl.program_id(0)
        tl.store(x0, 5 if n > 3 else (6 if n == 0 else 7))
        tl.store(x0 + 1, 1.5 if K else 2)
        """,
        2,
        K=0,
    ) == [6, 2]


def test_logic_of_run_time_values_computes_both_sides() -> None:
    assert run_integers(
        """
        n = tl.program_id(0)
        tl.store(x0, ((n == 0) and (n < 5)) + 10)
        tl.store(x0 + 1, (n > 3 or n == 0) + 10)
        tl.store(x0 + 2, (True and n == 0) + 10)
        tl.store(x0 + 3, 1 if (False and nonsense) else 2)
        tl.store(x0 + 4, (not n == 0) + 10)
        """,
        5,
    ) == [11, 11, 11, 2, 10]


def test_helpers_take_keywords_defaults_functions_and_blocks() -> None:
    helpers = """
        @jit
        def scale(x, factor=2, *, shift=1):
            return x * factor + shift

        @jit
        def apply(F: tl.constexpr, *values):
            total = 0
            for value in values:
                total += F(value)
            return total

        @jit
        def store(out, x):
            tl.store(out, x)
        """
    body = """
        store(x0, scale(3))
        store(x0 + 1, scale(factor=5, x=3))
        store(x0 + 2, scale(3, 4, shift=0))
        store(x0 + 3, apply(scale, 1, 2, 3))
        store(x0 + 4, tl.sum(scale(tl.arange(0, 4)), 0))
        F: tl.constexpr = scale
        store(x0 + 5, F(1))
        """
    assert run_integers(body, 6, helpers) == [7, 16, 12, 15, 16, 3]


def test_compile_time_recursion_ends() -> None:
    helpers = """
        @jit
        def power(x, N: tl.constexpr):
            if N == 0:
                return 1
            else:
                return x * power(x, N - 1)
        """
    assert run_integers("tl.store(x0, power(3, 4))", 1, helpers) == [81]


def test_globals_tuples_strings_and_comprehensions() -> None:
    helpers = """
        from collections import namedtuple
        import math

        Shape = namedtuple("Shape", "rows columns")
        SIZES = tl.constexpr((4, 8))
        SCALE = tl.constexpr(3)

        @tl.constexpr_function
        def double(x):
            return 2 * x

        @jit
        def area(shape):
            return shape.rows * shape.columns
        """
    body = """
        SIZE: tl.constexpr = SIZES[1] + len(SIZES)
        tl.store(x0, SIZE * SCALE)
        tl.store(x0 + 1, area(Shape(3, tl.program_id(0) + 5)))
        DOUBLED: tl.constexpr = [double(i) for i in SIZES if i > 4]
        tl.store(x0 + 2, DOUBLED[0])
        tl.store(x0 + 3, int(math.log2(SIZES[1])))
        tl.static_assert(f"{SIZE}/{SCALE:>3}" == "10/  3", f"SIZE is {SIZE}")
        tl.store(x0 + 4, 1 if MODE == "fast" else 0)
        tl.store(x0 + 5, isinstance(tl.program_id(0), tl.tensor) + 2)
        assert SIZE == 10
        """
    assert run_integers(body, 6, helpers, MODE="fast") == [30, 15, 16, 3, 1, 3]


def test_any_and_or_accumulated_from_truth_values() -> None:
    """Loads of truth values are truth values, so that `acc | load` keeps its type in a loop."""
    data = np.zeros(37, np.bool_)
    for hit in (None, 0, 36):
        if hit is not None:
            data[:] = False
            data[hit] = True
        out = np.zeros(1, np.bool_)
        run_body(
            """
            acc = tl.zeros((16,), tl.int1)
            for start in range(0, 37, 16):
                lanes = start + tl.arange(0, 16)
                acc = acc | tl.load(x0 + lanes, mask=lanes < 37, other=False)
            tl.store(x1, tl.max(acc.to(tl.int32), 0) > 0)
            """,
            data,
            out,
        )
        assert out[0] == data.any()


def test_unrolled_loop_inside_a_loop_may_reuse_a_name() -> None:
    body = """
        total = 0
        for i in range(3):
            total += i
            for j in tl.static_range(2):
                total += j
        i = 5
        for k in range(2):
            for i in tl.static_range(4):
                total += i
        tl.store(x0, total + i)
        """
    assert run_integers(body, 1) == [3 + 3 + 12 + 3]
