"""Layer norm with its backward pass: statistics in two passes, weight gradients by row chunks.

Run it:

    python examples/layer_norm.py
"""

from __future__ import annotations

import numpy as np

import isthmus
import isthmus.language as tl


@isthmus.jit
def forward_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets, mask=mask)
    tl.store(out_ptr + row * columns + offsets, centred * rstd * weight + bias, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@isthmus.jit
def backward_kernel(
    dout_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr,
    rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: ROWS rows of dx, and their share of dweight and dbias as one partial row."""
    chunk = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    dbias = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(chunk * ROWS, min(chunk * ROWS + ROWS, rows)):
        dout = tl.load(dout_ptr + row * columns + offsets, mask=mask, other=0.0)
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        scaled = dout * weight
        mean_scaled = tl.sum(scaled, axis=0) / columns
        mean_product = tl.sum(scaled * normal, axis=0) / columns
        dx = (scaled - mean_scaled - normal * mean_product) * rstd
        tl.store(dx_ptr + row * columns + offsets, dx, mask=mask)
        dweight += dout * normal
        dbias += dout
    tl.store(dweight_ptr + chunk * columns + offsets, dweight, mask=mask)
    tl.store(dbias_ptr + chunk * columns + offsets, dbias, mask=mask)


def layer_norm(x_RC, weight_C, bias_C, eps=1e-5):
    """Normalise each row, scale and shift; gives (out, mean, rstd). Contiguous float32 arrays."""
    rows, columns = x_RC.shape
    out_RC = np.empty_like(x_RC)
    mean_R, rstd_R = np.empty((2, rows), dtype=np.float32)
    block = isthmus.next_power_of_2(columns)
    forward_kernel[(rows,)](
        x_RC, weight_C, bias_C, out_RC, mean_R, rstd_R, columns, eps, BLOCK=block
    )
    return out_RC, mean_R, rstd_R


def layer_norm_backward(dout_RC, x_RC, weight_C, mean_R, rstd_R, rows_per_program=32):
    """Gradients (dx, dweight, dbias) of `layer_norm`."""
    rows, columns = x_RC.shape
    chunks = isthmus.cdiv(rows, rows_per_program)
    dx_RC = np.empty_like(x_RC)
    dweight_PC, dbias_PC = np.empty((2, chunks, columns), dtype=np.float32)
    backward_kernel[(chunks,)](
        dout_RC, x_RC, weight_C, mean_R, rstd_R, dx_RC, dweight_PC, dbias_PC, rows, columns,
        ROWS=rows_per_program, BLOCK=isthmus.next_power_of_2(columns),
    )  # fmt: skip
    return dx_RC, dweight_PC.sum(axis=0), dbias_PC.sum(axis=0)


def exact(x, weight, bias, dout, eps=1e-5):
    """(out, dx, dweight, dbias) in float64."""
    x, weight, bias, dout = (array.astype(np.float64) for array in (x, weight, bias, dout))
    rstd = 1 / np.sqrt(x.var(axis=1, keepdims=True) + eps)
    normal = (x - x.mean(axis=1, keepdims=True)) * rstd
    scaled = dout * weight
    dx = rstd * (
        scaled
        - scaled.mean(axis=1, keepdims=True)
        - normal * (scaled * normal).mean(axis=1, keepdims=True)
    )
    return normal * weight + bias, dx, (dout * normal).sum(axis=0), dout.sum(axis=0)


def main() -> None:
    rng = np.random.default_rng(0)
    x, dout = rng.standard_normal((2, 300, 700), dtype=np.float32)
    weight, bias = rng.standard_normal((2, 700), dtype=np.float32)
    out, mean, rstd = layer_norm(x, weight, bias)
    results = (out, *layer_norm_backward(dout, x, weight, mean, rstd))
    names = ("out", "dx", "dweight", "dbias")
    for name, result, want in zip(names, results, exact(x, weight, bias, dout), strict=True):
        error = np.abs(result - want).max()
        print(f"{name}: largest error {error:.1e}")
        assert error < 2e-4, f"{name} is wrong"


if __name__ == "__main__":
    main()
