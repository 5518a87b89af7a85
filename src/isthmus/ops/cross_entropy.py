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

# ruff: noqa: SIM108  (an `if` on a constexpr leaves the other branch out)
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.errors import ProgramError, ShapeError
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    ACCUMULATE,
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
from isthmus.ops.schedule import (
    accumulate_type,
    block_size,
    ceil_div,
    inputs,
    outputs,
    row_block,
    rows_per_program,
    workspace,
)
from isthmus.ops.standard import Attrs, Launch, Operator, Plan, TensorSpec, View, register

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__: list[str] = []

REDUCTIONS = ("mean", "sum", "none")


def _check(op: str, logits: TensorSpec, target: TensorSpec, attrs: Attrs) -> tuple[int, ...]:
    """The shape of the loss."""
    require_dtypes(op, "logits", logits, FLOATS)
    require_dtypes(op, "target", target, ("i64",))
    if len(logits.shape) != 2:
        raise ShapeError(f"{op}: logits has shape {list(logits.shape)}, expected [rows, classes]")
    if logits.shape[1] == 0:
        raise ShapeError(f"{op}: logits {list(logits.shape)} has no classes")
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
        out = np.exp(x - lse[:, None]) - smoothing / classes
        index = np.flatnonzero(valid)
        out[index, target[valid]] -= 1.0 - smoothing
        out[kept & ~valid] = np.nan
        out = out * np.broadcast_to(scale, (rows,))[:, None]
    return [np.where(kept[:, None], out, 0.0)]


