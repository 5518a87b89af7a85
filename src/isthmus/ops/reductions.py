"""Reductions over any axes, arg-max, running sums.

sum, mean, max, min, prod, variance, argmax, cumsum. Sums of f16 and bf16 are kept in f32;
sums and products of integers and bools are i64 (so 128 times 2**30 is 137438953472).
Variance takes two passes over the data (or one over a row that stays in cache): never
E[x^2] - E[x]^2, which cancels.
"""

# ruff: noqa: SIM108  (an `if` on a constexpr leaves the other branch out)
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.dtypes import DType
from isthmus.core.errors import DTypeError, ShapeError
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    ACCUMULATE,
    FLOATS,
    I64,
    Arrays,
    Specs,
    cost_of,
    normal_axes,
    normal_axis,
    prod,
    real,
    require_dtypes,
    tolerances,
)
from isthmus.ops.schedule import (
    ELEMENTS_PER_PROGRAM,
    accumulate_type,
    block_size,
    ceil_div,
    divide,
    fold_axis,
    inputs,
    language_type,
    outputs,
    row_block,
    rows_per_program,
    workspace,
)
from isthmus.ops.shaping import copy_launch, fill_launch
from isthmus.ops.standard import (
    REQUIRED,
    Attrs,
    Launch,
    Operator,
    Plan,
    Slot,
    TensorSpec,
    View,
    contiguous_strides,
    register,
)

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__ = ["sum_columns"]


def _keep(array: Any) -> np.ndarray:
    given = np.asarray(array)
    return given if given.dtype.kind in "iub" else real(given)


def reduced_shape(op: str, shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    axes = normal_axes(op, attrs["axes"], len(shape))
    if attrs["keepdims"]:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _infer(name: str) -> Any:
    def infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
        (x,) = specs
        shape = reduced_shape(name, x.shape, attrs)
        dtype = x.dtype
        if name in ("mean", "variance"):
            require_dtypes(name, "x", x, FLOATS)
        elif name in ("sum", "prod"):
            if not dtype.is_float:
                dtype = I64
        else:
            if dtype.name == "bool":
                raise DTypeError(f"{name}: x is bool; allowed: integers and floats")
            axes = normal_axes(name, attrs["axes"], len(x.shape))
            if prod([x.shape[axis] for axis in axes]) == 0 and prod(shape) > 0:
                raise ShapeError(f"{name}: no largest or smallest of the empty {list(x.shape)}")
        return [TensorSpec(shape, dtype)]

    return infer


def _axes(attrs: Attrs, array: np.ndarray) -> tuple[int, ...]:
    return normal_axes("reduction", attrs["axes"], array.ndim)


def _variance(
    x: np.ndarray, axes: tuple[int, ...], keepdims: bool, correction: float
) -> np.ndarray:
    first = x[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(x.ndim))]
    shifted = x - first  # a mean far from 0 would round away the spread
    centred = shifted - shifted.mean(axes, keepdims=True)
    count = prod([x.shape[axis] for axis in axes])
    return (centred**2).sum(axes, keepdims=keepdims) / max(count - correction, 0.0)


def _reference(name: str) -> Any:
    def reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
        x = _keep(arrays[0])
        axes, keepdims = _axes(attrs, x), attrs["keepdims"]
        with np.errstate(all="ignore"):
            if name in ("sum", "prod"):
                function = np.sum if name == "sum" else np.prod
                kind = np.float64 if x.dtype.kind == "f" else np.int64
                return [np.asarray(function(x, axis=axes, keepdims=keepdims, dtype=kind))]
            if name == "mean":
                count = prod([x.shape[axis] for axis in axes])
                total = np.sum(x, axis=axes, keepdims=keepdims)
                return [np.asarray(np.divide(total, float(count)))]
            if name == "variance":
                if x.size == 0:
                    return [np.full(reduced_shape(name, x.shape, attrs), np.nan)]
                return [np.asarray(_variance(x, axes, keepdims, attrs["correction"]))]
            function = np.max if name == "max" else np.min
            if x.size == 0:
                return [np.zeros(reduced_shape(name, x.shape, attrs), x.dtype)]
            return [np.asarray(function(x, axis=axes, keepdims=keepdims))]

    return reference


