"""Scaled dot-product attention, with its gradient: softmax(scale * q k^T) v, never stored whole.

lse_t = log(sum_s exp(scale * q_t.k_s)),  p_ts = exp(scale * q_t.k_s - lse_t)
out_t = sum_s p_ts v_s

delta_t = grad_t . out_t
ds_ts   = p_ts * (grad_t . v_s - delta_t)
dq_t = scale * sum_s ds_ts k_s,  dk_s = scale * sum_t ds_ts q_t,  dv_s = sum_t p_ts grad_t

Shapes: q [B, H, T, D]; k, v [B, Hk, S, D] with H a multiple of Hk: query head h reads key head
        h // (H / Hk); out [B, H, T, D]; lse [B, H, T].
Types:  floats of one dtype; computed in f32 (f64 for f64); lse in the statistics dtype.
causal: position t sees positions s <= t (counted from the start of both).
scale:  None is 1 / sqrt(D).
"""

from __future__ import annotations

import math

import numpy as np

from isthmus.core.errors import ShapeError
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


def _check(op: str, q: TensorSpec, k: TensorSpec, v: TensorSpec) -> None:
    require_dtypes(op, "q", q, FLOATS)
    require_same_dtype(op, [q, k, v])
    if len(q.shape) != 4 or len(k.shape) != 4:
        raise ShapeError(
            f"{op}: q {list(q.shape)}, k {list(k.shape)}; expected [B, H, T, D] and [B, Hk, S, D]"
        )
    require_shape(op, "v", v, k.shape)
    batch, heads, _, width = q.shape
    key_heads = k.shape[1]
    if (batch, width) != (k.shape[0], k.shape[3]) or (heads % key_heads if key_heads else heads):
        raise ShapeError(
            f"{op}: q {list(q.shape)} and k {list(k.shape)} do not fit: batch and head width must "
            "be equal and the heads of q a multiple of those of k"
        )


def _infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    q, k, v = specs
    _check("attention", q, k, v)
    return [q, TensorSpec(q.shape[:3], statistics_dtype(q.dtype))]


def _scale(attrs: Attrs, width: int) -> float:
    given = attrs["scale"]
    return 1.0 / math.sqrt(max(width, 1)) if given is None else float(given)


def _scores(q: np.ndarray, k: np.ndarray, attrs: Attrs) -> np.ndarray:
    scores = _scale(attrs, q.shape[-1]) * np.matmul(q, np.swapaxes(k, -1, -2))
    if attrs["causal"]:
        hidden = np.arange(k.shape[-2])[None, :] > np.arange(q.shape[-2])[:, None]
        scores = np.where(hidden, -np.inf, scores)
    return scores


def _repeat(array: np.ndarray, heads: int) -> np.ndarray:
    return np.repeat(array, heads // array.shape[1], axis=1) if array.shape[1] else array


def _reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    q, k, v = map(real, arrays)
    k, v = _repeat(k, q.shape[1]), _repeat(v, q.shape[1])
    with np.errstate(all="ignore"):
        scores = _scores(q, k, attrs)
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        shift = np.where(np.isneginf(top), 0.0, top)
        weights = np.exp(scores - shift)
        total = weights.sum(-1, keepdims=True)
        out = np.matmul(weights, v) / np.where(total == 0, 1.0, total)
        lse = (shift + np.log(total))[..., 0]
    return [out, lse]


def _backward_infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    grad, q, k, v, out, lse = specs
    _check("attention_backward", q, k, v)
    require_shape("attention_backward", "grad", grad, q.shape)
    require_shape("attention_backward", "out", out, q.shape)
    require_shape("attention_backward", "lse", lse, q.shape[:3])
    require_same_dtype("attention_backward", [grad, q, out])
    return [q, k, v]


def _backward_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, q, k, v, out, lse = map(real, arrays)
    heads, key_heads = q.shape[1], k.shape[1]
    keys, values = _repeat(k, heads), _repeat(v, heads)
    scale = _scale(attrs, q.shape[-1])
    with np.errstate(all="ignore"):
        p = np.exp(_scores(q, keys, attrs) - lse[..., None])
        delta = (grad * out).sum(-1, keepdims=True)
        ds = p * (np.matmul(grad, np.swapaxes(values, -1, -2)) - delta)
        dq = scale * np.matmul(ds, keys)
        dk = scale * np.matmul(np.swapaxes(ds, -1, -2), q)
        dv = np.matmul(np.swapaxes(p, -1, -2), grad)
    if key_heads and key_heads != heads:
        shape = (k.shape[0], key_heads, heads // key_heads, *k.shape[2:])
        dk, dv = dk.reshape(shape).sum(2), dv.reshape(shape).sum(2)
    return [dq, dk, dv]


def _pairs(q: TensorSpec, k: TensorSpec, attrs: Attrs) -> int:
    """Pairs of a query and a key it sees, over all heads."""
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    if not attrs["causal"]:
        return batch * heads * queries * keys
    full = min(queries, keys)
    return batch * heads * (full * (full + 1) // 2 + max(queries - keys, 0) * keys)


def _flops(specs: Specs, _outputs: Specs, attrs: Attrs) -> int:
    q, k, _ = specs
    return _pairs(q, k, attrs) * (4 * q.shape[3] + 12)


def _backward_flops(specs: Specs, _outputs: Specs, attrs: Attrs) -> int:
    _, q, k, *_ = specs
    return _pairs(q, k, attrs) * (10 * q.shape[3] + 16)


_ATTRS = {"causal": False, "scale": None}
register(
    Operator(
        name="attention",
        doc=__doc__ or "",
        inputs=("q", "k", "v"),
        infer=_infer,
        reference=_reference,
        cost=cost_of(_flops),
        attrs=_ATTRS,
        tolerance=tolerances(
            64,
            "sums of up to 4096 terms weighted by exp of rounded scores",
            absolute_ulps=64,
            half_ulps=2,
        ),
        gradient="attention_backward",
        nan="NaN in a query or in any key or value it sees makes its row NaN",
        empty="no keys: out is 0 and lse -inf",
    )
)
register(
    Operator(
        name="attention_backward",
        doc="dq, dk, dv of attention; scores are computed again from q, k and lse.",
        inputs=("grad", "q", "k", "v", "out", "lse"),
        infer=_backward_infer,
        reference=_backward_reference,
        cost=cost_of(_backward_flops),
        attrs=_ATTRS,
        tolerance=tolerances(
            256,
            "sums over queries or keys of products of rounded terms of magnitude 1",
            absolute_ulps=512,
            half_ulps=4,
        ),
        gradient="none",
        nan="NaN reaches whatever the formula takes it to",
    )
)
