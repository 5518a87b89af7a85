"""Errors of the vector math in units of the last place, against float64 (mpmath for f64)."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import mpmath
import numpy as np
import pytest
import torch

from isthmus.core.target import TargetDescription
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function
from isthmus.ir.types import BF16, F16, F32, F64, I8, I32, I64, PointerType, ScalarType, VectorType
from isthmus.lowering.nest import math as vector_math
from isthmus.targets import host_target

BLOCK = 16


def unary_kernel(
    name: str, target: TargetDescription, element: ScalarType = F32, inputs: int = 1
) -> Function:
    """out[i] = name(in[i], ..) for whole vectors."""
    fn = Function(
        f"{name}_{element}",
        [PointerType(I64), PointerType(I32), I64, I64, PointerType(I8)],
    )
    b = Builder(fn)
    pointers = []
    for position in range(inputs + 1):
        slot = b.emit("ptr.add", fn.args[0], b.i64(position))
        address = b.emit("nest.load", slot, type=I64)
        pointers.append(b.emit("ptr.cast", address, type=PointerType(element)))
    _, body = b.for_loop(fn.args[2], fn.args[3], b.i64(1))
    with b.at(body):
        offset = b.emit("arith.muli", body.args[0], b.i64(BLOCK))
        vector = VectorType((BLOCK,), element)
        values = [
            b.emit("nest.load", b.emit("ptr.add", pointer, offset), type=vector)
            for pointer in pointers[:-1]
        ]
        result = vector_math.expand(b, name, values, target)
        b.create("nest.store", result, b.emit("ptr.add", pointers[-1], offset))
        b.create("scf.yield")
    b.create("func.return")
    return fn


def run(native: Callable, name: str, target: TargetDescription, *inputs: np.ndarray) -> np.ndarray:
    element = {"float32": F32, "float64": F64, "float16": F16, "bfloat16": BF16}[
        inputs[0].dtype.name
    ]
    fn = unary_kernel(name, target, element, len(inputs))
    size = inputs[0].size
    padded = -(-size // BLOCK) * BLOCK
    arrays = [np.resize(array, padded) for array in inputs]
    out = np.zeros(padded, inputs[0].dtype)
    native(fn, target)(fn.name, [*arrays, out], span=(0, padded // BLOCK))
    return out[:size]


def ulp_error(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """|got - expected| in units of the last place of `expected` rounded to f32."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(np.float32)
        spacing = np.abs(np.spacing(np.abs(rounded))).astype(np.float64)
        spacing = np.where(np.isinf(rounded), 2.0**104, spacing)
        error = np.abs(got.astype(np.float64) - expected) / spacing
    same = (got == rounded) | (np.isnan(got) & np.isnan(expected))
    return np.where(
        same, np.minimum(np.nan_to_num(error), 0.5), np.where(np.isnan(error), np.inf, error)
    )


REFERENCES = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log2": torch.log2, "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos,
    "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "erf": torch.erf,
    "sigmoid": torch.sigmoid, "rsqrt": torch.rsqrt,
}  # fmt: skip

EDGES = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.1754944e-38, -1e-40, 1.0, -1.0,
    0.99999994, -0.99999994, 88.72283, 88.72284, -87.33655, -103.97208, -103.97209, 128.0,
    -149.0, -150.0, 5000 / 50, 10.5, 13.0, 15.5, -13.0, -20.0, 3.4028235e38, -3.4028235e38,
    3.1415927, 1.5707964, 1e22, 2.0**120, 1048576.0, 1048575.9,
]  # fmt: skip


def sweep(step: int) -> np.ndarray:
    """f32 values of all exponents and signs: every `step`-th bit pattern, and the edges."""
    bits = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([bits.view(np.float32), np.array(EDGES, np.float32)])


def reference(name: str, *inputs: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return REFERENCES[name](*(torch.from_numpy(x.astype(np.float64)) for x in inputs)).numpy()


@pytest.mark.parametrize("name", list(REFERENCES))
def test_f32_stays_within_its_bound(name, native, target):
    x = sweep(40_009)
    expected = reference(name, x)
    got = run(native, name, target, x)
    error = ulp_error(got, expected)
    worst = int(np.argmax(error))
    bound = vector_math.BOUNDS_ULP[name][0]
    assert error[worst] <= bound, (x[worst], got[worst], expected[worst], error[worst])
    zero = (got == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(expected)[zero])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(REFERENCES))
def test_f32_dense_sweep(name, native):
    x = sweep(499)
    error = ulp_error(run(native, name, host_target(), x), reference(name, x))
    assert error.max() <= vector_math.BOUNDS_ULP[name][0]


def power_pairs() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1.5, -1.5, 1e30, -1e30, 1e-30, 7.0,
         math.inf, -math.inf, math.nan, 16777216.0, 16777215.0, -8388607.0, 1e-45, 0.99999994]
    )  # fmt: skip
    a, b = np.meshgrid(special, special)
    bases = np.exp(generator.uniform(-80, 80, 20_000))
    exponents = generator.uniform(-90, 90, 20_000) / np.abs(np.log(bases))
    close = 1 + generator.uniform(-1e-3, 1e-3, 5_000)
    return (
        np.concatenate([a.ravel(), bases, close]),
        np.concatenate([b.ravel(), exponents, generator.uniform(-8e4, 8e4, 5_000)]),
    )


