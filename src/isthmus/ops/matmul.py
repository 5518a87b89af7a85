"""Matrix product, batched and broadcast, with an optional bias.

out[.., m, n] = sum_k a[.., m, k] * b[.., k, n] (+ bias[n])

Shapes: a [.., M, K], b [.., K, N]; batch dimensions broadcast; bias [N].
Types:  floats of one dtype, sums in f32 (f64 for f64); i8 times i8 gives i32.
Cost:   2*M*N*K flops per batch.
"""

from __future__ import annotations

import numpy as np

from isthmus.core.dtypes import DTYPES
from isthmus.core.errors import ShapeError
from isthmus.ops.rules import (
    FLOATS,
    Arrays,
    Specs,
    broadcast_shapes,
    cost_of,
    real,
    require_dtypes,
    require_same_dtype,
    require_shape,
    tolerances,
)
from isthmus.ops.standard import Attrs, Operator, TensorSpec, register

__all__: list[str] = []


def _infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    a, b, bias = specs
    require_dtypes("matmul", "a", a, (*FLOATS, "i8"))
    dtype = require_same_dtype("matmul", [a, b])
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul: {list(a.shape)} and {list(b.shape)} do not multiply; "
            "expected [.., M, K] and [.., K, N]"
        )
    batch = broadcast_shapes("matmul", [a.shape[:-2], b.shape[:-2]])
    out = DTYPES["i32"] if dtype.name == "i8" else dtype
    if bias is not None:
        require_dtypes("matmul", "bias", bias, (out.name,))
        require_shape("matmul", "bias", bias, b.shape[-1:])
    return [TensorSpec((*batch, a.shape[-2], b.shape[-1]), out)]


def _reference(arrays: Arrays, _attrs: Attrs) -> list[np.ndarray]:
    a, b, bias = arrays
    if np.asarray(a).dtype.kind == "i":
        out = np.matmul(np.asarray(a, np.int32), np.asarray(b, np.int32))
        return [out if bias is None else out + np.asarray(bias)]
    with np.errstate(all="ignore"):
        out = np.matmul(real(a), real(b))
        return [out if bias is None else out + real(bias)]


def _flops(specs: Specs, outputs: Specs, _attrs: Attrs) -> int:
    return 2 * outputs[0].size * specs[0].shape[-1]


register(
    Operator(
        name="matmul",
        doc=__doc__ or "",
        inputs=("a", "b", "bias?"),
        infer=_infer,
        reference=_reference,
        cost=cost_of(_flops),
        tolerance=tolerances(
            16,
            "sums of up to 4096 products of magnitude 1 in f32 (f64 for f64), blocked",
            absolute_ulps=256,
        ),
        nan="NaN or inf - inf anywhere in a row or column reaches its products",
        empty="zeros (or bias) where K is 0; empty where M, N or a batch is 0",
    )
)
