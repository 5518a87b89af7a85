"""Which code serves which arguments: facts, constants, changed globals, bounded recompiles."""

from __future__ import annotations

import numpy as np
import pytest

import isthmus
import isthmus.language as tl
from isthmus.core.errors import DeviceError, KernelError
from isthmus.jit.decorator import default_device
from isthmus.jit.launch import bind
from isthmus.jit.specialise import CONSTANT, FIXED, SPECIALISED, specialise
from isthmus.jit.statistics import statistics


def _specialised(*values, modes=None, generic=False):
    names = [f"p{number}" for number in range(len(values))]
    modes = modes or [SPECIALISED] * len(values)
    layout = bind(values, modes)[2]
    return specialise(names, modes, values, layout, generic=generic)


def _aligned(size, offset=0, dtype=np.float32):
    """An array that starts `offset` bytes behind a multiple of 64."""
    raw = np.zeros(size * np.dtype(dtype).itemsize + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size * np.dtype(dtype).itemsize].view(dtype)


def test_facts_of_numbers():
    arguments = _specialised(1, 32, 17, 2**40, 2**63, True, 2.5, None, np.int32(48), np.float64(1))
    assert arguments.constexprs == {"p0": 1, "p7": None}
    assert list(arguments.signature.values()) == [
        "i32", "i32", "i64", "u64", "i1", "f32", "i32", "f64",
    ]  # fmt: skip
    assert arguments.attrs == {n: {"divisibility": 16} for n in ("p1", "p3", "p4", "p8")}
    assert arguments.positions == (1, 2, 3, 4, 5, 6, 7, 8)


def test_facts_that_are_not_wanted():
    modes = [FIXED, FIXED, CONSTANT]
    arguments = _specialised(1, 32, 5, modes=modes)
    assert arguments.signature == {"p0": "i32", "p1": "i32"}
    assert arguments.attrs == {}
    generic = _specialised(1, 32, _aligned(4), generic=True)
    assert generic.signature == {"p0": "i32", "p1": "i32", "p2": "*f32"}
    assert generic.attrs == {}


def test_facts_of_arrays():
    a, b = _aligned(64), _aligned(64, offset=4)
    assert _specialised(a, b).attrs == {
        "p0": {"divisibility": 16, "noalias": True}, "p1": {"noalias": True},
    }  # fmt: skip
    same = _specialised(3, a, a[:10]).attrs
    assert same["p1"] == {"divisibility": 16, "noalias": True}
    assert same["p2"] == {"divisibility": 16, "noalias": True, "same_as": 1}
    assert _specialised(a[:40], a[32:]).attrs == {
        "p0": {"divisibility": 16}, "p1": {"divisibility": 16},
    }  # fmt: skip
    assert _specialised(a[:32], a[32:]).attrs["p0"]["noalias"]


def test_strided_and_reversed_arrays_reach_as_far_as_their_elements():
    a = _aligned(64)
    assert "noalias" not in _specialised(a[::2], a[1::2]).attrs.get("p0", {})
    assert "noalias" not in _specialised(a[40::-1], a[20:24]).attrs.get("p0", {})
    assert _specialised(a[:32:2], a[32:]).attrs["p0"]["noalias"]


def test_keys_tell_apart_what_code_tells_apart():
    def key(*values, mode=CONSTANT):
        return tuple(bind(values, [mode] * len(values))[0])

    assert key(1) != key(True) != key(1.0) != key("1")
    assert key(0.0) != key(-0.0)
    assert key(float("nan")) == key(float("nan"))
    assert key((1, 2)) == key([1, 2]) != key((1, 2.0))
    assert key(tl.float32) != key(tl.float16)
    assert key(tl.constexpr(3)) != key(tl.constexpr(4))
    run = SPECIALISED
    assert key(1, mode=run) != key(2, mode=run) == key(3, mode=run) != key(16, mode=run)
    assert key(2**40, mode=run) != key(2**63, mode=run)
    assert key(_aligned(4), mode=run) != key(_aligned(4, 4), mode=run)
    assert key(_aligned(4), mode=run) != key(_aligned(4, dtype=np.int32), mode=run)


def test_values_that_cannot_be_arguments():
    with pytest.raises(DeviceError, match="does not fit 64 bits"):
        bind([2**64], [SPECIALISED])
    with pytest.raises(DeviceError, match="cannot be a compile-time value: dict can change"):
        bind([{}], [CONSTANT])


