"""Cross-entropy of logits against class indices, with its gradient.

lse_n  = log(sum_c exp(x_nc))
loss_n = (1 - s) * (lse_n - x_n,target) + s * (lse_n - mean_c x_nc),  s = label_smoothing
mean   = sum of loss_n / count, count = rows whose target is not ignore_index

dx_nc = grad_n * (exp(x_nc - lse_n) - (1 - s) * [c == target] - s / C),  grad_n = grad / count
        for the mean, grad for the sum, grad[n] for none; 0 in ignored rows

All rows ignored: the mean is NaN, the sum 0, and the gradient 0 in every reduction.
A target outside [0, C) that is not ignore_index makes its row NaN.

Shapes: logits [N, C], target [N] i64; loss [] or [N], lse [N], count [].
Types:  floats; computed in f32 for f16 and bf16; lse in the statistics dtype, count f32.
"""

from __future__ import annotations

import numpy as np

from isthmus.core.errors import ProgramError, ShapeError
from isthmus.ops.rules import (
    F32,
    FLOATS,
    Arrays,
    Specs,
    cost_of,
    real,
    require_dtypes,
    require_shape,
    statistics_dtype,
    tolerances,
)
from isthmus.ops.standard import Attrs, Operator, TensorSpec, register

__all__: list[str] = []

REDUCTIONS = ("mean", "sum", "none")


def _check(op: str, logits: TensorSpec, target: TensorSpec, attrs: Attrs) -> tuple[int, ...]:
    """The shape of the loss."""
    require_dtypes(op, "logits", logits, FLOATS)
    require_dtypes(op, "target", target, ("i64",))
    if len(logits.shape) != 2:
        raise ShapeError(f"{op}: logits has shape {list(logits.shape)}, expected [rows, classes]")
    require_shape(op, "target", target, logits.shape[:1])
    if attrs["reduction"] not in REDUCTIONS:
        raise ProgramError(
            f"{op}: reduction is {attrs['reduction']!r}; allowed: {', '.join(REDUCTIONS)}"
        )
    if not 0.0 <= attrs["label_smoothing"] <= 1.0:
        raise ProgramError(
            f"{op}: label_smoothing is {attrs['label_smoothing']}; it must be within 0 and 1"
        )
    return logits.shape[:1] if attrs["reduction"] == "none" else ()


def _infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    logits, target = specs
    shape = _check("cross_entropy", logits, target, attrs)
    statistics = statistics_dtype(logits.dtype)
    return [
        TensorSpec(shape, logits.dtype),
        TensorSpec(logits.shape[:1], statistics),
        TensorSpec((), F32),
    ]


def _reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x, target = real(arrays[0]), np.asarray(arrays[1], np.int64)
    rows, classes = x.shape
    smoothing = attrs["label_smoothing"]
    kept = target != attrs["ignore_index"]
    valid = (target >= 0) & (target < classes)
    with np.errstate(all="ignore"):
        top = x.max(1, keepdims=True, initial=-np.inf)
        lse = top[:, 0] + np.log(np.exp(x - np.where(np.isfinite(top), top, 0.0)).sum(1))
        lse = np.where(np.isfinite(top[:, 0]), lse, top[:, 0])
        picked = np.full(rows, np.nan)
        picked[valid] = x[np.flatnonzero(valid), target[valid]]
        loss = (1.0 - smoothing) * (lse - picked)
        if smoothing:
            loss = loss + smoothing * (lse - x.mean(1))
        loss = np.where(kept, loss, 0.0)
        count = float(kept.sum())
        if attrs["reduction"] == "sum":
            loss = loss.sum()
        elif attrs["reduction"] == "mean":
            loss = np.divide(loss.sum(), count)
    return [np.asarray(loss), lse, np.asarray(count)]


def _backward_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    grad, logits, target, lse, count = specs
    shape = _check("cross_entropy_backward", logits, target, attrs)
    require_shape("cross_entropy_backward", "grad", grad, shape)
    require_shape("cross_entropy_backward", "lse", lse, logits.shape[:1])
    require_shape("cross_entropy_backward", "count", count, ())
    return [logits]


def _backward_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, x, target, lse, count = arrays
    grad, x, lse, count = real(grad), real(x), real(lse), real(count)
    target = np.asarray(target, np.int64)
    rows, classes = x.shape
    smoothing = attrs["label_smoothing"]
    kept = target != attrs["ignore_index"]
    valid = (target >= 0) & (target < classes)
    with np.errstate(all="ignore"):
        scale = grad / count if attrs["reduction"] == "mean" else grad
        out = np.exp(x - lse[:, None]) - (smoothing / classes if classes else 0.0)
        index = np.flatnonzero(valid)
        out[index, target[valid]] -= 1.0 - smoothing
        out[kept & ~valid] = np.nan
        out = out * np.broadcast_to(scale, (rows,))[:, None]
    return [np.where(kept[:, None], out, 0.0)]


_ATTRS = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
register(
    Operator(
        name="cross_entropy",
        doc=__doc__ or "",
        inputs=("logits", "target"),
        infer=_infer,
        reference=_reference,
        cost=cost_of(lambda specs, _outputs, _attrs: 12 * specs[0].size),
        attrs=_ATTRS,
        tolerance=tolerances(
            8, "lse - x cancels for a sure class: absolute, for logits within 16", absolute_ulps=64
        ),
        gradient="cross_entropy_backward",
        nan="NaN in a row that counts makes its loss NaN; ignored rows never show",
        empty="no rows: mean NaN, sum 0",
    )
)
register(
    Operator(
        name="cross_entropy_backward",
        doc="The gradient of the logits, written as softmax less one-hot in one pass.",
        inputs=("grad", "logits", "target", "lse", "count"),
        infer=_backward_infer,
        reference=_backward_reference,
        cost=cost_of(12),
        attrs=_ATTRS,
        tolerance=tolerances(
            32, "exp of a rounded difference, less 1 at the target: absolute", absolute_ulps=4
        ),
        gradient="none",
        nan="NaN in a row that counts makes the row NaN; ignored rows are 0",
        inplace={0: (1,)},
    )
)
