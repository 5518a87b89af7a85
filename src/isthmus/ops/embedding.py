"""Rows of a table by index, and the gradient of the table.

embedding           out[.., :] = weight[index[..], :]
embedding_backward  dweight[v, :] = sum over positions with index == v of grad[.., :]

Every row of dweight is summed in the order of the positions by one program: the result does not
depend on threads or runs. An index outside [0, V) gives NaN forward and is left out backward;
positions with padding_idx (>= 0) are left out backward.

Shapes: weight [V, D]; index any shape, i64; out index.shape + [D].
"""

from __future__ import annotations

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
    require_shape,
    tolerances,
)
from isthmus.ops.standard import REQUIRED, Attrs, Operator, TensorSpec, register

__all__: list[str] = []


def _infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    weight, index = specs
    require_dtypes("embedding", "weight", weight, FLOATS)
    require_dtypes("embedding", "index", index, ("i64",))
    if len(weight.shape) != 2:
        raise ShapeError(f"embedding: weight has shape {list(weight.shape)}, expected [V, D]")
    return [TensorSpec((*index.shape, weight.shape[1]), weight.dtype)]


def _reference(arrays: Arrays, _attrs: Attrs) -> list[np.ndarray]:
    weight, index = real(arrays[0]), np.asarray(arrays[1], np.int64)
    valid = (index >= 0) & (index < weight.shape[0])
    out = np.full((*index.shape, weight.shape[1]), np.nan)
    out[valid] = weight[index[valid]]
    return [out]


def _backward_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    grad, index = specs
    require_dtypes("embedding_backward", "grad", grad, FLOATS)
    require_dtypes("embedding_backward", "index", index, ("i64",))
    if not grad.shape:
        raise ShapeError("embedding_backward: grad has no dimensions, expected index.shape + [D]")
    require_shape("embedding_backward", "grad", grad, (*index.shape, grad.shape[-1]))
    return [TensorSpec((attrs["rows"], grad.shape[-1]), grad.dtype)]


def _backward_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, index = real(arrays[0]), np.asarray(arrays[1], np.int64).reshape(-1)
    grad = grad.reshape(index.size, grad.shape[-1])
    out = np.zeros((attrs["rows"], grad.shape[-1]))
    kept = (index >= 0) & (index < attrs["rows"]) & (index != attrs["padding_idx"])
    np.add.at(out, index[kept], grad[kept])
    return [out]


register(
    Operator(
        name="embedding",
        doc=__doc__ or "",
        inputs=("weight", "index"),
        infer=_infer,
        reference=_reference,
        cost=cost_of(0),
        tolerance=tolerances(0, "a copy, exact"),
        gradient="embedding_backward",
        nan="NaN rows are copied; an index outside the table gives NaN",
    )
)
register(
    Operator(
        name="embedding_backward",
        doc="The gradient of the table of an embedding; deterministic.",
        inputs=("grad", "index"),
        infer=_backward_infer,
        reference=_backward_reference,
        cost=cost_of(lambda specs, _outputs, _attrs: prod(specs[0].shape)),
        attrs={"rows": REQUIRED, "padding_idx": -1},
        tolerance=tolerances(
            8, "a sum of one term per use of the row, in order", absolute_ulps=1024
        ),
        gradient="none",
        nan="NaN in grad reaches the row of its index only",
        empty="zeros without positions",
    )
)
