"""Softmax of each row in one pass over memory: load a row, shift, exponentiate, normalise, store.

Run it:

    python examples/softmax.py
"""

from __future__ import annotations

import numpy as np

import isthmus
import isthmus.language as tl


@isthmus.jit
def softmax_kernel(x_ptr, out_ptr, row_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * row_stride + offsets, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    out = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * row_stride + offsets, out, mask=mask)


def softmax(x_RC: np.ndarray) -> np.ndarray:
    """Softmax over the last dimension of a contiguous float32 matrix."""
    rows, columns = x_RC.shape
    out_RC = np.empty_like(x_RC)
    block = isthmus.next_power_of_2(columns)
    softmax_kernel[(rows,)](x_RC, out_RC, columns, columns, BLOCK=block)
    return out_RC


def main() -> None:
    x = np.random.default_rng(0).standard_normal((257, 1000), dtype=np.float32) * 10
    exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    error = np.abs(softmax(x) - exact).max()
    print(f"softmax of {x.shape[0]} rows of {x.shape[1]}: largest error {error:.1e}")
    assert error < 1e-6, "softmax is wrong"


if __name__ == "__main__":
    main()