def _argmax_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    axis = normal_axis("argmax", attrs["axis"], len(x.shape))
    if x.dtype.name == "bool":
        raise DTypeError("argmax: x is bool; allowed: integers and floats")
    shape = reduced_shape("argmax", x.shape, {"axes": (axis,), "keepdims": attrs["keepdims"]})
    if x.shape[axis] == 0 and prod(shape) > 0:
        raise ShapeError(f"argmax: no largest along the empty axis {axis} of {list(x.shape)}")
    return [TensorSpec(shape, I64)]


def _argmax_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x = _keep(arrays[0])
    axis = attrs["axis"] % x.ndim
    if x.size == 0:
        shape = reduced_shape("argmax", x.shape, {"axes": (axis,), "keepdims": attrs["keepdims"]})
        return [np.zeros(shape, np.int64)]
    return [np.asarray(np.argmax(x, axis=axis, keepdims=attrs["keepdims"]), np.int64)]


def _cumsum_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    normal_axis("cumsum", attrs["axis"], len(x.shape))
    return [TensorSpec(x.shape, x.dtype if x.dtype.is_float else I64)]


def _cumsum_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x = _keep(arrays[0])
    kind = np.float64 if x.dtype.kind == "f" else np.int64
    with np.errstate(all="ignore"):
        return [np.cumsum(x, axis=attrs["axis"], dtype=kind)]


@jit
def multiply(a, b):
    return a * b


@jit
def identity(KIND: tl.constexpr, LOWEST: tl.constexpr, HIGHEST: tl.constexpr):
    """What a reduction starts from."""
    if KIND == "max":
        return LOWEST
    if KIND == "min":
        return HIGHEST
    if KIND == "prod":
        return 1
    return 0


@jit
def combine(KIND: tl.constexpr, a, b):
    """Two partial results, element by element; NaN wins."""
    if KIND == "max":
        return tl.where((a > b) | (a != a), a, b)
    if KIND == "min":
        return tl.where((a < b) | (a != a), a, b)
    if KIND == "prod":
        return a * b
    return a + b


@jit
def combine_axis(KIND: tl.constexpr, x, axis: tl.constexpr):
    """A block along one axis; NaN wins."""
    if KIND == "max" or KIND == "min":
        if KIND == "max":
            best = tl.max(x, axis)
        else:
            best = tl.min(x, axis)
        if x.dtype.is_floating():
            return tl.where(tl.max((x != x).to(tl.int32), axis) > 0, float("nan"), best)
        return best
    if KIND == "prod":
        return tl.reduce(x, axis, multiply)
    return tl.sum(x, axis)


