"""Matrix products and attention."""

from __future__ import annotations

from isthmus.core.errors import CaptureError
from isthmus.program.capture.convert import Converter, rule
from isthmus.program.graph import Value


@rule("mm", "bmm")
def _(c: Converter, a: Value, b: Value) -> Value:
    return c.emit("matmul", a, b)


@rule("addmm", "baddbmm")
def _(c: Converter, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    if beta == 1 and alpha == 1 and bias.spec.shape == (b.spec.shape[-1],):
        return c.emit("matmul", a, b, bias)
    product = c.emit("matmul", a, b)
    dtype = product.spec.dtype
    if alpha != 1:
        product = c.emit("mul", product, c.constant(alpha, dtype))
    if beta == 0:
        return product
    if beta != 1:
        bias = c.emit("mul", bias, c.constant(beta, dtype))
    return c.emit("add", product, bias)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _(c: Converter, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False, *,
      attn_mask: Value | None = None, scale: float | None = None) -> list[Value]:  # fmt: skip
    if dropout:
        raise CaptureError("dropout inside attention has no counterpart", hint="use dropout_p=0.0")
    if attn_mask is None:
        return c.emit_all("attention", (q, k, v), causal=causal, scale=scale)
    scores = c.emit("matmul", q, _turned(c, k))
    scores = c.emit("mul", scores, c.constant(_scale(q, scale), scores.spec.dtype))
    mask = c.broadcast(c.cast(attn_mask, scores.spec.dtype), scores.spec.shape)
    weights = c.emit("softmax", c.emit("add", scores, mask), axis=len(scores.spec.shape) - 1)
    out = c.emit("matmul", weights, v)
    c.attention[out] = weights
    return [out, out]


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def _(c: Converter, grad: Value, q: Value, k: Value, v: Value, out: Value, lse: Value,
      _dropout: float, causal: bool, *, attn_mask: Value | None = None,
      scale: float | None = None) -> list[Value]:  # fmt: skip
    if attn_mask is None:
        given = (grad, q, k, v, out, lse)
        return c.emit_all("attention_backward", given, causal=causal, scale=scale)
    weights = c.attention[out]
    dweights = c.emit("matmul", grad, _turned(c, v))
    dscores = c.emit("softmax_backward", dweights, weights, axis=len(weights.spec.shape) - 1)
    dscores = c.emit("mul", dscores, c.constant(_scale(q, scale), dscores.spec.dtype))
    dq, dk = c.emit("matmul", dscores, k), c.emit("matmul", _turned(c, dscores), q)
    return [dq, dk, c.emit("matmul", _turned(c, weights), grad)]


def _turned(c: Converter, x: Value) -> Value:
    """The last two axes swapped."""
    rank = len(x.spec.shape)
    return c.emit("transpose", x, order=(*range(rank - 2), rank - 1, rank - 2))


def _scale(q: Value, scale: float | None) -> float:
    return q.spec.shape[-1] ** -0.5 if scale is None else scale
