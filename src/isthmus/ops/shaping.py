"""Contiguous copies, concatenation, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from isthmus.core.errors import ProgramError, ShapeError
from isthmus.ops.rules import (
    Arrays,
    Specs,
    cost_of,
    normal_axis,
    real,
    require_same_dtype,
    tolerances,
)
from isthmus.ops.standard import REQUIRED, Attrs, Operator, TensorSpec, register

__all__: list[str] = []


def _keep(array: Any) -> np.ndarray:
    given = np.asarray(array)
    return given if given.dtype.kind in "iub" else real(given)


def _concat_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    if not specs:
        raise ProgramError("concat: needs at least one input")
    dtype = require_same_dtype("concat", specs)
    first = specs[0].shape
    axis = normal_axis("concat", attrs["axis"], len(first))
    for spec in specs[1:]:
        fits = len(spec.shape) == len(first) and all(
            position == axis or size == first[position]
            for position, size in enumerate(spec.shape)
        )
        if not fits:
            raise ShapeError(
                f"concat: {list(spec.shape)} and {list(first)} differ outside axis {axis}"
            )
    total = sum(spec.shape[axis] for spec in specs)
    return [TensorSpec((*first[:axis], total, *first[axis + 1 :]), dtype)]


def _pad_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    low, high = tuple(attrs["low"]), tuple(attrs["high"])
    if not len(low) == len(high) == len(x.shape) or min((*low, *high), default=0) < 0:
        raise ShapeError(
            f"pad: low {list(low)} and high {list(high)} need one count >= 0 for each of the "
            f"{len(x.shape)} dimensions"
        )
    shape = tuple(a + size + b for a, size, b in zip(low, x.shape, high, strict=True))
    return [TensorSpec(shape, x.dtype)]


def _pad_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x = _keep(arrays[0])
    widths = list(zip(attrs["low"], attrs["high"], strict=True))
    return [np.pad(x, widths, constant_values=attrs["value"]) if widths else x]


_EXACT = tolerances(0, "a copy, exact")
register(
    Operator(
        name="copy",
        doc="x in row-major order.",
        inputs=("x",),
        infer=lambda specs, _attrs: [specs[0]],  # type: ignore[list-item]
        reference=lambda arrays, _attrs: [_keep(arrays[0]).copy()],
        cost=cost_of(0),
        tolerance=_EXACT,
    )
)
register(
    Operator(
        name="concat",
        doc="Inputs one after another along an axis.",
        inputs=("xs*",),
        infer=_concat_infer,
        reference=lambda arrays, attrs: [np.concatenate([_keep(a) for a in arrays], attrs["axis"])],
        cost=cost_of(0),
        attrs={"axis": REQUIRED},
        tolerance=_EXACT,
    )
)
register(
    Operator(
        name="pad",
        doc="x with `low` elements of `value` before and `high` after each dimension.",
        inputs=("x",),
        infer=_pad_infer,
        reference=_pad_reference,
        cost=cost_of(0),
        attrs={"low": REQUIRED, "high": REQUIRED, "value": 0.0},
        tolerance=_EXACT,
    )
)
