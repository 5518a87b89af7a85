"""RMS norm over the last dimension, with its gradient.

y = x * rstd * weight,  rstd = 1 / sqrt(mean(x^2) + eps)

dx = rstd * (g - xhat * mean(g * xhat)),  g = grad * weight, xhat = x * rstd
dweight = sum over rows of grad * xhat

Shapes: x [.., D]; weight [D]; rstd [..].
Types:  floats; statistics in f32 (f64 for f64).
Source: Zhang and Sennrich 2019, eq. 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.jit.decorator import jit
from isthmus.ops.layer_norm import norm_backward_plan, split_trailing
from isthmus.ops.rules import (
    FLOATS,
    Arrays,
    Specs,
    cost_of,
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
)
from isthmus.ops.standard import Attrs, Launch, Operator, Plan, TensorSpec, View, register

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__: list[str] = []


def _infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    x, weight = specs
    require_dtypes("rms_norm", "x", x, FLOATS)
    leading, trailing = split_trailing("rms_norm", x.shape, 1)
    if weight is not None:
        require_dtypes("rms_norm", "weight", weight, FLOATS)
        require_shape("rms_norm", "weight", weight, trailing)
    return [x, TensorSpec(leading, statistics_dtype(x.dtype))]


def _reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x, weight = arrays
    x = real(x)
    with np.errstate(all="ignore"):
        total = (x**2).sum(-1, keepdims=True)
        rstd = 1.0 / np.sqrt(total / float(x.shape[-1]) + attrs["eps"])
        out = x * rstd
        if weight is not None:
            out = out * real(weight)
    return [out, rstd[..., 0]]


def _backward_infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    grad, x, rstd, weight = specs
    require_dtypes("rms_norm_backward", "x", x, FLOATS)
    require_same_dtype("rms_norm_backward", [grad, x])
    require_shape("rms_norm_backward", "grad", grad, x.shape)
    leading, trailing = split_trailing("rms_norm_backward", x.shape, 1)
    require_shape("rms_norm_backward", "rstd", rstd, leading)
    if weight is not None:
        require_shape("rms_norm_backward", "weight", weight, trailing)
    return [x, TensorSpec(trailing, x.dtype if weight is None else weight.dtype)]


def _backward_reference(arrays: Arrays, _attrs: Attrs) -> list[np.ndarray]:
    grad, x, rstd, weight = arrays
    grad, x, rstd = real(grad), real(x), real(rstd)[..., None]
    with np.errstate(all="ignore"):
        xhat = x * rstd
        g = grad if weight is None else grad * real(weight)
        dx = rstd * (g - xhat * ((g * xhat).sum(-1, keepdims=True) / float(x.shape[-1])))
        dweight = (grad * xhat).reshape(-1, x.shape[-1]).sum(0)
    return [dx, dweight]


@jit
def rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, rstd_ptr, rows,
    EPS: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Contiguous rows of N; ROWS of them per program, each in two passes."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    columns = tl.arange(0, BLOCK)
    for row in range(first, min(first + ROWS, rows)):
        squares = tl.zeros((BLOCK,), ACC)
        for start in range(0, N, BLOCK):
            mask = start + columns < N
            x = tl.load(x_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
            squares += x * x
        rstd = 1.0 / tl.sqrt(tl.sum(squares, 0) * (1.0 / N) + EPS)
        for start in range(0, N, BLOCK):
            mask = start + columns < N
            y = tl.load(x_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC) * rstd
            if weight_ptr is not None:
                y = y * tl.load(weight_ptr + start + columns, mask=mask, other=0.0).to(ACC)
            tl.store(out_ptr + row * N + start + columns, y, mask=mask)
        tl.store(rstd_ptr + row, rstd)


def _plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    x, weight = views
    width = x.shape[-1]
    rows = outs[1].size
    if rows == 0:
        return Plan(())
    per_program = rows_per_program(rows, width)
    args = {
        "x_ptr": inputs(0), "weight_ptr": optional_input(weight, 1), "out_ptr": outputs(0),
        "rstd_ptr": outputs(1), "rows": rows, "EPS": float(attrs["eps"]), "N": width,
        "ROWS": per_program, "BLOCK": row_block(width, target), "ACC": accumulate_type(x.dtype),
    }  # fmt: skip
    return Plan((Launch(rms_norm_kernel, args, (ceil_div(rows, per_program), 1, 1)),))


def _backward_plan(
    views: Sequence[Any], outs: Sequence[View], _attrs: Attrs, target: TargetDescription
) -> Plan:
    _, x, _, weight = views
    slots = {
        "grad_ptr": inputs(0), "x_ptr": inputs(1), "mean_ptr": None, "rstd_ptr": inputs(2),
        "weight_ptr": optional_input(weight, 3), "dx_ptr": outputs(0),
    }  # fmt: skip
    return norm_backward_plan(x, x.shape[-1:], slots, outs[1:], target)


register(
    Operator(
        name="rms_norm",
        doc=__doc__ or "",
        inputs=("x", "weight?"),
        infer=_infer,
        reference=_reference,
        plan=_plan,
        cost=cost_of(5),
        attrs={"eps": 1e-6},
        tolerance=tolerances(16, "a sum of squares, a root, two products"),
        gradient="rms_norm_backward",
        nan="a row with NaN is NaN, its statistic too",
        inplace={0: (0,)},
    )
)
register(
    Operator(
        name="rms_norm_backward",
        doc="dx, dweight of rms_norm; the sum over rows is taken in fixed chunks.",
        inputs=("grad", "x", "rstd", "weight?"),
        infer=_backward_infer,
        reference=_backward_reference,
        plan=_backward_plan,
        cost=cost_of(10),
        tolerance=tolerances(
            32, "sums over rows and columns of terms of magnitude 1: absolute", absolute_ulps=256
        ),
        gradient="none",
        nan="NaN in a row: dx of that row and dweight are NaN",
        empty="a zero gradient of weight without rows",
        inplace={0: (0, 1)},
    )
)
