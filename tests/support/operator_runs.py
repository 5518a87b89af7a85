"""Runs one application of an operator through its plan: what the executor does, for one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from isthmus.core.target import TargetDescription
from isthmus.ir.numpy_types import dtype_of, numpy_dtype
from isthmus.jit.decorator import JitFunction
from isthmus.ops.standard import Launch, Operator, Slot, TensorSpec, View

__all__ = ["assert_close", "compiled", "memory_of", "run", "spec_of", "view_of"]

Execute = Callable[[Launch, Mapping[str, Any]], None]


def spec_of(array: np.ndarray | None) -> TensorSpec | None:
    return None if array is None else TensorSpec(array.shape, dtype_of(array))


def memory_of(array: np.ndarray) -> np.ndarray:
    """The elements from an array's first to its last, as one line."""
    if array.size == 0:
        return np.zeros(1, array.dtype)
    last = sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True))
    extent = last // array.itemsize + 1
    return np.lib.stride_tricks.as_strided(array, (extent,), (array.itemsize,), writeable=False)


def view_of(array: np.ndarray) -> View:
    strides = tuple(step // array.itemsize for step in array.strides)
    return View(array.shape, dtype_of(array), strides)


@cache
def _any_block_size(kernel: JitFunction) -> JitFunction:
    return JitFunction(kernel.fn, options={"allow_any_block_size": True})


def compiled(launch: Launch, bound: Mapping[str, Any]) -> None:
    """Compile a launch for this machine and run it."""
    _any_block_size(launch.kernel)[launch.grid](**bound)


GUARD = 0xA5


class Output:
    """An output in row-major order between two guard zones, filled with garbage."""

    def __init__(self, spec: TensorSpec) -> None:
        dtype = numpy_dtype(spec.dtype)
        self.bytes = np.full(spec.size * dtype.itemsize + 128, GUARD, np.uint8)
        self.memory = self.bytes[64 : self.bytes.size - 64].view(dtype)
        self.spec = spec

    def array(self) -> np.ndarray:
        assert (self.bytes[:64] == GUARD).all(), "written before the output"
        assert (self.bytes[-64:] == GUARD).all(), "written behind the output"
        return self.memory.reshape(self.spec.shape)


def run(
    op: Operator, arrays: Sequence[np.ndarray | None], attrs: Mapping[str, Any],
    target: TargetDescription, execute: Execute = compiled, plan: Any = None,
) -> list[np.ndarray]:  # fmt: skip
    """The outputs of one application. `plan` replaces the record's plan."""
    strided = op.strided_inputs
    given = [
        array
        if array is None or strided is None or index in strided or plan is not None
        else np.ascontiguousarray(array).reshape(array.shape)
        for index, array in enumerate(arrays)
    ]
    specs = op.infer([spec_of(array) for array in given], attrs)
    results = [Output(spec) for spec in specs]
    views = [None if array is None else view_of(array) for array in given]
    made = (plan or op.plan)(
        views, [View.contiguous(spec.shape, spec.dtype) for spec in specs], attrs, target
    )
    spaces = [np.full(size_bytes + 64, GUARD, np.uint8) for size_bytes in made.workspaces]
    inputs = [None if array is None else memory_of(array) for array in given]
    for launch in made.launches:
        bound: dict[str, Any] = {}
        for name, value in launch.args.items():
            if not isinstance(value, Slot):
                bound[name] = value
            elif value.kind == "input":
                bound[name] = inputs[value.index]
            elif value.kind == "output":
                bound[name] = results[value.index].memory
            else:
                bound[name] = spaces[value.index][: made.workspaces[value.index]].view(
                    numpy_dtype(value.dtype)
                )
        execute(launch, bound)
    return [result.array() for result in results]


def assert_close(
    op: Operator, actual: np.ndarray, expected: np.ndarray, dtype: str, context: str
) -> None:
    """Within the tolerance the record states for the coarser of `dtype`, that of the inputs, and
    the dtype of the result; integers and bools exactly."""
    assert actual.shape == expected.shape, f"{context}: {actual.shape} is not {expected.shape}"
    if actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected, context)
        return
    given = [op.tolerance[name] for name in (dtype, dtype_of(actual).name) if name in op.tolerance]
    tolerance = max(given, key=lambda one: one.relative)
    got = actual.astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = expected.astype(actual.dtype).astype(np.float64)  # overflows as the dtype does
        expected = np.where(np.isinf(wanted), wanted, expected)
        error = np.abs(got - expected)
        allowed = tolerance.absolute + tolerance.relative * np.abs(expected)
        good = (error <= allowed) | (got == expected) | (np.isnan(got) & np.isnan(expected))
    if good.all():
        return
    got, expected, allowed, good = map(np.atleast_1d, (got, expected, allowed, good))
    place = tuple(int(axis[0]) for axis in np.nonzero(~good))
    raise AssertionError(
        f"{context}: {np.count_nonzero(~good)} of {good.size} outside; at {place} got "
        f"{got[place]!r}, expected {expected[place]!r} within {allowed[place]:.3g} "
        f"({tolerance.reason})"
    )
