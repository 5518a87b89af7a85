"""The NumPy meaning of every element-wise operation: what interpreter, folding and tests go by.

Integers are arrays of signed dtypes, `i1` of bool; unsigned operations look at the same bits.
Floats narrower than f32 are worked on in f32 and rounded once; transcendental functions are
worked on in f64, so that the result is the correctly rounded one but for rare near-ties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from isthmus.core.errors import InternalError
from isthmus.ir.floats import (
    fused_multiply_add,
    integer_to_float,
    narrow,
    narrow_toward_zero,
    widen,
)
from isthmus.ir.numpy_types import numpy_dtype
from isthmus.ir.types import ScalarType

__all__ = ["REFERENCE", "constant", "evaluate"]

Array = np.ndarray
Rule = Callable[[ScalarType, Mapping[str, Any], Sequence[Array]], Array]
#: Operation name -> (result element, attributes, operands) -> result.
REFERENCE: dict[str, Rule] = {}


def evaluate(
    name: str, operands: Sequence[Array], element: ScalarType, attrs: Mapping[str, Any] = {}
) -> Array:
    """What element-wise operation `name` gives: an array of `element`.

    Raises: InternalError for an operation that has no reference.
    """
    rule = REFERENCE.get(name)
    if rule is None:
        raise InternalError(f"operation {name} has no reference")
    with np.errstate(all="ignore"):
        return np.asarray(rule(element, attrs, operands)).astype(numpy_dtype(element), copy=False)


def constant(value: float, element: ScalarType) -> Array:
    """A 0-d array of a constant; integers keep their low bits."""
    if element.kind == "float":
        return narrow(np.asarray(value, np.float64), element)
    bits = int(value) & ((1 << element.bits) - 1)
    return _as_element(np.asarray(bits, np.uint64), element)


# Integers ----------------------------------------------------------------------------------------


def _signed(values: Array) -> Array:
    return -values.astype(np.int8) if values.dtype == np.bool_ else values


def _unsigned(values: Array) -> Array:
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    return values.view(f"u{values.dtype.itemsize}")


def _as_element(values: Array, element: ScalarType) -> Array:
    """Keep the low bits."""
    values = np.asarray(values)
    return (values & 1) != 0 if element.bits == 1 else values.astype(numpy_dtype(element))


def _divide_signed(a: Array, b: Array) -> Array:
    safe = np.where((b == 0) | (b == -1), np.ones_like(b), b)
    floor = a // safe
    quotient = floor + ((floor * safe != a) & ((a < 0) != (b < 0)))
    return np.where(b == 0, np.zeros_like(a), np.where(b == -1, -a, quotient))


def _remainder_signed(a: Array, b: Array) -> Array:
    safe = np.where((b == 0) | (b == -1), np.ones_like(b), b)
    return np.where(b == 0, a, np.where(b == -1, np.zeros_like(a), np.fmod(a, safe)))


def _divide_unsigned(a: Array, b: Array) -> Array:
    return np.where(b == 0, np.zeros_like(a), a // np.maximum(b, 1))


def _remainder_unsigned(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a % np.maximum(b, 1))


def _high_product(a: Array, b: Array, bits: int) -> Array:
    a, b = a.astype(np.uint64), b.astype(np.uint64)
    if bits <= 32:
        return (a * b) >> np.uint64(bits)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    carry = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (carry >> half)


def _shift(values: Array, amounts: Array, bits: int, kind: str) -> Array:
    """`values` is unsigned, for "shrsi" signed; amounts are unsigned, 0-d or of its shape."""
    is_past = amounts >= bits
    inside = np.minimum(amounts, bits - 1).astype(values.dtype)
    if kind == "shrsi":
        return values >> inside  # by bits - 1 at most: from there on it is the sign
    moved = values << inside if kind == "shli" else values >> inside
    return np.where(is_past, np.zeros_like(values), moved)


_SIGNED: dict[str, Callable[[Array, Array], Array]] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply,
    "divsi": _divide_signed, "remsi": _remainder_signed,
    "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor,
    "minsi": np.minimum, "maxsi": np.maximum,
}  # fmt: skip
_UNSIGNED: dict[str, Callable[[Array, Array], Array]] = {
    "divui": _divide_unsigned, "remui": _remainder_unsigned,
    "minui": np.minimum, "maxui": np.maximum,
}  # fmt: skip
_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
            "gt": np.greater, "ge": np.greater_equal}  # fmt: skip


def _register_integers() -> None:
    def signed(rule: Callable[[Array, Array], Array]) -> Rule:
        return lambda e, _a, x: _as_element(rule(_signed(x[0]), _signed(x[1])), e)

    def unsigned(rule: Callable[[Array, Array], Array]) -> Rule:
        return lambda e, _a, x: _as_element(rule(_unsigned(x[0]), _unsigned(x[1])), e)

    REFERENCE.update({f"arith.{name}": signed(rule) for name, rule in _SIGNED.items()})
    REFERENCE.update({f"arith.{name}": unsigned(rule) for name, rule in _UNSIGNED.items()})
    REFERENCE["arith.mulhui"] = lambda e, _a, x: _as_element(
        _high_product(_unsigned(x[0]), _unsigned(x[1]), e.bits), e
    )
    for name, view in (("shli", _unsigned), ("shrui", _unsigned), ("shrsi", _signed)):
        REFERENCE[f"arith.{name}"] = lambda e, _a, x, name=name, view=view: _as_element(
            _shift(view(x[0]), _unsigned(x[1]), e.bits, name), e
        )
    REFERENCE["math.absi"] = lambda e, _a, x: _as_element(np.abs(_signed(x[0])), e)
    REFERENCE["arith.extsi"] = lambda e, _a, x: _as_element(_signed(x[0]), e)
    REFERENCE["arith.extui"] = lambda e, _a, x: _as_element(_unsigned(x[0]), e)
    REFERENCE["arith.trunci"] = lambda e, _a, x: _as_element(x[0], e)
    REFERENCE["arith.cmpi"] = _compare_integers


def _compare_integers(_e: ScalarType, attrs: Mapping[str, Any], x: Sequence[Array]) -> Array:
    predicate = attrs["predicate"]
    view = _unsigned if predicate[0] == "u" else _signed
    rule = _COMPARE[predicate if predicate in _COMPARE else predicate[1:]]
    return rule(view(x[0]), view(x[1]))


# Floats ------------------------------------------------------------------------------------------


def _minimum(a: Array, b: Array) -> Array:
    zero = np.where(np.signbit(a) | np.signbit(b), np.negative(np.zeros_like(a)), np.zeros_like(a))
    return np.where((a == 0) & (b == 0), zero, np.minimum(a, b))


def _maximum(a: Array, b: Array) -> Array:
    return -_minimum(-a, -b)


_FLOAT: dict[str, Callable[..., Array]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply,
    "arith.divf": np.divide, "arith.remf": np.fmod, "arith.negf": np.negative,
    "arith.minnumf": np.fmin, "arith.maxnumf": np.fmax,
    "arith.minimumf": _minimum, "arith.maximumf": _maximum,
    "math.absf": np.abs, "math.floor": np.floor, "math.ceil": np.ceil, "math.trunc": np.trunc,
    "math.roundeven": np.rint, "math.sqrt": np.sqrt,
}  # fmt: skip
#: Worked on in f64 whatever the element.
_TRANSCENDENTAL: dict[str, Callable[..., Array]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "pow": np.power, "atan2": np.arctan2,
}  # fmt: skip


def _compare_floats(_e: ScalarType, attrs: Mapping[str, Any], x: Sequence[Array]) -> Array:
    a, b = widen(x[0]), widen(x[1])
    predicate, is_unordered = attrs["predicate"], np.isnan(a) | np.isnan(b)
    if predicate in ("ord", "uno"):
        return is_unordered if predicate == "uno" else ~is_unordered
    result = _COMPARE[predicate[1:]](a, b)
    return result | is_unordered if predicate[0] == "u" else result & ~is_unordered


def _to_integer(values: Array, element: ScalarType, signed: bool) -> Array:
    whole = np.trunc(
        np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    )
    low = -(1 << (element.bits - 1)) if signed else 0
    high = (1 << (element.bits - 1)) if signed else 1 << element.bits
    wide = np.int64 if signed else np.uint64
    is_low, is_high = whole < low, whole >= high
    inside = np.where(is_low | is_high, 0.0, whole).astype(wide)
    result = np.where(is_high, wide(high - 1), np.where(is_low, wide(low), inside))
    return _as_element(result, element)


def _narrow_float(element: ScalarType, attrs: Mapping[str, Any], x: Sequence[Array]) -> Array:
    is_nearest = (attrs.get("rounding") or "rtne") in ("rtne", "nearest_even")
    return (narrow if is_nearest else narrow_toward_zero)(widen(x[0]), element)


def _register_floats() -> None:
    def rounded(rule: Callable[..., Array]) -> Rule:
        return lambda e, _a, x: narrow(np.asarray(rule(*map(widen, x))), e)

    def precise(rule: Callable[..., Array]) -> Rule:
        return lambda e, _a, x: narrow(np.asarray(rule(*(v.astype(np.float64) for v in x))), e)

    REFERENCE.update({name: rounded(rule) for name, rule in _FLOAT.items()})
    REFERENCE.update({f"math.{name}": precise(rule) for name, rule in _TRANSCENDENTAL.items()})
    REFERENCE["arith.fma"] = lambda _e, _a, x: fused_multiply_add(*x)
    REFERENCE["arith.cmpf"] = _compare_floats
    REFERENCE["arith.sitofp"] = lambda e, _a, x: integer_to_float(_signed(x[0]), e)
    REFERENCE["arith.uitofp"] = lambda e, _a, x: integer_to_float(_unsigned(x[0]), e)
    REFERENCE["arith.fptosi"] = lambda e, _a, x: _to_integer(x[0], e, signed=True)
    REFERENCE["arith.fptoui"] = lambda e, _a, x: _to_integer(x[0], e, signed=False)
    REFERENCE["arith.extf"] = lambda e, _a, x: narrow(widen(x[0]), e)
    REFERENCE["arith.truncf"] = _narrow_float
    REFERENCE["arith.bitcast"] = lambda e, _a, x: x[0].view(numpy_dtype(e))
    REFERENCE["arith.select"] = lambda _e, _a, x: np.where(x[0], x[1], x[2])


_register_integers()
_register_floats()
