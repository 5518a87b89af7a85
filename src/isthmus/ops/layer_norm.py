"""Layer norm over the trailing `axes` dimensions, with its gradient.

y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)

dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),  g = grad * weight, xhat = (x - mean) * rstd
dweight = sum over rows of grad * xhat,  dbias = sum over rows of grad

Shapes: x [.., D]; weight and bias [D]; mean and rstd [..]. D may be several dimensions.
Types:  floats; statistics in f32 (f64 for f64). The variance is taken about the mean, in a
        second pass over the row (never E[x^2] - E[x]^2), and the mean from the row's first
        element, so that a mean far from 0 costs no digits.
Cost:   about 8 flops per element forward, 14 backward.
"""

# ruff: noqa: SIM108  (an `if` on a constexpr leaves the other branch out)
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.errors import ShapeError
from isthmus.jit.decorator import jit
from isthmus.ops.reductions import sum_columns
from isthmus.ops.rules import (
    ACCUMULATE,
    FLOATS,
    Arrays,
    Specs,
    cost_of,
    prod,
    real,
    require_dtypes,
    require_same_dtype,
    require_shape,
    statistics_dtype,
    tolerances,
)
from isthmus.ops.schedule import (
    accumulate_type,
    ceil_div,
    inputs,
    optional_input,
    outputs,
    row_block,
    rows_per_program,
    workspace,
)
from isthmus.ops.standard import Attrs, Launch, Operator, Plan, TensorSpec, View, register

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__ = ["norm_backward_plan", "split_trailing"]


Shape = tuple[int, ...]


def split_trailing(op: str, shape: Sequence[int], axes: int) -> tuple[Shape, Shape]:
    """(leading, trailing) parts of a shape, the trailing one of `axes` dimensions."""
    if not 1 <= axes <= len(shape):
        raise ShapeError(f"{op}: axes is {axes}; it must be within 1 and {len(shape)}")
    leading, trailing = tuple(shape[: len(shape) - axes]), tuple(shape[len(shape) - axes :])
    if 0 in trailing:
        raise ShapeError(f"{op}: the normalised dimensions {list(trailing)} are empty")
    return leading, trailing


def _infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    x, weight, bias = specs
    require_dtypes("layer_norm", "x", x, FLOATS)
    leading, trailing = split_trailing("layer_norm", x.shape, attrs["axes"])
    for name, spec in (("weight", weight), ("bias", bias)):
        if spec is not None:
            require_dtypes("layer_norm", name, spec, FLOATS)
            require_shape("layer_norm", name, spec, trailing)
    statistics = TensorSpec(leading, statistics_dtype(x.dtype))
    return [x, statistics, statistics]


def _rows(array: np.ndarray, axes: int) -> np.ndarray:
    leading, trailing = split_trailing("layer_norm", array.shape, axes)
    return array.reshape(*leading, prod(trailing))


def _reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x, weight, bias = (None if array is None else real(array) for array in arrays)
    assert x is not None, "checked by the register"
    rows = _rows(x, attrs["axes"])
    with np.errstate(all="ignore"):
        count = float(rows.shape[-1])
        anchor = rows[..., :1]  # see layer_norm_kernel
        level = (rows - anchor).sum(-1, keepdims=True) / count
        centred = rows - anchor - level
        rstd = 1.0 / np.sqrt((centred**2).sum(-1, keepdims=True) / count + attrs["eps"])
        out = centred * rstd
        if weight is not None:
            out = out * weight.reshape(-1)
        if bias is not None:
            out = out + bias.reshape(-1)
    return [out.reshape(x.shape), (anchor + level)[..., 0], rstd[..., 0]]


def _backward_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    grad, x, mean, rstd, weight = specs
    require_dtypes("layer_norm_backward", "x", x, FLOATS)
    require_same_dtype("layer_norm_backward", [grad, x])
    require_shape("layer_norm_backward", "grad", grad, x.shape)
    leading, trailing = split_trailing("layer_norm_backward", x.shape, attrs["axes"])
    for name, spec in (("mean", mean), ("rstd", rstd)):
        require_shape("layer_norm_backward", name, spec, leading)
    if weight is not None:
        require_shape("layer_norm_backward", "weight", weight, trailing)
    parameter = TensorSpec(trailing, x.dtype if weight is None else weight.dtype)
    return [x, parameter, parameter]