@jit
def reduce_rows_kernel(
    x_ptr, out_ptr, rows, N, LENGTH,
    KIND: tl.constexpr, LOWEST: tl.constexpr, HIGHEST: tl.constexpr, SCALE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Reduce contiguous rows of N, BLOCK_R at a time, ROWS per program along x; program j along
    y takes the columns from j * LENGTH on, so out is [rows, parts]."""
    part = tl.program_id(1)
    parts = tl.num_programs(1)
    low = part * LENGTH
    high = min(low + LENGTH, N)
    first = tl.program_id(0).to(tl.int64) * ROWS
    last = min(first + ROWS, rows)
    start_value = identity(KIND, LOWEST, HIGHEST)
    columns = tl.arange(0, BLOCK_N)
    for top in range(first, last, BLOCK_R):
        lines = top + tl.arange(0, BLOCK_R)
        total = tl.full((BLOCK_R,), start_value, ACC)
        for start in range(low, high, BLOCK_N):
            mask = (lines < last)[:, None] & (start + columns < high)[None, :]
            x = tl.load(
                x_ptr + lines[:, None] * N + (start + columns)[None, :],
                mask=mask, other=start_value,
            )  # fmt: skip
            total = combine(KIND, total, combine_axis(KIND, x.to(ACC), 1))
        if SCALE != 1.0:
            total = total * SCALE
        tl.store(out_ptr + lines * parts + part, total, mask=lines < last)


@jit
def reduce_columns_kernel(
    x_ptr, out_ptr, N, inner, LENGTH,
    KIND: tl.constexpr, LOWEST: tl.constexpr, HIGHEST: tl.constexpr, SCALE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_I: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Reduce the middle of [outer, N, inner], BLOCK_I columns per program along x, outer along y;
    program k along z takes LENGTH of the N, so out is [parts, outer, inner]."""
    columns = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    outer = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    low = part * LENGTH
    high = min(low + LENGTH, N)
    steps = tl.arange(0, BLOCK_N)
    start_value = identity(KIND, LOWEST, HIGHEST)
    total = tl.full((BLOCK_I,), start_value, ACC)
    inside = columns < inner
    for start in range(low, high, BLOCK_N):
        lines = outer * N + start + steps
        x = tl.load(
            x_ptr + lines[:, None] * inner + columns[None, :],
            mask=(start + steps < high)[:, None] & inside[None, :], other=start_value,
        )  # fmt: skip
        total = combine(KIND, total, combine_axis(KIND, x.to(ACC), 0))
    if SCALE != 1.0:
        total = total * SCALE
    place = (part * tl.num_programs(1) + outer) * inner
    tl.store(out_ptr + place + columns, total, mask=inside)


@jit
def variance_rows_kernel(
    x_ptr, out_ptr, rows, INVERSE_COUNT: tl.constexpr, SCALE: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Two passes over each contiguous row of N, measured from its first element."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    columns = tl.arange(0, BLOCK)
    for row in range(first, min(first + ROWS, rows)):
        anchor = tl.load(x_ptr + row * N).to(ACC)
        totals = tl.zeros((BLOCK,), ACC)
        for start in range(0, N, BLOCK):
            mask = start + columns < N
            x = tl.load(x_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
            totals += tl.where(mask, x - anchor, 0.0)
        level = tl.sum(totals, 0) * INVERSE_COUNT
        squares = tl.zeros((BLOCK,), ACC)
        for start in range(0, N, BLOCK):
            mask = start + columns < N
            x = tl.load(x_ptr + row * N + start + columns, mask=mask, other=0.0).to(ACC)
            centred = tl.where(mask, x - anchor - level, 0.0)
            squares += centred * centred
        tl.store(out_ptr + row, tl.sum(squares, 0) * SCALE)


@jit
def variance_columns_kernel(
    x_ptr, out_ptr, N, inner, INVERSE_COUNT: tl.constexpr, SCALE: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_I: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Two passes along the middle of [outer, N, inner], measured from the first element."""
    columns = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    outer = tl.program_id(1).to(tl.int64)
    steps = tl.arange(0, BLOCK_N)
    inside = columns < inner
    first = x_ptr + outer * N * inner + columns
    anchor = tl.load(first, mask=inside, other=0.0).to(ACC)[None, :]
    total = tl.zeros((BLOCK_I,), ACC)
    for start in range(0, N, BLOCK_N):
        lines = outer * N + start + steps
        mask = (start + steps < N)[:, None] & inside[None, :]
        offsets = lines[:, None] * inner + columns[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        total += tl.sum(tl.where(mask, x - anchor, 0.0), 0)
    level = (total * INVERSE_COUNT)[None, :]
    squares = tl.zeros((BLOCK_I,), ACC)
    for start in range(0, N, BLOCK_N):
        lines = outer * N + start + steps
        mask = (start + steps < N)[:, None] & inside[None, :]
        offsets = lines[:, None] * inner + columns[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(ACC)
        centred = tl.where(mask, x - anchor - level, 0.0)
        squares += tl.sum(centred * centred, 0)
    tl.store(out_ptr + outer * inner + columns, squares * SCALE, mask=inside)


@jit
def argmax_kernel(
    x_ptr, out_ptr, N, inner,
    LOWEST: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_I: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Index of the first largest along the middle of [outer, N, inner]; NaN counts as largest."""
    columns = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    outer = tl.program_id(1).to(tl.int64)
    steps = tl.arange(0, BLOCK_N)
    inside = columns < inner
    best_index = tl.zeros((BLOCK_I,), tl.int32)
    best = tl.full((BLOCK_I,), LOWEST, ACC)
    for start in range(0, N, BLOCK_N):
        lines = outer * N + start + steps
        mask = (start + steps < N)[:, None] & inside[None, :]
        x = tl.load(x_ptr + lines[:, None] * inner + columns[None, :], mask=mask, other=LOWEST).to(
            ACC
        )
        top = tl.max(x, 0)
        hit = mask & (x == top[None, :])
        better = top > best
        if x.dtype.is_floating():
            is_nan = x != x
            has_nan = tl.max(is_nan.to(tl.int32), 0) > 0
            hit = tl.where(has_nan[None, :], is_nan, hit)
            better = (better | has_nan) & (best == best)
            top = tl.where(has_nan, float("nan"), top)
        index = tl.min(tl.where(hit, (start + steps)[:, None], 2147483647), 0)
        better = better | (start == 0)
        best_index = tl.where(better, index, best_index)
        best = tl.where(better, top, best)
    tl.store(out_ptr + outer * inner + columns, best_index.to(tl.int64), mask=inside)


@jit
def cumsum_rows_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr, ACC: tl.constexpr):
    """Running sum of one contiguous row per program."""
    row = tl.program_id(0).to(tl.int64) * N
    columns = tl.arange(0, BLOCK)
    before = tl.sum(tl.zeros((BLOCK,), ACC), 0)
    for start in range(0, N, BLOCK):
        mask = start + columns < N
        x = tl.load(x_ptr + row + start + columns, mask=mask, other=0).to(ACC)
        tl.store(out_ptr + row + start + columns, before + tl.cumsum(x, 0), mask=mask)
        before += tl.sum(x, 0)


@jit
def cumsum_columns_kernel(x_ptr, out_ptr, N, inner, BLOCK_I: tl.constexpr, ACC: tl.constexpr):
    """Running sum along the middle of [outer, N, inner]."""
    columns = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    base = tl.program_id(1).to(tl.int64) * N * inner
    inside = columns < inner
    total = tl.zeros((BLOCK_I,), ACC)
    for step in range(N):
        offsets = base + tl.cast(step, tl.int64) * inner + columns
        total += tl.load(x_ptr + offsets, mask=inside, other=0).to(ACC)
        tl.store(out_ptr + offsets, total, mask=inside)


def _limits(dtype: DType) -> tuple[Any, Any]:
    """(lowest, highest): what max and min start from."""
    if dtype.is_float:
        return float("-inf"), float("inf")
    if dtype.is_signed:
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    return 0, 2**dtype.bits - 1


def _compare_type(dtype: DType) -> Any:
    """What elements are compared in: 32 bits at least, as the language's maximum widens to that."""
    if dtype.is_float:
        return accumulate_type(dtype)
    return language_type(dtype) if dtype.bits >= 32 else tl.int32


def _reduce(
    kind: str, x: Slot, shape: tuple[int, int, int], dtype: DType, out: Slot,
    target: TargetDescription, *, scale: float = 1.0, scratch: int = 0,
) -> Plan:  # fmt: skip
    """Launches that reduce the middle of contiguous [outer, size, inner] into [outer, inner].

    Where that gives too few programs, they leave partial results in workspace `scratch`, and a
    last launch combines those.
    """
    outer, size, inner = shape
    result = outer * inner
    if result == 0:
        return Plan(())
    lowest, highest = _limits(dtype)
    keeps = kind in ("max", "min") and not dtype.is_float
    partial_type = dtype if keeps else ACCUMULATE.get(dtype.name, I64)
    args: dict[str, Any] = {
        "x_ptr": x, "KIND": "sum" if kind == "mean" else kind, "LOWEST": lowest,
        "HIGHEST": highest, "N": size, "SCALE": 1.0,
        "ACC": _compare_type(dtype) if keeps else accumulate_type(dtype),
    }  # fmt: skip
    programs = max(1, ceil_div(outer * size * inner, ELEMENTS_PER_PROGRAM))
    if inner == 1:
        block_n = row_block(size, target)
        block_r = block_size(outer, max(1, 256 // block_n), target)
        parts = min(ceil_div(size, 4096), ceil_div(programs, outer)) if outer < 16 else 1
        rows = rows_per_program(outer, size)
        args |= {"rows": outer, "ROWS": rows, "BLOCK_R": block_r, "BLOCK_N": block_n}
        kernel, grid = reduce_rows_kernel, (ceil_div(outer, rows), max(parts, 1), 1)
    else:
        block_i = block_size(inner, divide(inner, 512, 16), target)
        blocks = outer * ceil_div(inner, block_i)
        parts = min(ceil_div(size, 64), ceil_div(programs, blocks), 32) if blocks < 16 else 1
        args |= {"inner": inner, "BLOCK_N": block_size(size, 16, target), "BLOCK_I": block_i}
        kernel, grid = reduce_columns_kernel, (ceil_div(inner, block_i), outer, max(parts, 1))
    parts = max(parts, 1)
    length = max(1, ceil_div(size, parts))
    args["LENGTH"] = length
    if parts == 1:
        return Plan((Launch(kernel, {**args, "out_ptr": out, "SCALE": scale}, grid),))
    partial = workspace(scratch, partial_type)
    first = Launch(kernel, {**args, "out_ptr": partial}, grid)
    rest = (outer, parts, 1) if inner == 1 else (1, parts, result)
    second = _reduce(kind, partial, rest, partial_type, out, target, scale=scale,
                     scratch=scratch + 1)  # fmt: skip
    space = parts * result * partial_type.size_bytes
    return Plan((first, *second.launches), (space, *second.workspaces))


def sum_columns(x: Slot, view: View, out: Slot, target: TargetDescription) -> tuple[Launch, ...]:
    """Sum a contiguous [rows, columns] over its rows, for a number of rows that is small."""
    rows, columns = view.shape
    block_i = block_size(columns, divide(columns, 512, 16), target)
    args = {
        "x_ptr": x, "out_ptr": out, "N": rows, "inner": columns, "LENGTH": max(rows, 1),
        "KIND": "sum", "LOWEST": 0, "HIGHEST": 0, "SCALE": 1.0,
        "BLOCK_N": block_size(rows, 16, target), "BLOCK_I": block_i,
        "ACC": accumulate_type(view.dtype),
    }  # fmt: skip
    return (Launch(reduce_columns_kernel, args, (ceil_div(columns, block_i), 1, 1)),)


def _folded(
    x: View, axes: tuple[int, ...], target: TargetDescription
) -> tuple[tuple[Launch, ...], tuple[int, ...], Slot, tuple[int, int, int]]:
    """x as [outer, reduced, inner]: (launches that rearrange it, their workspace, slot, shape).

    Axes that follow one another fold in place; others are moved to the end by a copy.
    """
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    sizes = [x.shape[axis] for axis in range(len(x.shape))]
    wide = [axis for axis in axes if sizes[axis] != 1]
    if not wide or not any(wide[0] < axis < wide[-1] and sizes[axis] != 1 for axis in kept):
        low, high = (wide[0], wide[-1] + 1) if wide else (len(sizes), len(sizes))
        shape = prod(sizes[:low]), prod(sizes[low:high]), prod(sizes[high:])
        return (), (), inputs(0), shape
    order = kept + list(axes)
    moved = View(
        tuple(sizes[axis] for axis in order), x.dtype, tuple(x.strides[axis] for axis in order)
    )
    launch = copy_launch(
        inputs(0), moved, workspace(0, x.dtype), contiguous_strides(moved.shape), target
    )
    space = x.size * x.dtype.size_bytes
    shape = prod([sizes[axis] for axis in kept]), prod([sizes[axis] for axis in axes]), 1
    return (launch,), (space,), workspace(0, x.dtype), shape


def _plan(kind: str) -> Any:
    def plan(
        views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
    ) -> Plan:
        (x,) = views
        if outs[0].size == 0:
            return Plan(())
        axes = normal_axes(kind, attrs["axes"], len(x.shape))
        before, space, slot, shape = _folded(x, axes, target)
        if kind == "variance":
            after = _variance_plan(slot, shape, x.dtype, attrs["correction"], target)
        else:
            scale = 1.0
            if kind == "mean":
                scale = 1.0 / shape[1] if shape[1] else float("nan")
            after = _reduce(kind, slot, shape, x.dtype, outputs(0), target, scale=scale,
                            scratch=len(space))  # fmt: skip
        return Plan((*before, *after.launches), (*space, *after.workspaces))

    return plan


def _variance_plan(
    x: Slot, shape: tuple[int, int, int], dtype: DType, correction: float,
    target: TargetDescription,
) -> Plan:  # fmt: skip
    outer, size, inner = shape
    degrees = size - correction
    if size == 0:
        rows = View.contiguous((outer * inner,), dtype)
        return Plan((fill_launch(outputs(0), rows, float("nan"), target),))
    args: dict[str, Any] = {
        "x_ptr": x, "out_ptr": outputs(0), "N": size, "ACC": accumulate_type(dtype),
        "INVERSE_COUNT": 1.0 / max(size, 1),
        "SCALE": 1.0 / degrees if degrees > 0 else float("nan" if size <= 1 else "inf"),
    }  # fmt: skip
    if inner == 1:
        rows = rows_per_program(outer, size)
        args |= {"rows": outer, "ROWS": rows, "BLOCK": row_block(size, target)}
        return Plan((Launch(variance_rows_kernel, args, (ceil_div(outer, rows), 1, 1)),))
    block_i = block_size(inner, 128, target)
    args |= {"inner": inner, "BLOCK_N": block_size(size, 16, target), "BLOCK_I": block_i}
    grid = (ceil_div(inner, block_i), outer, 1)
    return Plan((Launch(variance_columns_kernel, args, grid),))


def _argmax_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    (x,) = views
    if outs[0].size == 0:
        return Plan(())
    outer, size, inner = fold_axis(x.shape, attrs["axis"])
    block_i = block_size(inner, 128, target)
    args = {
        "x_ptr": inputs(0), "out_ptr": outputs(0), "N": size, "inner": inner,
        "LOWEST": _limits(x.dtype)[0], "BLOCK_I": block_i, "ACC": _compare_type(x.dtype),
        "BLOCK_N": block_size(size, max(16, 4096 // block_i), target),
    }  # fmt: skip
    return Plan((Launch(argmax_kernel, args, (ceil_div(inner, block_i), outer, 1)),))


def _cumsum_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    (x,) = views
    if x.size == 0:
        return Plan(())
    outer, size, inner = fold_axis(x.shape, attrs["axis"])
    args: dict[str, Any] = {
        "x_ptr": inputs(0), "out_ptr": outputs(0), "N": size, "ACC": accumulate_type(x.dtype)
    }  # fmt: skip
    if inner == 1:
        args["BLOCK"] = block_size(size, 1024, target)
        return Plan((Launch(cumsum_rows_kernel, args, (outer, 1, 1)),))
    block_i = block_size(inner, 128, target)
    args |= {"inner": inner, "BLOCK_I": block_i}
    return Plan((Launch(cumsum_columns_kernel, args, (ceil_div(inner, block_i), outer, 1)),))


_AXES: dict[str, Any] = {"axes": None, "keepdims": False}
_SUM_REASON = "partial sums in f32 (f64 for f64), at most 4096 terms of magnitude 1 in a chain"
_TOLERANCE = {
    "sum": tolerances(4, _SUM_REASON, absolute_ulps=512),
    "mean": tolerances(4, _SUM_REASON, absolute_ulps=16),
    "max": tolerances(0, "a choice, exact"),
    "min": tolerances(0, "a choice, exact"),
    "prod": tolerances(64, "one rounding per factor"),
    "variance": tolerances(32, f"two passes; {_SUM_REASON}", absolute_ulps=8),
}
_DOC = {
    "sum": "Sum over `axes` (None: all); integers and bools give i64.",
    "mean": "Arithmetic mean over `axes`.",
    "max": "Largest element; NaN if there is one.",
    "min": "Smallest element; NaN if there is one.",
    "prod": "Product over `axes`; integers and bools give i64.",
    "variance": "sum((x - mean)^2) / (count - correction) over `axes`, in two passes.",
}
_EMPTY = {
    "sum": "0 for an empty row",
    "mean": "NaN for an empty row",
    "max": "ShapeError where a row is empty",
    "min": "ShapeError where a row is empty",
    "prod": "1 for an empty row",
    "variance": "NaN for an empty row",
}


def _input_size(specs: Specs, _outputs: object, _attrs: Attrs) -> int:
    return specs[0].size


for _name in _DOC:
    register(
        Operator(
            name=_name,
            doc=_DOC[_name],
            inputs=("x",),
            infer=_infer(_name),
            reference=_reference(_name),
            plan=_plan(_name),
            cost=cost_of(_input_size),
            attrs={**_AXES, "correction": 1} if _name == "variance" else _AXES,
            tolerance=_TOLERANCE[_name],
            nan="a row with NaN gives NaN",
            empty=_EMPTY[_name],
        )
    )
register(
    Operator(
        name="argmax",
        doc="Index of the first largest element along one axis, or of the first NaN.",
        inputs=("x",),
        infer=_argmax_infer,
        reference=_argmax_reference,
        plan=_argmax_plan,
        cost=cost_of(_input_size),
        attrs={"axis": REQUIRED, "keepdims": False},
        nan="NaN counts as largest: the index of the first NaN",
        empty="ShapeError where a row is empty",
        gradient="none",
    )
)
register(
    Operator(
        name="cumsum",
        doc="Running sum along one axis; integers and bools give i64.",
        inputs=("x",),
        infer=_cumsum_infer,
        reference=_cumsum_reference,
        plan=_cumsum_plan,
        cost=cost_of(_input_size),
        attrs={"axis": REQUIRED},
        tolerance=tolerances(4, _SUM_REASON, absolute_ulps=1024),
        nan="NaN from the first NaN on",
    )
)