def test_pow_f32(native, target):
    x, y = (values.astype(np.float32) for values in power_pairs())
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64))
    error = ulp_error(run(native, "pow", target, x, y), expected)
    worst = int(np.argmax(error))
    assert error[worst] <= vector_math.BOUNDS_ULP["pow"][0], (x[worst], y[worst])


def test_pow_f64(native, target):
    x, y = power_pairs()
    got = run(native, "pow", target, x, y)
    with mpmath.workdps(40), np.errstate(all="ignore"):
        expected = np.power(x, y)
        special = ~(np.isfinite(x) & np.isfinite(y) & (x > 0) & np.isfinite(expected))
        np.testing.assert_allclose(got[special], expected[special], rtol=1e-14)
        chosen = np.flatnonzero(~special & (np.abs(expected) > 1e-300))[:2000]
        errors = [
            float(abs(mpmath.mpf(got[i]) - mpmath.power(mpmath.mpf(x[i]), mpmath.mpf(y[i]))))
            / float(np.spacing(expected[i]))
            for i in chosen
        ]
    assert max(errors) <= vector_math.BOUNDS_ULP["pow"][1]


def test_atan2(native, target):
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan, 1e-40, -1e38])
    a, b = np.meshgrid(special, special)
    generator = np.random.default_rng(1)
    y = np.concatenate([a.ravel(), generator.standard_normal(5000)])
    x = np.concatenate([b.ravel(), generator.standard_normal(5000)])
    y32, x32 = y.astype(np.float32), x.astype(np.float32)
    expected = np.arctan2(y32.astype(np.float64), x32.astype(np.float64))
    got = run(native, "atan2", target, y32, x32)
    error = ulp_error(got, expected)
    assert error.max() <= vector_math.BOUNDS_ULP["atan2"][0]
    real = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(expected[real]))
    wide = run(native, "atan2", target, y, x)
    np.testing.assert_allclose(wide, np.arctan2(y, x), rtol=1e-15, atol=0)


MP = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.power(2, x), "expm1": mpmath.expm1,
    "log": mpmath.log, "log2": lambda x: mpmath.log(x) / mpmath.log(2), "log1p": mpmath.log1p,
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "asin": mpmath.asin,
    "acos": mpmath.acos, "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh,
    "tanh": mpmath.tanh, "erf": mpmath.erf, "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}  # fmt: skip


def f64_values(name: str) -> np.ndarray:
    generator = np.random.default_rng(2)
    spread = generator.standard_normal(600) * 10.0 ** generator.integers(-12, 3, 600)
    values = np.concatenate([spread, generator.uniform(-8, 8, 600)])
    if name in ("exp", "exp2", "expm1", "sinh", "cosh", "sigmoid"):
        return np.clip(values, -700, 700)
    if name in ("asin", "acos"):
        return np.clip(values, -1, 1)
    if name in ("log", "log2", "rsqrt"):
        return np.concatenate([np.abs(values), [1e300, 1e-300, 5e-324]])
    return np.maximum(values, -0.999) if name == "log1p" else values


@pytest.mark.parametrize("name", list(REFERENCES))
def test_f64_stays_within_its_bound(name, native, target):
    x = f64_values(name)
    got = run(native, name, target, x)
    with mpmath.workdps(50):
        exact = [MP[name](mpmath.mpf(float(value))) for value in x]
        spacing = [float(np.spacing(np.abs(float(value)))) or 5e-324 for value in exact]
        errors = [
            float(abs(mpmath.mpf(float(g)) - e) / s)
            for g, e, s in zip(got, exact, spacing, strict=True)
        ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= vector_math.BOUNDS_ULP[name][1], (x[worst], got[worst], errors[worst])


@pytest.mark.parametrize("name", list(REFERENCES))
def test_f64_special_values(name, native, target):
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, -2.0, 1e308, -1e308])
    if name in ("sin", "cos", "tan"):
        x = x[:6]
    with np.errstate(all="ignore"):
        expected = REFERENCES[name](torch.from_numpy(x)).numpy()
    got = run(native, name, target, x)
    np.testing.assert_allclose(got, expected, rtol=1e-14)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(expected)[zero])


@pytest.mark.parametrize("element", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "rsqrt", "sin"])
def test_narrow_floats_round_once_more(name, element, native, target):
    """All values of the type; at most one step beside the nearest."""
    dtype = {F16: np.dtype(np.float16), BF16: np.dtype(ml_dtypes.bfloat16)}[element]
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    got = run(native, name, target, x)
    with np.errstate(all="ignore"):
        expected = reference(name, x).astype(np.float32).astype(dtype)
        a, b = got.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    real = np.isfinite(b)
    steps = np.abs(got.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
    assert steps[real].max() <= 1
    assert (steps[real] != 0).mean() < 1e-3


def test_tanh_of_large_values(native, target):
    """Report B22: no NaN from overflow on the way."""
    x = np.array([100.0, 1e30, 3.4e38, -100.0, 9.2, -44.5], np.float32)
    np.testing.assert_array_equal(
        run(native, "tanh", target, x), np.tanh(x.astype(np.float64)).astype(np.float32)
    )
