"""Kernels from text: built into tile IR, or run on NumPy arrays."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from typing import Any

import numpy as np

import isthmus.language as tl
from isthmus.ir.core import Function
from isthmus.jit.decorator import JitFunction, jit
from isthmus.language.frontend import build

_counter = itertools.count()
#: What `k(...)` receives where a test does not say otherwise.
SIGNATURE = {
    "p": "*f32", "q": "*i32", "h": "*f16", "b": "*bool", "u": "*u32", "n": "i32", "m": "i64",
    "f": "f32", "d": "*f64", "r": "*bf16",
}  # fmt: skip


def module_from(text: str) -> dict[str, Any]:
    """Run Python text in a namespace that knows `tl` and `jit`; its source can be inspected."""
    name = f"<kernels {next(_counter)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"tl": tl, "jit": jit, "__name__": "kernels"}
    exec(compile(text, name, "exec"), scope)
    return scope


def kernel_text(body: str, parameters: str, helpers: str = "") -> str:
    indented = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return f"{textwrap.dedent(helpers).strip()}\n\n@jit\ndef k({parameters}):\n{indented}\n"


def build_body(body: str, helpers: str = "", options: Any = None, **constants: Any) -> Function:
    """Tile IR of a kernel with the parameters of SIGNATURE and constexpr ones as given."""
    names = ", ".join([*SIGNATURE, *(f"{name}: tl.constexpr" for name in constants)])
    kernel = module_from(kernel_text(body, names, helpers))["k"]
    return build(kernel.source, SIGNATURE, constants, options=options)


def run_body(
    body: str, *arrays: np.ndarray, helpers: str = "", grid: Any = (1,), **constants: Any
) -> None:
    """Run a kernel whose parameters are x0, x1, .. for the arrays and constexpr ones as given."""
    names = [f"x{place}" for place in range(len(arrays))]
    parameters = ", ".join([*names, *(f"{name}: tl.constexpr" for name in constants)])
    kernel: JitFunction = module_from(kernel_text(body, parameters, helpers))["k"]
    kernel[grid](*arrays, **constants)


def evaluate(expression: str, *inputs: np.ndarray, out: Any, helpers: str = "") -> np.ndarray:
    """`expression` over blocks a, b, c loaded from 1-D inputs of one power-of-two size."""
    size = inputs[0].size
    loads = "\n".join(f"{'abc'[place]} = tl.load(x{place} + lanes)" for place in range(len(inputs)))
    body = f"lanes = tl.arange(0, {size})\n{loads}\ntl.store(x{len(inputs)} + lanes, {expression})"
    result = np.zeros(size, out)
    run_body(body, *inputs, result, helpers=helpers)
    return result
