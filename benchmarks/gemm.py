"""f32 matrix products against NumPy (OpenBLAS) and PyTorch.

python -m benchmarks.gemm [--json] [--threads 1 2] [--rounds 15]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import isthmus
import isthmus.language as tl
from benchmarks import harness

BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 256}

CASES = [
    {"m": 1024, "n": 1024, "k": 1024, "layout": "nn"},
    {"m": 1024, "n": 1024, "k": 1024, "layout": "nt"},
    {"m": 1024, "n": 1024, "k": 1024, "layout": "tn"},
    {"m": 2048, "n": 384, "k": 384, "layout": "nn"},
    {"m": 2048, "n": 1536, "k": 384, "layout": "nt"},
    {"m": 384, "n": 1536, "k": 2048, "layout": "tn"},
    {"m": 1000, "n": 1000, "k": 1000, "layout": "nn"},
]


@isthmus.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One block of C per program, with a loop over K."""
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


def _matrices(parameters: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a [M, K], b [K, N], c [M, N]; a "t" in the layout is a matrix stored transposed."""
    generator = np.random.default_rng(0)
    m, n, k = parameters["m"], parameters["n"], parameters["k"]

    def matrix(rows: int, columns: int, order: str) -> np.ndarray:
        if order == "n":
            return generator.standard_normal((rows, columns), dtype=np.float32)
        return generator.standard_normal((columns, rows), dtype=np.float32).T

    layout = parameters["layout"]
    return matrix(m, k, layout[0]), matrix(k, n, layout[1]), np.zeros((m, n), np.float32)


def isthmus_kernel(parameters: dict[str, Any]) -> Callable[[], object]:
    a, b, c = _matrices(parameters)
    (m, k), n = a.shape, b.shape[1]
    strides = [stride // 4 for array in (a, b, c) for stride in array.strides]
    grid = (isthmus.cdiv(n, BLOCKS["BLOCK_N"]), isthmus.cdiv(m, BLOCKS["BLOCK_M"]))

    def call() -> object:
        return gemm_kernel[grid](a, b, c, m, n, k, *strides, **BLOCKS)

    call()
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    return call


def numpy(parameters: dict[str, Any]) -> Callable[[], object]:
    a, b, c = _matrices(parameters)
    return lambda: np.matmul(a, b, out=c)


def torch(parameters: dict[str, Any]) -> Callable[[], object]:
    import torch as library

    a, b, c = (library.from_numpy(array) for array in _matrices(parameters))
    return lambda: library.mm(a, b, out=c)


def main() -> None:
    harness.main(
        "benchmarks.gemm",
        ["isthmus_kernel", "numpy", "torch"],
        CASES,
        lambda case: 2e-9 * case["m"] * case["n"] * case["k"],
        "GFLOP/s",
        "f32 matrix products",
    )


if __name__ == "__main__":
    main()
