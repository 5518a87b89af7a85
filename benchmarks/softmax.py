"""Softmax over rows of an f32 matrix against PyTorch.

python -m benchmarks.softmax [--json] [--threads 1 2] [--rounds 15]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import isthmus
import isthmus.language as tl
from benchmarks import harness

CASES = [
    {"rows": 4096, "columns": 256},
    {"rows": 2048, "columns": 1000},
    {"rows": 512, "columns": 8192},
]


@isthmus.jit
def softmax_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    """One row per program."""
    offsets = tl.arange(0, BLOCK)
    start = tl.program_id(0) * stride
    mask = offsets < columns
    x = tl.load(x_ptr + start + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + start + offsets, e / tl.sum(e, axis=0), mask=mask)


def _rows(parameters: dict[str, Any]) -> np.ndarray:
    shape = (parameters["rows"], parameters["columns"])
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def isthmus_kernel(parameters: dict[str, Any]) -> Callable[[], object]:
    x = _rows(parameters)
    out = np.empty_like(x)
    rows, columns = x.shape
    block = isthmus.next_power_of_2(columns)
    return lambda: softmax_kernel[(rows,)](x, out, columns, columns, BLOCK=block)


def torch(parameters: dict[str, Any]) -> Callable[[], object]:
    import torch as library

    x = library.from_numpy(_rows(parameters))
    return lambda: library.softmax(x, dim=1)


def main() -> None:
    harness.main(
        "benchmarks.softmax",
        ["isthmus_kernel", "torch"],
        CASES,
        lambda case: 1e-9 * case["rows"] * case["columns"],
        "G/s",
        "softmax over rows of f32",
    )


if __name__ == "__main__":
    main()
