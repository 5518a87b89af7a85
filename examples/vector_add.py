"""Vector addition: the smallest kernel.

Run it:

    python examples/vector_add.py
"""

from __future__ import annotations

import numpy as np

import isthmus
import isthmus.language as tl


@isthmus.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(x_N: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    """x + y for contiguous arrays of one shape and dtype."""
    out_N = np.empty_like(x_N)
    n = x_N.size
    add_kernel[(isthmus.cdiv(n, 4096),)](x_N, y_N, out_N, n, BLOCK=4096)
    return out_N


def main() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 100_003), dtype=np.float32)
    np.testing.assert_array_equal(add(x, y), x + y)
    print(f"added {x.size} numbers; equal to NumPy bit for bit")


if __name__ == "__main__":
    main()