def _backward_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, x, mean, rstd, weight = (None if array is None else real(array) for array in arrays)
    assert grad is not None
    assert x is not None
    assert mean is not None
    assert rstd is not None
    trailing = x.shape[x.ndim - attrs["axes"] :]
    width = prod(trailing)
    grad_rows, x_rows = grad.reshape(-1, width), x.reshape(-1, width)
    mean_rows, rstd_rows = mean.reshape(-1, 1), rstd.reshape(-1, 1)
    with np.errstate(all="ignore"):
        xhat = (x_rows - mean_rows) * rstd_rows
        g = grad_rows if weight is None else grad_rows * weight.reshape(-1)
        mean_g = g.sum(-1, keepdims=True) / float(width)
        mean_gx = (g * xhat).sum(-1, keepdims=True) / float(width)
        dx = rstd_rows * (g - mean_g - xhat * mean_gx)
        dweight, dbias = (grad_rows * xhat).sum(0), grad_rows.sum(0)
    return [dx.reshape(x.shape), dweight.reshape(trailing), dbias.reshape(trailing)]


@jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, rows,
    EPS: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Contiguous rows of N; ROWS of them per program. A row longer than BLOCK takes three passes.

    Everything is measured from the row's first element: where the mean is far from 0, its own
    rounding would be as large as the spread.
    """
    first = tl.program_id(0).to(tl.int64) * ROWS
    columns = tl.arange(0, BLOCK)
    for row in range(first, min(first + ROWS, rows)):
        x_row = x_ptr + row * N
        anchor = tl.load(x_row).to(ACC)
        if N <= BLOCK:
            mask = columns < N
            shifted = tl.load(x_row + columns, mask=mask, other=0.0).to(ACC) - anchor
            level = tl.sum(tl.where(mask, shifted, 0.0), 0) * (1.0 / N)
            centred = tl.where(mask, shifted - level, 0.0)
            rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) * (1.0 / N) + EPS)
            y = centred * rstd
            if weight_ptr is not None:
                y = y * tl.load(weight_ptr + columns, mask=mask, other=0.0).to(ACC)
            if bias_ptr is not None:
                y = y + tl.load(bias_ptr + columns, mask=mask, other=0.0).to(ACC)
            tl.store(out_ptr + row * N + columns, y, mask=mask)
        else:
            totals = tl.zeros((BLOCK,), ACC)
            for start in range(0, N, BLOCK):
                mask = start + columns < N
                shifted = tl.load(x_row + start + columns, mask=mask, other=0.0).to(ACC) - anchor
                totals += tl.where(mask, shifted, 0.0)
            level = tl.sum(totals, 0) * (1.0 / N)
            squares = tl.zeros((BLOCK,), ACC)
            for start in range(0, N, BLOCK):
                mask = start + columns < N
                shifted = tl.load(x_row + start + columns, mask=mask, other=0.0).to(ACC) - anchor
                centred = tl.where(mask, shifted - level, 0.0)
                squares += centred * centred
            rstd = 1.0 / tl.sqrt(tl.sum(squares, 0) * (1.0 / N) + EPS)
            for start in range(0, N, BLOCK):
                mask = start + columns < N
                shifted = tl.load(x_row + start + columns, mask=mask, other=0.0).to(ACC) - anchor
                y = (shifted - level) * rstd
                if weight_ptr is not None:
                    y = y * tl.load(weight_ptr + start + columns, mask=mask, other=0.0).to(ACC)
                if bias_ptr is not None:
                    y = y + tl.load(bias_ptr + start + columns, mask=mask, other=0.0).to(ACC)
                tl.store(out_ptr + row * N + start + columns, y, mask=mask)
        tl.store(mean_ptr + row, anchor + level)
        tl.store(rstd_ptr + row, rstd)


@jit
def norm_backward_kernel(
    grad_ptr, x_ptr, mean_ptr, rstd_ptr, weight_ptr, dx_ptr, dweight_ptr, dbias_ptr, rows,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """dx of ROWS rows per program, and this program's sums over them of grad * xhat and grad.

    mean_ptr is None for RMS norm, which subtracts no mean; dbias_ptr then is None too.
    """
    part = tl.program_id(0).to(tl.int64)
    first = part * ROWS
    last = min(first + ROWS, rows)
    columns = tl.arange(0, BLOCK)
    if N <= BLOCK:
        mask = columns < N
        dweight = tl.zeros((BLOCK,), ACC)
        dbias = tl.zeros((BLOCK,), ACC)
        for row in range(first, last):
            grad = tl.load(grad_ptr + row * N + columns, mask=mask, other=0.0).to(ACC)
            x = tl.load(x_ptr + row * N + columns, mask=mask, other=0.0).to(ACC)
            rstd = tl.load(rstd_ptr + row)
            if mean_ptr is not None:
                xhat = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
            else:
                xhat = x * rstd
            g = grad
            if weight_ptr is not None:
                g = grad * tl.load(weight_ptr + columns, mask=mask, other=0.0).to(ACC)
            slope = tl.sum(g * xhat, 0) * (1.0 / N)
            if mean_ptr is not None:
                dx = (g - tl.sum(g, 0) * (1.0 / N) - xhat * slope) * rstd
            else:
                dx = (g - xhat * slope) * rstd
            tl.store(dx_ptr + row * N + columns, dx, mask=mask)
            dweight += grad * xhat
            if dbias_ptr is not None:
                dbias += grad
        tl.store(dweight_ptr + part * N + columns, dweight, mask=mask)
        if dbias_ptr is not None:
            tl.store(dbias_ptr + part * N + columns, dbias, mask=mask)
    else:
        for start in range(0, N, BLOCK):
            mask = start + columns < N
            tl.store(dweight_ptr + part * N + start + columns, tl.zeros((BLOCK,), ACC), mask=mask)
            if dbias_ptr is not None:
                tl.store(dbias_ptr + part * N + start + columns, tl.zeros((BLOCK,), ACC), mask=mask)
        for row in range(first, last):
            if mean_ptr is not None:
                mean = tl.load(mean_ptr + row)
            else:
                mean = 0.0
            rstd = tl.load(rstd_ptr + row)
            sums = tl.zeros((BLOCK,), ACC)
            slopes = tl.zeros((BLOCK,), ACC)
            for start in range(0, N, BLOCK):
                mask = start + columns < N
                g = tl.load(grad_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
                x = tl.load(x_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
                xhat = tl.where(mask, (x - mean) * rstd, 0.0)
                if weight_ptr is not None:
                    g = g * tl.load(weight_ptr + start + columns, mask=mask, other=0.0).to(ACC)
                sums += g
                slopes += g * xhat
            level = tl.sum(sums, 0) * (1.0 / N)
            slope = tl.sum(slopes, 0) * (1.0 / N)
            for start in range(0, N, BLOCK):
                mask = start + columns < N
                grad = tl.load(grad_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
                x = tl.load(x_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
                xhat = tl.where(mask, (x - mean) * rstd, 0.0)
                g = grad
                if weight_ptr is not None:
                    g = grad * tl.load(weight_ptr + start + columns, mask=mask, other=0.0).to(ACC)
                if mean_ptr is not None:
                    g = g - level
                tl.store(dx_ptr + row * N + start + columns, (g - xhat * slope) * rstd, mask=mask)
                places = part * N + start + columns
                dweight = tl.load(dweight_ptr + places, mask=mask, other=0.0)
                tl.store(dweight_ptr + places, dweight + grad * xhat, mask=mask)
                if dbias_ptr is not None:
                    dbias = tl.load(dbias_ptr + places, mask=mask, other=0.0)
                    tl.store(dbias_ptr + places, dbias + grad, mask=mask)


def _plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    x, weight, bias = views
    if x.size == 0:
        return Plan(())
    leading, trailing = split_trailing("layer_norm", x.shape, attrs["axes"])
    rows, width = prod(leading), prod(trailing)
    per_program = rows_per_program(rows, width)
    args = {
        "x_ptr": inputs(0), "weight_ptr": optional_input(weight, 1),
        "bias_ptr": optional_input(bias, 2), "out_ptr": outputs(0), "mean_ptr": outputs(1),
        "rstd_ptr": outputs(2), "rows": rows, "EPS": float(attrs["eps"]), "N": width,
        "ROWS": per_program, "BLOCK": row_block(width, target), "ACC": accumulate_type(x.dtype),
    }  # fmt: skip
    return Plan((Launch(layer_norm_kernel, args, (ceil_div(rows, per_program), 1, 1)),))


def norm_backward_plan(
    x: View, trailing: Shape, slots: dict[str, Any], gradients: Sequence[View],
    target: TargetDescription,
) -> Plan:  # fmt: skip
    """dx and partial sums in one launch, then one launch per parameter that adds the partials.

    `slots` names the pointers of the inputs and dx; `gradients` are the outputs from index 1 on.
    """
    width = prod(trailing)
    rows = x.size // width
    per_program = max(1, ceil_div(rows, 64), min(ceil_div(rows, 16), ceil_div(65536, width)))
    parts = ceil_div(rows, per_program)
    accumulate = ACCUMULATE[x.dtype.name]
    size_bytes = max(parts, 1) * width * accumulate.size_bytes
    partials = View.contiguous((parts, width), accumulate)
    launches = []
    if parts:
        args = {
            **slots, "dweight_ptr": workspace(0, accumulate),
            "dbias_ptr": workspace(1, accumulate) if len(gradients) > 1 else None,
            "rows": rows, "N": width, "ROWS": per_program, "BLOCK": row_block(width, target),
            "ACC": accumulate_type(x.dtype),
        }  # fmt: skip
        launches.append(Launch(norm_backward_kernel, args, (parts, 1, 1)))
    for index in range(len(gradients)):
        part = workspace(index, accumulate)
        launches += sum_columns(part, partials, outputs(index + 1), target)
    return Plan(tuple(launches), (size_bytes,) * len(gradients))


def _backward_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    _, x, _, _, weight = views
    slots = {
        "grad_ptr": inputs(0), "x_ptr": inputs(1), "mean_ptr": inputs(2), "rstd_ptr": inputs(3),
        "weight_ptr": optional_input(weight, 4), "dx_ptr": outputs(0),
    }  # fmt: skip
    _, trailing = split_trailing("layer_norm_backward", x.shape, attrs["axes"])
    return norm_backward_plan(x, trailing, slots, outs[1:], target)


_NAN = "a row with NaN or an infinity is NaN, its statistics not finite"
register(
    Operator(
        name="layer_norm",
        doc=__doc__ or "",
        inputs=("x", "weight?", "bias?"),
        infer=_infer,
        reference=_reference,
        plan=_plan,
        cost=cost_of(8),
        attrs={"axes": 1, "eps": 1e-5},
        tolerance=tolerances(
            16, "x - mean cancels: absolute, for rows of unit spread", absolute_ulps=16
        ),
        gradient="layer_norm_backward",
        nan=_NAN,
        inplace={0: (0,)},
    )
)
register(
    Operator(
        name="layer_norm_backward",
        doc="dx, dweight, dbias of layer_norm; the sums over rows are taken in fixed chunks.",
        inputs=("grad", "x", "mean", "rstd", "weight?"),
        infer=_backward_infer,
        reference=_backward_reference,
        plan=_backward_plan,
        cost=cost_of(14),
        attrs={"axes": 1},
        tolerance=tolerances(
            32, "sums over rows and columns of terms of magnitude 1: absolute", absolute_ulps=256
        ),
        gradient="none",
        nan="NaN in a row: dx of that row, dweight and dbias are NaN",
        empty="zero gradients of weight and bias without rows",
        inplace={0: (0, 1)},
    )
)
