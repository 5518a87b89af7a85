"""RMS norm over the last dimension, with its gradient.

y = x * rstd * weight,  rstd = 1 / sqrt(mean(x^2) + eps)

dx = rstd * (g - xhat * mean(g * xhat)),  g = grad * weight, xhat = x * rstd
dweight = sum over rows of grad * xhat

Shapes: x [.., D]; weight [D]; rstd [..].
Types:  floats; statistics in f32 (f64 for f64).
Source: Zhang and Sennrich 2019, eq. 4.
"""

from __future__ import annotations

import numpy as np

from isthmus.ops.layer_norm import split_trailing
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
from isthmus.ops.standard import Attrs, Operator, TensorSpec, register

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


register(
    Operator(
        name="rms_norm",
        doc=__doc__ or "",
        inputs=("x", "weight?"),
        infer=_infer,
        reference=_reference,
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
