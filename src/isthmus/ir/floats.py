"""Float conversions and sums rounded exactly once, on NumPy arrays."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from isthmus.ir.numpy_types import numpy_dtype
from isthmus.ir.types import F32, F64, ScalarType

__all__ = ["fused_multiply_add", "integer_to_float", "narrow", "narrow_toward_zero", "widen"]


def widen(values: np.ndarray) -> np.ndarray:
    """f16, bf16 and f8 as f32; f32 and f64 as they are. Always exact."""
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)


def narrow(values: np.ndarray, element: ScalarType) -> np.ndarray:
    """Floats as `element`, rounded once to nearest even."""
    dtype = numpy_dtype(element)
    if values.dtype == np.float64 and element not in (F32, F64):
        values = _odd_f32(values)
    return values.astype(dtype)


def narrow_toward_zero(values: np.ndarray, element: ScalarType) -> np.ndarray:
    """Floats as `element`, the excess cut off; finite values stay finite."""
    nearest = narrow(values, element)
    codes = nearest.view(f"i{nearest.dtype.itemsize}")
    wide = widen(nearest).astype(np.float64)
    values = values.astype(np.float64)
    is_too_far = (np.abs(wide) > np.abs(values)) | (np.isnan(wide) & np.isfinite(values))
    return (codes - is_too_far.astype(codes.dtype)).view(nearest.dtype)


def _odd_f32(values: np.ndarray) -> np.ndarray:
    """f64 to f32, inexact results made odd: a second rounding then gives the right answer."""
    nearest = values.astype(np.float32)
    back = nearest.astype(np.float64)
    is_even = (nearest.view(np.int32) & 1) == 0
    toward = np.where(values > back, np.float32(np.inf), np.float32(-np.inf))
    fix = is_even & (back != values) & ~np.isnan(values)
    return np.where(fix, np.nextafter(nearest, toward), nearest)


def integer_to_float(values: np.ndarray, element: ScalarType) -> np.ndarray:
    """Integers as `element`, rounded once to nearest even."""
    if element in (F32, F64) or values.dtype.itemsize < 8:
        exact = values if element in (F32, F64) else values.astype(np.float64)
        return (
            exact.astype(numpy_dtype(element)) if element in (F32, F64) else narrow(exact, element)
        )
    # 53 bits with all lower ones gathered in the last: exact in f64, and rounds as the whole.
    is_wide = (values >= 1 << 53) if values.dtype.kind == "u" else np.abs(values // 2) >= 1 << 52
    sticky = ((values >> 11) | ((values & 0x7FF) != 0)) << 11
    return narrow(np.where(is_wide, sticky, values).astype(np.float64), element)


def fused_multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c rounded once to the common dtype of the operands."""
    dtype = a.dtype
    if dtype == np.float64:
        return np.asarray(np.vectorize(_fma_f64, otypes=[np.float64])(a, b, c))
    a, b, c = (part.astype(np.float64) for part in (a, b, c))
    product = a * b  # exact: at most 48 bits
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    is_even = (total.view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    fix = is_even & (error != 0) & np.isfinite(total)
    odd = np.where(fix, np.nextafter(total, toward), total)
    return (odd if dtype == np.float32 else _odd_f32(odd)).astype(dtype)


def _fma_f64(a: float, b: float, c: float) -> float:
    a, b, c = float(a), float(b), float(c)
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        if math.isfinite(a) and math.isfinite(b):
            return c  # a * b may overflow, but only on the way
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
