"""Softmax and log-softmax along one axis, with their gradients.

softmax      y = exp(x - max) / sum(exp(x - max))
log_softmax  y = x - max - log(sum(exp(x - max)))
softmax_backward      dx = y * (grad - sum(grad * y))
log_softmax_backward  dx = grad - exp(y) * sum(grad)

Shapes: any; every row along `axis` is one problem.
Types: floats; computed in f32 for f16 and bf16.
"""

# ruff: noqa: SIM108  (an `if` on a constexpr leaves the other branch out)
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    FLOATS,
    Arrays,
    Specs,
    cost_of,
    normal_axis,
    real,
    require_dtypes,
    require_same_dtype,
    require_shape,
    tolerances,
)
from isthmus.ops.schedule import (
    accumulate_type,
    block_size,
    ceil_div,
    fold_axis,
    inputs,
    outputs,
    row_block,
    rows_per_program,
)
from isthmus.ops.standard import Attrs, Launch, Operator, Plan, TensorSpec, View, register

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__: list[str] = []


def softmax_reference(x: np.ndarray, axis: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
        return shifted / shifted.sum(axis, keepdims=True)


def log_softmax_reference(x: np.ndarray, axis: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
        return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def _forward_infer(name: str) -> Any:
    def infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
        (x,) = specs
        require_dtypes(name, "x", x, FLOATS)
        normal_axis(name, attrs["axis"], len(x.shape))
        return [x]

    return infer


def _backward_infer(name: str) -> Any:
    def infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
        grad, out = specs
        require_dtypes(name, "grad", grad, FLOATS)
        require_same_dtype(name, [grad, out])
        require_shape(name, "grad", grad, out.shape)
        normal_axis(name, attrs["axis"], len(out.shape))
        return [out]

    return infer


def _softmax(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    return [softmax_reference(real(arrays[0]), attrs["axis"])]


def _log_softmax(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    return [log_softmax_reference(real(arrays[0]), attrs["axis"])]


def _softmax_backward(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, out = map(real, arrays)
    return [out * (grad - (grad * out).sum(attrs["axis"], keepdims=True))]


def _log_softmax_backward(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, out = map(real, arrays)
    return [grad - np.exp(out) * grad.sum(attrs["axis"], keepdims=True)]


@jit
def softmax_kernel(
    x_ptr, out_ptr, rows,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    """Contiguous rows of N, ROWS of them per program. A row above BLOCK takes three passes."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    columns = tl.arange(0, BLOCK)
    for row in range(first, min(first + ROWS, rows)):
        x_row = x_ptr + row * N
        out_row = out_ptr + row * N
        if N <= BLOCK:
            mask = columns < N
            x = tl.load(x_row + columns, mask=mask, other=float("-inf")).to(ACC)
            x = x - tl.max(x, 0)
            weights = tl.exp(x)
            total = tl.sum(weights, 0)
            if LOG:
                tl.store(out_row + columns, x - tl.log(total), mask=mask)
            else:
                tl.store(out_row + columns, weights * (1.0 / total), mask=mask)
        else:
            tops = tl.full((BLOCK,), float("-inf"), ACC)
            for start in range(0, N, BLOCK):
                mask = start + columns < N
                x = tl.load(x_row + start + columns, mask=mask, other=float("-inf")).to(ACC)
                tops = tl.maximum(tops, x)
            top = tl.max(tops, 0)
            totals = tl.zeros((BLOCK,), ACC)
            for start in range(0, N, BLOCK):
                mask = start + columns < N
                x = tl.load(x_row + start + columns, mask=mask, other=float("-inf")).to(ACC)
                totals += tl.exp(x - top)
            total = tl.sum(totals, 0)
            for start in range(0, N, BLOCK):
                mask = start + columns < N
                x = tl.load(x_row + start + columns, mask=mask, other=float("-inf")).to(ACC) - top
                if LOG:
                    tl.store(out_row + start + columns, x - tl.log(total), mask=mask)
                else:
                    tl.store(out_row + start + columns, tl.exp(x) * (1.0 / total), mask=mask)


@jit
def softmax_columns_kernel(
    x_ptr, out_ptr, N, inner,
    BLOCK_N: tl.constexpr, BLOCK_I: tl.constexpr, ACC: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    """Softmax along the middle of [outer, N, inner]: BLOCK_I neighbouring columns per program."""
    columns = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    base = tl.program_id(1).to(tl.int64) * N * inner
    steps = tl.arange(0, BLOCK_N)
    low = float("-inf")
    inside = columns[None, :] < inner
    top = tl.full((BLOCK_I,), low, ACC)
    for start in range(0, N, BLOCK_N):
        offsets = base + (start + steps).to(tl.int64)[:, None] * inner + columns[None, :]
        mask = (start + steps < N)[:, None] & inside
        x = tl.load(x_ptr + offsets, mask=mask, other=low).to(ACC)
        top = tl.maximum(top, tl.max(x, 0))
    total = tl.zeros((BLOCK_I,), ACC)
    for start in range(0, N, BLOCK_N):
        offsets = base + (start + steps).to(tl.int64)[:, None] * inner + columns[None, :]
        mask = (start + steps < N)[:, None] & inside
        x = tl.load(x_ptr + offsets, mask=mask, other=low).to(ACC)
        total += tl.sum(tl.exp(x - top[None, :]), 0)
    for start in range(0, N, BLOCK_N):
        offsets = base + (start + steps).to(tl.int64)[:, None] * inner + columns[None, :]
        mask = (start + steps < N)[:, None] & inside
        x = tl.load(x_ptr + offsets, mask=mask, other=low).to(ACC) - top[None, :]
        if LOG:
            tl.store(out_ptr + offsets, x - tl.log(total)[None, :], mask=mask)
        else:
            tl.store(out_ptr + offsets, tl.exp(x) / total[None, :], mask=mask)


@jit
def softmax_backward_kernel(
    grad_ptr, y_ptr, out_ptr, rows,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    """Contiguous rows of N; ROWS of them per program; y is the output of the forward pass."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    columns = tl.arange(0, BLOCK)
    for row in range(first, min(first + ROWS, rows)):
        totals = tl.zeros((BLOCK,), ACC)
        for start in range(0, N, BLOCK):
            mask = start + columns < N
            grad = tl.load(grad_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
            if LOG:
                totals += grad
            else:
                y = tl.load(y_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
                totals += grad * y
        total = tl.sum(totals, 0)
        for start in range(0, N, BLOCK):
            mask = start + columns < N
            grad = tl.load(grad_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
            y = tl.load(y_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
            if LOG:
                result = grad - tl.exp(y) * total
            else:
                result = y * (grad - total)
            tl.store(out_ptr + row * N + start + columns, result, mask=mask)


@jit
def softmax_backward_columns_kernel(
    grad_ptr, y_ptr, out_ptr, N, inner,
    BLOCK_N: tl.constexpr, BLOCK_I: tl.constexpr, ACC: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    """The same along the middle of [outer, N, inner]."""
    columns = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    base = tl.program_id(1).to(tl.int64) * N * inner
    steps = tl.arange(0, BLOCK_N)
    inside = columns[None, :] < inner
    total = tl.zeros((BLOCK_I,), ACC)
    for start in range(0, N, BLOCK_N):
        offsets = base + (start + steps).to(tl.int64)[:, None] * inner + columns[None, :]
        mask = (start + steps < N)[:, None] & inside
        grad = tl.load(grad_ptr + offsets, mask=mask, other=0.0).to(ACC)
        if LOG:
            total += tl.sum(grad, 0)
        else:
            y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(ACC)
            total += tl.sum(grad * y, 0)
    for start in range(0, N, BLOCK_N):
        offsets = base + (start + steps).to(tl.int64)[:, None] * inner + columns[None, :]
        mask = (start + steps < N)[:, None] & inside
        grad = tl.load(grad_ptr + offsets, mask=mask, other=0.0).to(ACC)
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(ACC)
        if LOG:
            result = grad - tl.exp(y) * total[None, :]
        else:
            result = y * (grad - total[None, :])
        tl.store(out_ptr + offsets, result, mask=mask)


def _plan(row_kernel: Any, columns_kernel: Any, pointers: tuple[str, ...], log: bool) -> Any:
    """Rows where the axis is last (or nothing follows it), columns elsewhere."""

    def plan(
        views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
    ) -> Plan:
        (out,) = outs
        if out.size == 0:
            return Plan(())
        outer, size, inner = fold_axis(out.shape, attrs["axis"])
        args: dict[str, Any] = {name: inputs(index) for index, name in enumerate(pointers)}
        args |= {"out_ptr": outputs(0), "ACC": accumulate_type(out.dtype), "LOG": log}
        if inner == 1:
            rows = rows_per_program(outer, size)
            args |= {"rows": outer, "N": size, "ROWS": rows, "BLOCK": row_block(size, target)}
            return Plan((Launch(row_kernel, args, (ceil_div(outer, rows), 1, 1)),))
        block_i = block_size(inner, 128, target)
        block_n = block_size(size, 32, target)
        args |= {"N": size, "inner": inner, "BLOCK_N": block_n, "BLOCK_I": block_i}
        return Plan((Launch(columns_kernel, args, (ceil_div(inner, block_i), outer, 1)),))

    return plan


_FORWARD = (softmax_kernel, softmax_columns_kernel, ("x_ptr",))
_BACKWARD = (softmax_backward_kernel, softmax_backward_columns_kernel, ("grad_ptr", "y_ptr"))
_AXIS = {"axis": -1}
_VECTOR = "exp within 2 ULP, a sum of positive terms, one quotient"
register(
    Operator(
        name="softmax",
        doc=__doc__ or "",
        inputs=("x",),
        infer=_forward_infer("softmax"),
        reference=_softmax,
        plan=_plan(*_FORWARD, log=False),
        cost=cost_of(12),
        attrs=_AXIS,
        tolerance=tolerances(32, f"{_VECTOR}; exp of a rounded argument within 16 of 0"),
        gradient="softmax_backward",
        nan="a row with NaN or +inf is NaN; a row of -inf is NaN",
        inplace={0: (0,)},
    )
)
register(
    Operator(
        name="log_softmax",
        doc="x - max - log(sum(exp(x - max))) along one axis.",
        inputs=("x",),
        infer=_forward_infer("log_softmax"),
        reference=_log_softmax,
        plan=_plan(*_FORWARD, log=True),
        cost=cost_of(12),
        attrs=_AXIS,
        tolerance=tolerances(4, _VECTOR, absolute_ulps=8),
        gradient="log_softmax_backward",
        nan="a row with NaN or +inf is NaN; a row of -inf is NaN",
        inplace={0: (0,)},
    )
)
register(
    Operator(
        name="softmax_backward",
        doc="out * (grad - sum(grad * out)) along one axis.",
        inputs=("grad", "out"),
        infer=_backward_infer("softmax_backward"),
        reference=_softmax_backward,
        plan=_plan(*_BACKWARD, log=False),
        cost=cost_of(5),
        attrs=_AXIS,
        tolerance=tolerances(8, "a sum of products, then a difference: absolute", absolute_ulps=32),
        nan="a row with NaN is NaN",
        inplace={0: (0, 1)},
    )
)
register(
    Operator(
        name="log_softmax_backward",
        doc="grad - exp(out) * sum(grad) along one axis.",
        inputs=("grad", "out"),
        infer=_backward_infer("log_softmax_backward"),
        reference=_log_softmax_backward,
        plan=_plan(*_BACKWARD, log=True),
        cost=cost_of(10),
        attrs=_AXIS,
        tolerance=tolerances(8, "a sum, then a difference: absolute", absolute_ulps=64),
        nan="a row with NaN is NaN",
        inplace={0: (0, 1)},
    )
)
