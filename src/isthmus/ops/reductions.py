"""Reductions over any axes, arg-max, running sums.

sum, mean, max, min, prod, variance, argmax, cumsum. Sums of f16 and bf16 are kept in f32;
sums and products of integers and bools are i64 (so 128 times 2**30 is 137438953472).
Variance takes two passes over the data (or one over a row that stays in cache): never
E[x^2] - E[x]^2, which cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isthmus.core.errors import DTypeError, ShapeError
from isthmus.ops.rules import (
    FLOATS,
    I64,
    Arrays,
    Specs,
    cost_of,
    normal_axes,
    normal_axis,
    prod,
    real,
    require_dtypes,
    tolerances,
)
from isthmus.ops.standard import REQUIRED, Attrs, Operator, TensorSpec, register

__all__: list[str] = []


def _keep(array: Any) -> np.ndarray:
    given = np.asarray(array)
    return given if given.dtype.kind in "iub" else real(given)


def reduced_shape(op: str, shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    axes = normal_axes(op, attrs["axes"], len(shape))
    if attrs["keepdims"]:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _infer(name: str) -> Any:
    def infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
        (x,) = specs
        shape = reduced_shape(name, x.shape, attrs)
        dtype = x.dtype
        if name in ("mean", "variance"):
            require_dtypes(name, "x", x, FLOATS)
        elif name in ("sum", "prod"):
            if not dtype.is_float:
                dtype = I64
        else:
            if dtype.name == "bool":
                raise DTypeError(f"{name}: x is bool; allowed: integers and floats")
            axes = normal_axes(name, attrs["axes"], len(x.shape))
            if prod([x.shape[axis] for axis in axes]) == 0 and prod(shape) > 0:
                raise ShapeError(f"{name}: no largest or smallest of the empty {list(x.shape)}")
        return [TensorSpec(shape, dtype)]

    return infer


def _axes(attrs: Attrs, array: np.ndarray) -> tuple[int, ...]:
    return normal_axes("reduction", attrs["axes"], array.ndim)


def _variance(
    x: np.ndarray, axes: tuple[int, ...], keepdims: bool, correction: float
) -> np.ndarray:
    centred = x - x.mean(axes, keepdims=True)
    count = prod([x.shape[axis] for axis in axes])
    return (centred**2).sum(axes, keepdims=keepdims) / max(count - correction, 0.0)


def _reference(name: str) -> Any:
    def reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
        x = _keep(arrays[0])
        axes, keepdims = _axes(attrs, x), attrs["keepdims"]
        with np.errstate(all="ignore"):
            if name in ("sum", "prod"):
                function = np.sum if name == "sum" else np.prod
                kind = np.float64 if x.dtype.kind == "f" else np.int64
                return [np.asarray(function(x, axis=axes, keepdims=keepdims, dtype=kind))]
            if name == "mean":
                count = prod([x.shape[axis] for axis in axes])
                total = np.sum(x, axis=axes, keepdims=keepdims)
                return [np.asarray(np.divide(total, float(count)))]
            if name == "variance":
                if x.size == 0:
                    return [np.full(reduced_shape(name, x.shape, attrs), np.nan)]
                return [np.asarray(_variance(x, axes, keepdims, attrs["correction"]))]
            function = np.max if name == "max" else np.min
            if x.size == 0:
                return [np.zeros(reduced_shape(name, x.shape, attrs), x.dtype)]
            return [np.asarray(function(x, axis=axes, keepdims=keepdims))]

    return reference


def _argmax_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    axis = normal_axis("argmax", attrs["axis"], len(x.shape))
    if x.dtype.name == "bool":
        raise DTypeError("argmax: x is bool; allowed: integers and floats")
    shape = reduced_shape("argmax", x.shape, {"axes": (axis,), "keepdims": attrs["keepdims"]})
    if x.shape[axis] == 0 and prod(shape) > 0:
        raise ShapeError(f"argmax: no largest along the empty axis {axis} of {list(x.shape)}")
    return [TensorSpec(shape, I64)]


def _argmax_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x = _keep(arrays[0])
    axis = attrs["axis"] % x.ndim
    if x.size == 0:
        shape = reduced_shape("argmax", x.shape, {"axes": (axis,), "keepdims": attrs["keepdims"]})
        return [np.zeros(shape, np.int64)]
    return [np.asarray(np.argmax(x, axis=axis, keepdims=attrs["keepdims"]), np.int64)]


def _cumsum_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    normal_axis("cumsum", attrs["axis"], len(x.shape))
    return [TensorSpec(x.shape, x.dtype if x.dtype.is_float else I64)]


def _cumsum_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x = _keep(arrays[0])
    kind = np.float64 if x.dtype.kind == "f" else np.int64
    with np.errstate(all="ignore"):
        return [np.cumsum(x, axis=attrs["axis"], dtype=kind)]


_AXES: dict[str, Any] = {"axes": None, "keepdims": False}
_SUM_REASON = "partial sums in f32 (f64 for f64), at most 4096 terms of magnitude 1 in a chain"
_TOLERANCE = {
    "sum": tolerances(4, _SUM_REASON, absolute_ulps=64),
    "mean": tolerances(4, _SUM_REASON, absolute_ulps=8),
    "max": tolerances(0, "a choice, exact"),
    "min": tolerances(0, "a choice, exact"),
    "prod": tolerances(64, "one rounding per factor"),
    "variance": tolerances(32, f"two passes; {_SUM_REASON}", absolute_ulps=8),
}
_DOC = {
    "sum": "Sum over `axes` (None: all); integers and bools give i64.",
    "mean": "Arithmetic mean over `axes`.",
    "max": "Largest element; NaN if there is one.",
    "min": "Smallest element; NaN if there is one.",
    "prod": "Product over `axes`; integers and bools give i64.",
    "variance": "sum((x - mean)^2) / (count - correction) over `axes`, in two passes.",
}
_EMPTY = {
    "sum": "0 for an empty row",
    "mean": "NaN for an empty row",
    "max": "ShapeError where a row is empty",
    "min": "ShapeError where a row is empty",
    "prod": "1 for an empty row",
    "variance": "NaN for an empty row",
}


def _input_size(specs: Specs, _outputs: object, _attrs: Attrs) -> int:
    return specs[0].size


for _name in _DOC:
    register(
        Operator(
            name=_name,
            doc=_DOC[_name],
            inputs=("x",),
            infer=_infer(_name),
            reference=_reference(_name),
            cost=cost_of(_input_size),
            attrs={**_AXES, "correction": 1} if _name == "variance" else _AXES,
            tolerance=_TOLERANCE[_name],
            nan="a row with NaN gives NaN",
            empty=_EMPTY[_name],
        )
    )
register(
    Operator(
        name="argmax",
        doc="Index of the first largest element along one axis, or of the first NaN.",
        inputs=("x",),
        infer=_argmax_infer,
        reference=_argmax_reference,
        cost=cost_of(_input_size),
        attrs={"axis": REQUIRED, "keepdims": False},
        nan="NaN counts as largest: the index of the first NaN",
        empty="ShapeError where a row is empty",
        gradient="none",
    )
)
register(
    Operator(
        name="cumsum",
        doc="Running sum along one axis; integers and bools give i64.",
        inputs=("x",),
        infer=_cumsum_infer,
        reference=_cumsum_reference,
        cost=cost_of(_input_size),
        attrs={"axis": REQUIRED},
        tolerance=tolerances(4, _SUM_REASON, absolute_ulps=128),
        nan="NaN from the first NaN on",
    )
)
