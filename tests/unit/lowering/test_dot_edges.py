"""Products of masked operands: what lies behind an operand in memory never reaches the result."""

from __future__ import annotations

import numpy as np
import pytest

import isthmus
import isthmus.language as tl


@isthmus.jit
def product_kernel(
    a_ptr, b_ptr, out_ptr, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, LEFT: tl.constexpr,
):  # fmt: skip
    i, j, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    inside = depth[None, :] < k
    a = tl.load(a_ptr + i[:, None] * k + depth[None, :], mask=(i[:, None] < m) & inside, other=0)
    b = tl.load(b_ptr + j[:, None] * k + depth[None, :], mask=(j[:, None] < n) & inside, other=0)
    if LEFT:
        out = tl.dot(a, tl.trans(b))
        mask = (i[:, None] < m) & (j[None, :] < n)
        tl.store(out_ptr + i[:, None] * n + j[None, :], out, mask=mask)
    else:
        out = tl.dot(b, tl.trans(a))
        mask = (j[:, None] < n) & (i[None, :] < m)
        tl.store(out_ptr + i[None, :] * n + j[:, None], out, mask=mask)


def amid_nan(rows: int, columns: int) -> np.ndarray:
    """A matrix of ones with NaN before and behind it in memory."""
    memory = np.full(rows * columns + 4096, np.nan, np.float32)
    matrix = memory[2048 : 2048 + rows * columns].reshape(rows, columns)
    matrix[...] = 1
    return matrix


@pytest.mark.parametrize("m", [1, 3, 16, 64])
@pytest.mark.parametrize("n", [1, 3, 16])
@pytest.mark.parametrize("k", [1, 16, 17, 31])
@pytest.mark.parametrize("left", [True, False])
def test_nothing_behind_an_operand_is_multiplied(m, n, k, left):
    out = np.zeros((m, n), np.float32)
    sizes = {"M": m, "N": n, "K": k}
    blocks = {name: isthmus.next_power_of_2(size) for name, size in sizes.items()}
    product_kernel[(1,)](amid_nan(m, k), amid_nan(n, k), out, m, n, k, **blocks, LEFT=left)
    np.testing.assert_array_equal(out, np.full((m, n), k, np.float32))
