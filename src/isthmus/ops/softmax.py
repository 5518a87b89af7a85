"""Softmax and log-softmax along one axis, with their gradients.

softmax      y = exp(x - max) / sum(exp(x - max))
log_softmax  y = x - max - log(sum(exp(x - max)))
softmax_backward      dx = y * (grad - sum(grad * y))
log_softmax_backward  dx = grad - exp(y) * sum(grad)

Shapes: any; every row along `axis` is one problem.
Types: floats; computed in f32 for f16 and bf16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isthmus.ops.rules import (
    FLOATS,
    Arrays,
    Specs,
    cost_of,
    normal_axis,
    real,
    require_dtypes,
    require_same_dtype,
    require_shape,
    tolerances,
)
from isthmus.ops.standard import Attrs, Operator, TensorSpec, register

__all__: list[str] = []


def softmax_reference(x: np.ndarray, axis: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
        return shifted / shifted.sum(axis, keepdims=True)


def log_softmax_reference(x: np.ndarray, axis: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
        return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def _forward_infer(name: str) -> Any:
    def infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
        (x,) = specs
        require_dtypes(name, "x", x, FLOATS)
        normal_axis(name, attrs["axis"], len(x.shape))
        return [x]

    return infer


def _backward_infer(name: str) -> Any:
    def infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
        grad, out = specs
        require_dtypes(name, "grad", grad, FLOATS)
        require_same_dtype(name, [grad, out])
        require_shape(name, "grad", grad, out.shape)
        normal_axis(name, attrs["axis"], len(out.shape))
        return [out]

    return infer


def _softmax(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    return [softmax_reference(real(arrays[0]), attrs["axis"])]


def _log_softmax(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    return [log_softmax_reference(real(arrays[0]), attrs["axis"])]


def _softmax_backward(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, out = map(real, arrays)
    return [out * (grad - (grad * out).sum(attrs["axis"], keepdims=True))]


def _log_softmax_backward(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, out = map(real, arrays)
    return [grad - np.exp(out) * grad.sum(attrs["axis"], keepdims=True)]


_AXIS = {"axis": -1}
_VECTOR = "exp within 2 ULP, a sum of positive terms, one quotient"
register(
    Operator(
        name="softmax",
        doc=__doc__ or "",
        inputs=("x",),
        infer=_forward_infer("softmax"),
        reference=_softmax,
        cost=cost_of(12),
        attrs=_AXIS,
        tolerance=tolerances(32, f"{_VECTOR}; exp of a rounded argument within 16 of 0"),
        gradient="softmax_backward",
        nan="a row with NaN or +inf is NaN; a row of -inf is NaN",
        inplace={0: (0,)},
    )
)
register(
    Operator(
        name="log_softmax",
        doc="x - max - log(sum(exp(x - max))) along one axis.",
        inputs=("x",),
        infer=_forward_infer("log_softmax"),
        reference=_log_softmax,
        cost=cost_of(12),
        attrs=_AXIS,
        tolerance=tolerances(4, _VECTOR, absolute_ulps=8),
        gradient="log_softmax_backward",
        nan="a row with NaN or +inf is NaN; a row of -inf is NaN",
        inplace={0: (0,)},
    )
)
register(
    Operator(
        name="softmax_backward",
        doc="out * (grad - sum(grad * out)) along one axis.",
        inputs=("grad", "out"),
        infer=_backward_infer("softmax_backward"),
        reference=_softmax_backward,
        cost=cost_of(5),
        attrs=_AXIS,
        tolerance=tolerances(8, "a sum of products, then a difference: absolute", absolute_ulps=8),
        nan="a row with NaN is NaN",
        inplace={0: (0, 1)},
    )
)
register(
    Operator(
        name="log_softmax_backward",
        doc="grad - exp(out) * sum(grad) along one axis.",
        inputs=("grad", "out"),
        infer=_backward_infer("log_softmax_backward"),
        reference=_log_softmax_backward,
        cost=cost_of(10),
        attrs=_AXIS,
        tolerance=tolerances(8, "a sum, then a difference: absolute", absolute_ulps=64),
        nan="a row with NaN is NaN",
        inplace={0: (0, 1)},
    )
)
