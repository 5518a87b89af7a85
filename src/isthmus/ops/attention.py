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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.errors import ShapeError
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    ACCUMULATE,
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
    block_size,
    ceil_div,
    divide,
    inputs,
    outputs,
    workspace,
)
from isthmus.ops.standard import Attrs, Launch, Operator, Plan, TensorSpec, View, register

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

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
        shift = top if k.shape[2] else np.zeros_like(top)
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


LN_2 = tl.constexpr(0.6931471805599453)
LOG2_E = tl.constexpr(1.4426950408889634)


@jit
def load_block(pointer, lines, count, stride_line, stride_d, D: tl.constexpr, ACC: tl.constexpr):
    """[BLOCK, D] rows of a strided matrix; rows from `count` on are 0."""
    columns = tl.arange(0, D).to(tl.int64)[None, :]
    offsets = lines[:, None] * stride_line + columns * stride_d
    return tl.load(pointer + offsets, mask=(lines < count)[:, None], other=0.0).to(ACC)


@jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, T, S, heads, group,
    stride_qb, stride_qh, stride_qt, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """BLOCK_T queries of one head per program: one pass over the keys with a running softmax.

    Scores are in units of log 2, so that exp2 serves. The longest programs (causal) come first.
    """
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    k_ptr += batch * stride_kb + (head // group) * stride_kh
    v_ptr += batch * stride_vb + (head // group) * stride_vh
    queries = (block * BLOCK_T + tl.arange(0, BLOCK_T)).to(tl.int64)
    q = load_block(q_ptr + batch * stride_qb + head * stride_qh, queries, T, stride_qt, stride_qd,
                   D, ACC) * (SCALE * LOG2_E)  # fmt: skip
    top = tl.full((BLOCK_T,), float("-inf"), ACC)
    total = tl.zeros((BLOCK_T,), ACC)
    acc = tl.zeros((BLOCK_T, D), ACC)
    end = S
    if CAUSAL:
        end = min(S, (block + 1) * BLOCK_T)
    for start in range(0, end, BLOCK_S):
        keys = (start + tl.arange(0, BLOCK_S)).to(tl.int64)
        k = load_block(k_ptr, keys, S, stride_ks, stride_kd, D, ACC)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        hidden = (keys >= S)[None, :]
        if CAUSAL:
            hidden = hidden | (keys[None, :] > queries[:, None])
        scores = tl.where(hidden, float("-inf"), scores)
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        fade = tl.exp2(top - new_top)
        total = total * fade + tl.sum(weights, 1)
        v = load_block(v_ptr, keys, S, stride_vs, stride_vd, D, ACC)
        acc = tl.dot(weights, v, acc * fade[:, None], input_precision="ieee")
        top = new_top
    lines = tl.program_id(1).to(tl.int64) * T + queries
    columns = tl.arange(0, D)[None, :]
    shares = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out_ptr + lines[:, None] * D + columns, shares, mask=(queries < T)[:, None])
    tl.store(lse_ptr + lines, (top + tl.log2(total)) * LN_2, mask=queries < T)


@jit
def attention_delta_kernel(
    grad_ptr, out_ptr, delta_ptr, T, heads,
    stride_gb, stride_gh, stride_gt, stride_gd, stride_ob, stride_oh, stride_ot, stride_od,
    D: tl.constexpr, ROWS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """delta = sum of grad * out over the head width, for ROWS queries of one head per program."""
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    queries = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    grad = load_block(grad_ptr + batch * stride_gb + head * stride_gh, queries, T, stride_gt,
                      stride_gd, D, ACC)  # fmt: skip
    out = load_block(out_ptr + batch * stride_ob + head * stride_oh, queries, T, stride_ot,
                     stride_od, D, ACC)  # fmt: skip
    lines = tl.program_id(1).to(tl.int64) * T + queries
    tl.store(delta_ptr + lines, tl.sum(grad * out, 1), mask=queries < T)


@jit
def attention_backward_q_kernel(
    grad_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, dq_ptr, T, S, heads, group,
    stride_gb, stride_gh, stride_gt, stride_gd,
    stride_qb, stride_qh, stride_qt, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """dq of BLOCK_T queries of one head per program."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    k_ptr += batch * stride_kb + (head // group) * stride_kh
    v_ptr += batch * stride_vb + (head // group) * stride_vh
    queries = (block * BLOCK_T + tl.arange(0, BLOCK_T)).to(tl.int64)
    q = load_block(q_ptr + batch * stride_qb + head * stride_qh, queries, T, stride_qt, stride_qd,
                   D, ACC) * (SCALE * LOG2_E)  # fmt: skip
    grad = load_block(grad_ptr + batch * stride_gb + head * stride_gh, queries, T, stride_gt,
                      stride_gd, D, ACC)  # fmt: skip
    lines = tl.program_id(1).to(tl.int64) * T + queries
    lse = tl.load(lse_ptr + lines, mask=queries < T, other=0.0) * LOG2_E
    delta = tl.load(delta_ptr + lines, mask=queries < T, other=0.0)
    acc = tl.zeros((BLOCK_T, D), ACC)
    end = S
    if CAUSAL:
        end = min(S, (block + 1) * BLOCK_T)
    for start in range(0, end, BLOCK_S):
        keys = (start + tl.arange(0, BLOCK_S)).to(tl.int64)
        k = load_block(k_ptr, keys, S, stride_ks, stride_kd, D, ACC)
        v = load_block(v_ptr, keys, S, stride_vs, stride_vd, D, ACC)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        hidden = (keys >= S)[None, :]
        if CAUSAL:
            hidden = hidden | (keys[None, :] > queries[:, None])
        p = tl.where(hidden, 0.0, tl.exp2(scores - lse[:, None]))
        slopes = p * (tl.dot(grad, tl.trans(v), input_precision="ieee") - delta[:, None])
        acc = tl.dot(slopes, k, acc, input_precision="ieee")
    columns = tl.arange(0, D)[None, :]
    tl.store(dq_ptr + lines[:, None] * D + columns, acc * SCALE, mask=(queries < T)[:, None])


@jit
def attention_backward_kv_kernel(
    grad_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, T, S, heads, group,
    stride_gb, stride_gh, stride_gt, stride_gd,
    stride_qb, stride_qh, stride_qt, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """dk and dv of BLOCK_S keys of one key head per program, over all query heads that read it.

    Blocks are [keys, queries], so that the products need no transposed scores.
    """
    key_heads = heads // group
    batch = (tl.program_id(1) // key_heads).to(tl.int64)
    key_head = (tl.program_id(1) % key_heads).to(tl.int64)
    first = tl.program_id(0) * BLOCK_S
    keys = (first + tl.arange(0, BLOCK_S)).to(tl.int64)
    k = load_block(k_ptr + batch * stride_kb + key_head * stride_kh, keys, S, stride_ks, stride_kd,
                   D, ACC) * (SCALE * LOG2_E)  # fmt: skip
    v = load_block(v_ptr + batch * stride_vb + key_head * stride_vh, keys, S, stride_vs, stride_vd,
                   D, ACC)  # fmt: skip
    dk = tl.zeros((BLOCK_S, D), ACC)
    dv = tl.zeros((BLOCK_S, D), ACC)
    low = 0
    if CAUSAL:
        low = first // BLOCK_T * BLOCK_T
    for member in range(group):
        head = key_head * group + member
        q_head = q_ptr + batch * stride_qb + head * stride_qh
        grad_head = grad_ptr + batch * stride_gb + head * stride_gh
        line = (batch * heads + head) * T
        for start in range(low, T, BLOCK_T):
            queries = (start + tl.arange(0, BLOCK_T)).to(tl.int64)
            q = load_block(q_head, queries, T, stride_qt, stride_qd, D, ACC)
            grad = load_block(grad_head, queries, T, stride_gt, stride_gd, D, ACC)
            lse = tl.load(lse_ptr + line + queries, mask=queries < T, other=0.0) * LOG2_E
            delta = tl.load(delta_ptr + line + queries, mask=queries < T, other=0.0)
            scores = tl.dot(k, tl.trans(q), input_precision="ieee")
            hidden = (queries >= T)[None, :] | (keys >= S)[:, None]
            if CAUSAL:
                hidden = hidden | (keys[:, None] > queries[None, :])
            p = tl.where(hidden, 0.0, tl.exp2(scores - lse[None, :]))
            dv = tl.dot(p, grad, dv, input_precision="ieee")
            slopes = p * (tl.dot(v, tl.trans(grad), input_precision="ieee") - delta[None, :])
            dk = tl.dot(slopes, q, dk, input_precision="ieee")
    lines = tl.program_id(1).to(tl.int64) * S + keys
    columns = tl.arange(0, D)[None, :]
    mask = (keys < S)[:, None]
    tl.store(dk_ptr + lines[:, None] * D + columns, dk * SCALE, mask=mask)
    tl.store(dv_ptr + lines[:, None] * D + columns, dv, mask=mask)


@jit
def attention_backward_kernel(
    grad_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, sum_ptr, dq_ptr, dk_ptr, dv_ptr,
    T, S, heads, group,
    stride_gb, stride_gh, stride_gt, stride_gd,
    stride_qb, stride_qh, stride_qt, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, D: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """dq, dk and dv of one key head per program: five products a block, where two kernels would
    need seven.

    dq is added up in memory, in sum_ptr, in the order of the key blocks; sum_ptr is dq_ptr itself
    where that has the type of the sums. Blocks are [keys, queries].
    """
    key_heads = heads // group
    batch = (tl.program_id(0) // key_heads).to(tl.int64)
    key_head = (tl.program_id(0) % key_heads).to(tl.int64)
    first_line = (batch * heads + key_head * group) * T
    columns = tl.arange(0, D)[None, :]
    for start in range(0, T * group, BLOCK_T):
        queries = (start + tl.arange(0, BLOCK_T)).to(tl.int64)
        tl.store(sum_ptr + (first_line + queries)[:, None] * D + columns,
                 tl.zeros((BLOCK_T, D), ACC), mask=(queries < T * group)[:, None])  # fmt: skip
    for first in range(0, S, BLOCK_S):
        keys = (first + tl.arange(0, BLOCK_S)).to(tl.int64)
        k = load_block(k_ptr + batch * stride_kb + key_head * stride_kh, keys, S, stride_ks,
                       stride_kd, D, ACC) * (SCALE * LOG2_E)  # fmt: skip
        v = load_block(v_ptr + batch * stride_vb + key_head * stride_vh, keys, S, stride_vs,
                       stride_vd, D, ACC)  # fmt: skip
        dk = tl.zeros((BLOCK_S, D), ACC)
        dv = tl.zeros((BLOCK_S, D), ACC)
        low = 0
        if CAUSAL:
            low = first // BLOCK_T * BLOCK_T
        for member in range(group):
            q_head = q_ptr + batch * stride_qb + (key_head * group + member) * stride_qh
            grad_head = grad_ptr + batch * stride_gb + (key_head * group + member) * stride_gh
            line = first_line + member * T
            for start in range(low, T, BLOCK_T):
                queries = (start + tl.arange(0, BLOCK_T)).to(tl.int64)
                inside = queries < T
                q = load_block(q_head, queries, T, stride_qt, stride_qd, D, ACC)
                grad = load_block(grad_head, queries, T, stride_gt, stride_gd, D, ACC)
                lse = tl.load(lse_ptr + line + queries, mask=inside, other=0.0) * LOG2_E
                delta = tl.load(delta_ptr + line + queries, mask=inside, other=0.0)
                scores = tl.dot(k, tl.trans(q), input_precision="ieee")
                hidden = (queries >= T)[None, :] | (keys >= S)[:, None]
                if CAUSAL:
                    hidden = hidden | (keys[:, None] > queries[None, :])
                p = tl.where(hidden, 0.0, tl.exp2(scores - lse[None, :]))
                dv = tl.dot(p, grad, dv, input_precision="ieee")
                slopes = p * (tl.dot(v, tl.trans(grad), input_precision="ieee") - delta[None, :])
                dk = tl.dot(slopes, q, dk, input_precision="ieee")
                part = tl.dot(tl.trans(slopes), k, input_precision="ieee") * LN_2
                sums = sum_ptr + (line + queries)[:, None] * D + columns
                before = tl.load(sums, mask=inside[:, None], other=0.0)
                tl.store(sums, before + part, mask=inside[:, None])
        lines = tl.program_id(0).to(tl.int64) * S + keys
        mask = (keys < S)[:, None]
        tl.store(dk_ptr + lines[:, None] * D + columns, dk * SCALE, mask=mask)
        tl.store(dv_ptr + lines[:, None] * D + columns, dv, mask=mask)
    if dq_ptr is not None:
        for start in range(0, T * group, BLOCK_T):
            queries = (start + tl.arange(0, BLOCK_T)).to(tl.int64)
            inside = (queries < T * group)[:, None]
            places = (first_line + queries)[:, None] * D + columns
            tl.store(dq_ptr + places, tl.load(sum_ptr + places, mask=inside), mask=inside)


def _strides(letter: str, line: str, view: View) -> dict[str, int]:
    names = (f"stride_{letter}{axis}" for axis in ("b", "h", line, "d"))
    return dict(zip(names, view.strides, strict=True))


def _common(q: View, k: View, attrs: Attrs, target: TargetDescription) -> dict[str, Any]:
    _, heads, queries, width = q.shape
    keys = k.shape[2]
    return {
        "T": queries, "S": keys, "heads": heads, "group": heads // k.shape[1],
        "SCALE": _scale(attrs, width), "CAUSAL": bool(attrs["causal"]), "D": width,
        "BLOCK_T": block_size(queries, divide(queries, 64, 16), target),
        "BLOCK_S": block_size(keys, divide(keys, 64, 16), target),
        "ACC": accumulate_type(q.dtype),
    }  # fmt: skip


def _plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    q, k, v = views
    batch, heads, queries, _ = q.shape
    if outs[0].size == 0:
        return Plan(())
    args = {
        "q_ptr": inputs(0), "k_ptr": inputs(1), "v_ptr": inputs(2), "out_ptr": outputs(0),
        "lse_ptr": outputs(1), **_common(q, k, attrs, target), **_strides("q", "t", q),
        **_strides("k", "s", k), **_strides("v", "s", v),
    }  # fmt: skip
    grid = (ceil_div(queries, args["BLOCK_T"]), batch * heads, 1)
    return Plan((Launch(attention_kernel, args, grid),))


#: From so many key heads in a batch on, the gradient takes one program for each of them.
WHOLE_HEADS = 16


def _backward_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    grad, q, k, v, out, _ = views
    batch, heads, queries, width = q.shape
    key_heads, keys = k.shape[1:3]
    common = _common(q, k, attrs, target)
    statistics = ACCUMULATE[q.dtype.name]
    delta = workspace(0, statistics)
    launches = []
    if q.size:
        rows = block_size(queries, divide(queries, 256), target)
        args = {
            "grad_ptr": inputs(0), "out_ptr": inputs(4), "delta_ptr": delta, "T": queries,
            "heads": heads, **_strides("g", "t", grad), **_strides("o", "t", out), "D": width,
            "ROWS": rows, "ACC": common["ACC"],
        }  # fmt: skip
        grid = (ceil_div(queries, rows), batch * heads, 1)
        launches.append(Launch(attention_delta_kernel, args, grid))
    shared = {
        "grad_ptr": inputs(0), "q_ptr": inputs(1), "k_ptr": inputs(2), "v_ptr": inputs(3),
        "lse_ptr": inputs(5), "delta_ptr": delta, **common, **_strides("g", "t", grad),
        **_strides("q", "t", q), **_strides("k", "s", k), **_strides("v", "s", v),
    }  # fmt: skip
    space = batch * heads * max(queries, 1) * statistics.size_bytes
    if q.size and k.size and batch * key_heads >= WHOLE_HEADS:
        apart = statistics is not q.dtype
        args = {
            **shared, "sum_ptr": workspace(1, statistics) if apart else outputs(0),
            "dq_ptr": outputs(0) if apart else None, "dk_ptr": outputs(1), "dv_ptr": outputs(2),
        }  # fmt: skip
        launches.append(Launch(attention_backward_kernel, args, (batch * key_heads, 1, 1)))
        return Plan(tuple(launches), (space, q.size * statistics.size_bytes) if apart else (space,))
    if q.size:
        grid = (ceil_div(queries, common["BLOCK_T"]), batch * heads, 1)
        launches.append(Launch(attention_backward_q_kernel, {**shared, "dq_ptr": outputs(0)}, grid))
    if k.size:
        grid = (ceil_div(keys, common["BLOCK_S"]), batch * key_heads, 1)
        args = {**shared, "dk_ptr": outputs(1), "dv_ptr": outputs(2)}
        launches.append(Launch(attention_backward_kv_kernel, args, grid))
    return Plan(tuple(launches), (max(space, 8),))


_ATTRS = {"causal": False, "scale": None}
register(
    Operator(
        name="attention",
        doc=__doc__ or "",
        inputs=("q", "k", "v"),
        infer=_infer,
        reference=_reference,
        plan=_plan,
        strided_inputs=(0, 1, 2),
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
        plan=_backward_plan,
        strided_inputs=(0, 1, 2, 3, 4),
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
