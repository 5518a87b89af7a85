"""Matrix product: blocks of C, a loop over K, `tl.dot`. The compiler packs and tiles.

Run it:

    python examples/matmul.py
"""

from __future__ import annotations

import time

import numpy as np

import isthmus
import isthmus.language as tl


@isthmus.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K - k)
        b_mask = (offs_k[:, None] < K - k) & (offs_n[None, :] < N)
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul(a_MK: np.ndarray, b_KN: np.ndarray) -> np.ndarray:
    """a @ b for float32 matrices of any strides."""
    (m, k), n = a_MK.shape, b_KN.shape[1]
    c_MN = np.empty((m, n), dtype=np.float32)
    strides = [stride // 4 for array in (a_MK, b_KN, c_MN) for stride in array.strides]
    block_m, block_n, block_k = 128, 256, 256
    grid = (isthmus.cdiv(n, block_n), isthmus.cdiv(m, block_m))
    matmul_kernel[grid](
        a_MK, b_KN, c_MN, m, n, k, *strides, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k
    )
    return c_MN


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1024, 1024), dtype=np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(matmul(a, b) - exact).max()
    start = time.perf_counter()
    matmul(a, b)
    seconds = time.perf_counter() - start
    print(f"1024 x 1024 x 1024: {2 * 1024**3 / seconds / 1e9:.0f} GFLOP/s, error {error:.1e}")
    assert error < 1e-3, "matmul is wrong"


if __name__ == "__main__":
    main()
