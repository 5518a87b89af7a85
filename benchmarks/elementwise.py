"""Element-wise functions of f32 arrays against NumPy and PyTorch.

python -m benchmarks.elementwise [--json] [--threads 1 2] [--rounds 15]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import isthmus
import isthmus.language as tl
from benchmarks import harness

#: One size that stays in the second cache and one that does not fit in any.
CASES = [
    {"function": function, "elements": elements}
    for elements in (1 << 16, 1 << 24)
    for function in ("add", "exp", "tanh", "erf", "gelu")
]


@isthmus.jit
def elementwise_kernel(
    x_ptr, y_ptr, out_ptr, elements, FUNCTION: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """out = FUNCTION(x) or x + y."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < elements
    x = tl.load(x_ptr + offsets, mask=mask)
    if FUNCTION == "add":
        y = tl.load(y_ptr + offsets, mask=mask)
        result = x + y
    elif FUNCTION == "exp":
        result = tl.exp(x)
    elif FUNCTION == "tanh":
        result = tl.math.tanh(x)
    elif FUNCTION == "erf":
        result = tl.erf(x)
    else:
        result = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + offsets, result, mask=mask)


def _arrays(parameters: dict[str, Any]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    shape = (3, parameters["elements"])
    return list(generator.standard_normal(shape, dtype=np.float32))


def isthmus_kernel(parameters: dict[str, Any]) -> Callable[[], object]:
    x, y, out = _arrays(parameters)
    elements, block = x.size, 8192
    grid = (isthmus.cdiv(elements, block),)
    return lambda: elementwise_kernel[grid](
        x, y, out, elements, FUNCTION=parameters["function"], BLOCK=block
    )


def numpy(parameters: dict[str, Any]) -> Callable[[], object]:
    """Without erf, which NumPy lacks: there tanh stands in."""
    x, y, out = _arrays(parameters)
    function = parameters["function"]
    if function == "add":
        return lambda: np.add(x, y, out=out)
    if function == "exp":
        return lambda: np.exp(x, out=out)
    return lambda: np.tanh(x, out=out)


def torch(parameters: dict[str, Any]) -> Callable[[], object]:
    import torch as library

    x, y, out = (library.from_numpy(array) for array in _arrays(parameters))
    function = parameters["function"]
    if function == "add":
        return lambda: library.add(x, y, out=out)
    if function == "gelu":
        return lambda: library.nn.functional.gelu(x)
    return lambda: getattr(library, function)(x, out=out)


def main() -> None:
    harness.main(
        "benchmarks.elementwise",
        ["isthmus_kernel", "numpy", "torch"],
        CASES,
        lambda case: 1e-9 * case["elements"],
        "G/s",
        "element-wise functions of f32",
    )


if __name__ == "__main__":
    main()