@isthmus.jit
def _count_down(x_ptr, n, step, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    while n > 0:
        total += n
        n = n - step
    tl.store(x_ptr + offsets, total)


def test_versions_are_bounded_and_explained():
    """FIELD_REPORTS B46: sizes that come and go, one of them re-assigned in a loop."""
    x = _aligned(16, dtype=np.int32)
    kernel = isthmus.jit(_count_down.fn)
    statistics.reasons.clear()
    compiled = set()
    for size in (32, 32, 17, 1, 16, 32, 64, 5, 7, 128):
        for step in (1, 3, 16):
            compiled.add(kernel[(1,)](x, size, step, BLOCK=16).key)
            assert (x == sum(range(size, 0, -step))).all()
    assert len(compiled) <= 5
    before = len(kernel._loaded)
    kernel[(1,)](x, 32, 3, BLOCK=16)
    assert len(kernel._loaded) == before


def test_reasons_name_the_argument():
    @isthmus.jit
    def fill(x_ptr, n, V: tl.constexpr):
        tl.store(x_ptr, n * V)

    statistics.reasons.clear()
    x = _aligned(4)
    for array, n, constant in ((x, 5, 2), (x, 16, 2), (x, 1, 2), (x, 5, 3), (x[1:], 5, 3)):
        fill.warmup(array, n, V=constant)
    reasons = set(statistics.reasons)
    if statistics.compiles:  # kernels that are on disk need no reason
        assert reasons <= {
            "fill: first use", "fill: n is divisible by 16", "fill: n is 1",
            "fill: n is a run-time value, V is 3, was 2", "fill: x_ptr overlaps no other array",
        }  # fmt: skip


def _closure_kernel(shift):
    @isthmus.jit
    def kernel(x_ptr):
        tl.store(x_ptr, shift + 1.0)

    def change(value):
        nonlocal shift
        shift = value

    return kernel, change


def test_closure_variables_are_watched():
    """FIELD_REPORTS B42, with a variable of an enclosing function."""
    kernel, change = _closure_kernel(tl.constexpr(1))
    x = np.zeros(1, np.float32)
    kernel[(1,)](x)
    assert x[0] == 2
    change(tl.constexpr(5))
    kernel[(1,)](x)
    assert x[0] == 6


FACTOR = tl.constexpr(2)


@isthmus.jit
def _scaled(value):
    return value * FACTOR


@isthmus.jit
def _apply(x_ptr, FUNCTION: tl.constexpr):
    tl.store(x_ptr, FUNCTION(tl.load(x_ptr)))


def test_kernels_as_constants_are_told_apart_by_their_globals():
    global FACTOR
    x = np.ones(1, np.float32)
    _apply[(1,)](x, FUNCTION=_scaled)
    assert x[0] == 2
    FACTOR = tl.constexpr(10)
    _apply[(1,)](x, FUNCTION=_scaled)
    assert x[0] == 20


@isthmus.jit
def _negate_zero(x_ptr, V: tl.constexpr):
    tl.store(x_ptr, V)


def test_negative_zero_is_a_constant_of_its_own():
    x = np.ones(1, np.float32)
    for value in (0.0, -0.0, 0.0):
        _negate_zero[(1,)](x, V=value)
        assert np.signbit(x[0]) == np.signbit(value)


@isthmus.jit
def _fill_scalar(x_ptr, value):
    tl.store(x_ptr, value)


@pytest.mark.parametrize("value", [1e300, -1e300, float("inf"), float("nan"), 1e-50, 3.4028235e38])
def test_floats_are_rounded_to_f32(value):
    x = np.zeros(1, np.float32)
    _fill_scalar[(1,)](x, value)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(x[0], np.float32(value))


def test_the_handle_shows_all_forms():
    compiled = _fill_scalar.warmup(np.zeros(1, np.float32), 2.0)
    forms = compiled.asm
    assert list(forms) == ["tile", "nest", "llvm", "assembly", "object"]
    assert "tile.store" in forms["tile"] or "func" in forms["tile"]
    assert "define" in forms["llvm"]
    assert "ret" in forms["assembly"]
    assert forms["object"] == compiled.code


@isthmus.jit
def _vector_bits(x_ptr):
    tl.store(x_ptr, tl.target.vector_bits)


def test_kernels_can_ask_for_their_target():
    x = np.zeros(1, np.int32)
    _vector_bits[(1,)](x)
    assert x[0] == default_device().target.vector_bits


def test_settings_of_the_decorator_are_checked():
    isthmus.jit(_fill_scalar.fn, noinline=True, debug=False)
    with pytest.raises(KernelError, match="jit has no setting do_not_specialise"):
        isthmus.jit(_fill_scalar.fn, do_not_specialise=["value"])


def test_many_arguments():
    """More arguments than the launch frame starts with."""
    names = [f"a{number}" for number in range(40)]
    assert len(bind(list(range(2, 42)), [SPECIALISED] * len(names))[1]) == 40
    x = np.zeros(1, np.int32)
    _sum_of_many[(1,)](x, *range(2, 42))
    assert x[0] == sum(range(2, 42))


@isthmus.jit
def _sum_of_many(
    x_ptr, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9,
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9,
):  # fmt: skip
    a = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9
    b = b0 + b1 + b2 + b3 + b4 + b5 + b6 + b7 + b8 + b9
    c = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9
    d = d0 + d1 + d2 + d3 + d4 + d5 + d6 + d7 + d8 + d9
    tl.store(x_ptr, a + b + c + d)