@jit
def cross_entropy_kernel(
    x_ptr, target_ptr, loss_ptr, lse_ptr, rows, ignore_index,
    SMOOTHING: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Loss and log-sum-exp of each contiguous row of C logits; ROWS of them per program."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    columns = tl.arange(0, BLOCK)
    low = float("-inf")
    for row in range(first, min(first + ROWS, rows)):
        x_row = x_ptr + row * C
        if C <= BLOCK:
            x = tl.load(x_row + columns, mask=columns < C, other=low).to(ACC)
            top = tl.max(x, 0)
            total = tl.sum(tl.exp(x - top), 0)
            if SMOOTHING > 0.0:
                mean = tl.sum(tl.where(columns < C, x, 0.0), 0) * (1.0 / C)
        else:
            tops = tl.full((BLOCK,), low, ACC)
            sums = tl.zeros((BLOCK,), ACC)
            for start in range(0, C, BLOCK):
                mask = start + columns < C
                x = tl.load(x_row + start + columns, mask=mask, other=low).to(ACC)
                tops = tl.maximum(tops, x)
                if SMOOTHING > 0.0:
                    sums += tl.where(mask, x, 0.0)
            top = tl.max(tops, 0)
            totals = tl.zeros((BLOCK,), ACC)
            for start in range(0, C, BLOCK):
                mask = start + columns < C
                x = tl.load(x_row + start + columns, mask=mask, other=low).to(ACC)
                totals += tl.exp(x - top)
            total = tl.sum(totals, 0)
            if SMOOTHING > 0.0:
                mean = tl.sum(sums, 0) * (1.0 / C)
        lse = top + tl.log(total)
        target = tl.load(target_ptr + row)
        valid = (target >= 0) & (target < C)
        picked = tl.load(x_row + target, mask=valid, other=float("nan")).to(ACC)
        loss = (lse - picked) * (1.0 - SMOOTHING)
        if SMOOTHING > 0.0:
            loss += (lse - mean) * SMOOTHING
        tl.store(loss_ptr + row, tl.where(target == ignore_index, 0.0, loss))
        tl.store(lse_ptr + row, lse)


@jit
def cross_entropy_reduce_kernel(
    row_loss_ptr, target_ptr, loss_ptr, count_ptr, rows, ignore_index,
    REDUCTION: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """One program: the count of rows that are not ignored, and the sum or mean of the losses."""
    places = tl.arange(0, BLOCK)
    totals = tl.zeros((BLOCK,), ACC)
    counts = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, rows, BLOCK):
        mask = start + places < rows
        target = tl.load(target_ptr + start + places, mask=mask, other=0)
        counts += (mask & (target != ignore_index)).to(tl.int32)
        if REDUCTION != "none":
            totals += tl.load(row_loss_ptr + start + places, mask=mask, other=0.0).to(ACC)
    count = tl.sum(counts, 0)
    tl.store(count_ptr, count.to(tl.float32))
    if REDUCTION == "sum":
        tl.store(loss_ptr, tl.sum(totals, 0))
    elif REDUCTION == "mean":
        tl.store(loss_ptr, tl.sum(totals, 0) / count.to(ACC))


@jit
def cross_entropy_backward_kernel(
    grad_ptr, x_ptr, target_ptr, lse_ptr, count_ptr, out_ptr, rows, ignore_index,
    REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Softmax less one-hot, times the gradient of the loss; ROWS rows per program."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    columns = tl.arange(0, BLOCK)
    if REDUCTION != "none":
        common = tl.load(grad_ptr).to(ACC)
        if REDUCTION == "mean":
            common = common / tl.load(count_ptr).to(ACC)
    for row in range(first, min(first + ROWS, rows)):
        target = tl.load(target_ptr + row)
        if target == ignore_index:
            for start in range(0, C, BLOCK):
                mask = start + columns < C
                tl.store(out_ptr + row * C + start + columns, tl.zeros((BLOCK,), ACC), mask=mask)
        else:
            lse = tl.load(lse_ptr + row)
            if REDUCTION == "none":
                scale = tl.load(grad_ptr + row).to(ACC)
            else:
                scale = common
            valid = (target >= 0) & (target < C)
            scale = tl.where(valid, scale, float("nan"))
            place = target.to(tl.int32)
            for start in range(0, C, BLOCK):
                mask = start + columns < C
                x = tl.load(x_ptr + row * C + start + columns, mask=mask, other=0.0).to(ACC)
                share = tl.exp(x - lse) - SMOOTHING / C
                share = tl.where(start + columns == place, share - (1.0 - SMOOTHING), share)
                tl.store(out_ptr + row * C + start + columns, share * scale, mask=mask)


def _plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    logits, _ = views
    rows, classes = logits.shape
    reduction, none = attrs["reduction"], attrs["reduction"] == "none"
    accumulate = accumulate_type(logits.dtype)
    space = rows * ACCUMULATE[logits.dtype.name].size_bytes
    common = {
        "target_ptr": inputs(1), "rows": rows, "ignore_index": attrs["ignore_index"],
        "ACC": accumulate,
    }  # fmt: skip
    row_loss = outputs(0) if none else workspace(0, ACCUMULATE[logits.dtype.name])
    per_program = rows_per_program(rows, classes)
    launches = []
    if rows:
        args = {
            **common, "x_ptr": inputs(0), "loss_ptr": row_loss, "lse_ptr": outputs(1),
            "SMOOTHING": float(attrs["label_smoothing"]), "C": classes, "ROWS": per_program,
            "BLOCK": row_block(classes, target),
        }  # fmt: skip
        launches.append(Launch(cross_entropy_kernel, args, (ceil_div(rows, per_program), 1, 1)))
    args = {
        **common, "row_loss_ptr": row_loss, "loss_ptr": outputs(0), "count_ptr": outputs(2),
        "REDUCTION": reduction, "BLOCK": block_size(rows, 1024, target),
    }  # fmt: skip
    launches.append(Launch(cross_entropy_reduce_kernel, args, (1, 1, 1)))
    return Plan(tuple(launches), () if none else (max(space, 8),))


def _backward_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    (out,) = outs
    if out.size == 0:
        return Plan(())
    rows, classes = out.shape
    per_program = rows_per_program(rows, classes)
    args = {
        "grad_ptr": inputs(0), "x_ptr": inputs(1), "target_ptr": inputs(2), "lse_ptr": inputs(3),
        "count_ptr": inputs(4), "out_ptr": outputs(0), "rows": rows,
        "ignore_index": attrs["ignore_index"], "REDUCTION": attrs["reduction"],
        "SMOOTHING": float(attrs["label_smoothing"]), "C": classes, "ROWS": per_program,
        "BLOCK": row_block(classes, target), "ACC": accumulate_type(out.dtype),
    }  # fmt: skip
    grid = (ceil_div(rows, per_program), 1, 1)
    return Plan((Launch(cross_entropy_backward_kernel, args, grid),))


_ATTRS = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
register(
    Operator(
        name="cross_entropy",
        doc=__doc__ or "",
        inputs=("logits", "target"),
        infer=_infer,
        reference=_reference,
        plan=_plan,
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
        plan=_backward_plan,
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
