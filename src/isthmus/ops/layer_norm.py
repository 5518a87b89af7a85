"""Layer norm over the trailing `axes` dimensions, with its gradient.

y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)

dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),  g = grad * weight, xhat = (x - mean) * rstd
dweight = sum over rows of grad * xhat,  dbias = sum over rows of grad

Shapes: x [.., D]; weight and bias [D]; mean and rstd [..]. D may be several dimensions.
Types:  floats; statistics in f32 (f64 for f64). The variance is taken about the mean, in a
        second pass over the row: never E[x^2] - E[x]^2.
Cost:   about 8 flops per element forward, 14 backward.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.core.errors import ShapeError
from isthmus.ops.rules import (
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
from isthmus.ops.standard import Attrs, Operator, TensorSpec, register

__all__ = ["split_trailing"]


Shape = tuple[int, ...]


def split_trailing(op: str, shape: Sequence[int], axes: int) -> tuple[Shape, Shape]:
    """(leading, trailing) parts of a shape, the trailing one of `axes` dimensions."""
    if not 1 <= axes <= len(shape):
        raise ShapeError(f"{op}: axes is {axes}; it must be within 1 and {len(shape)}")
    return tuple(shape[: len(shape) - axes]), tuple(shape[len(shape) - axes :])


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
    return array.reshape(*array.shape[: array.ndim - axes], -1)


def _reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x, weight, bias = (None if array is None else real(array) for array in arrays)
    assert x is not None, "checked by the register"
    rows = _rows(x, attrs["axes"])
    with np.errstate(all="ignore"):
        count = float(rows.shape[-1])
        mean = rows.sum(-1, keepdims=True) / count
        centred = rows - mean
        rstd = 1.0 / np.sqrt((centred**2).sum(-1, keepdims=True) / count + attrs["eps"])
        out = centred * rstd
        if weight is not None:
            out = out * weight.reshape(-1)
        if bias is not None:
            out = out + bias.reshape(-1)
    return [out.reshape(x.shape), mean[..., 0], rstd[..., 0]]


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


_NAN = "a row with NaN is NaN, its statistics too"
register(
    Operator(
        name="layer_norm",
        doc=__doc__ or "",
        inputs=("x", "weight?", "bias?"),
        infer=_infer,
        reference=_reference,
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
