"""Contiguous copies, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.errors import ProgramError, ShapeError
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    Arrays,
    Specs,
    cost_of,
    normal_axis,
    real,
    require_same_dtype,
    tolerances,
)
from isthmus.ops.schedule import block_size, ceil_div, collapse, inputs, language_type, outputs
from isthmus.ops.standard import (
    REQUIRED,
    Attrs,
    Launch,
    Operator,
    Plan,
    Slot,
    TensorSpec,
    View,
    register,
)

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__ = ["copy_launch", "fill_launch"]


def _keep(array: Any) -> np.ndarray:
    given = np.asarray(array)
    return given if given.dtype.kind in "iub" else real(given)


def _concat_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    if not specs:
        raise ProgramError("concat: needs at least one input")
    dtype = require_same_dtype("concat", specs)
    first = specs[0].shape
    axis = normal_axis("concat", attrs["axis"], len(first))
    for spec in specs[1:]:
        fits = len(spec.shape) == len(first) and all(
            position == axis or size == first[position] for position, size in enumerate(spec.shape)
        )
        if not fits:
            raise ShapeError(
                f"concat: {list(spec.shape)} and {list(first)} differ outside axis {axis}"
            )
    total = sum(spec.shape[axis] for spec in specs)
    return [TensorSpec((*first[:axis], total, *first[axis + 1 :]), dtype)]


def _pad_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    (x,) = specs
    low, high = tuple(attrs["low"]), tuple(attrs["high"])
    if not len(low) == len(high) == len(x.shape) or min((*low, *high), default=0) < 0:
        raise ShapeError(
            f"pad: low {list(low)} and high {list(high)} need one count >= 0 for each of the "
            f"{len(x.shape)} dimensions"
        )
    shape = tuple(a + size + b for a, size, b in zip(low, x.shape, high, strict=True))
    return [TensorSpec(shape, x.dtype)]


def _pad_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x = _keep(arrays[0])
    widths = list(zip(attrs["low"], attrs["high"], strict=True))
    return [np.pad(x, widths, constant_values=attrs["value"]) if widths else x]


@jit
def copy_kernel(
    x_ptr, out_ptr, out_start, outer, size_2, size_1, rows, columns,
    stride_x3, stride_x2, stride_x1, stride_xr, stride_xc,
    stride_o3, stride_o2, stride_o1, stride_or, stride_oc,
    OUTER: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Copy a strided tensor of up to five dimensions, OUTER blocks of rows by columns a program."""
    first = tl.program_id(0).to(tl.int64) * OUTER
    lines = (tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)).to(tl.int64)[:, None]
    places = (tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)).to(tl.int64)[None, :]
    mask = (lines < rows) & (places < columns)
    for index in range(first, min(first + OUTER, outer)):
        third = index // (size_2 * size_1)
        second = index // size_1 % size_2
        last = index % size_1
        x_start = third * stride_x3 + second * stride_x2 + last * stride_x1
        o_start = third * stride_o3 + second * stride_o2 + last * stride_o1 + out_start
        x = tl.load(x_ptr + x_start + lines * stride_xr + places * stride_xc, mask=mask)
        tl.store(out_ptr + o_start + lines * stride_or + places * stride_oc, x, mask=mask)


@jit
def fill_kernel(out_ptr, size, value: tl.constexpr, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Fill contiguous memory."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.full((BLOCK,), value, TYPE), mask=places < size)


def copy_launch(
    x: Slot, view: View, out: Slot, out_strides: Sequence[int], target: TargetDescription,
    *, out_start: int = 0,
) -> Launch:  # fmt: skip
    """Copy `view` of `x` to `out` from element `out_start` on, walked with `out_strides`."""
    sizes, (x_strides, o_strides) = collapse(view.shape, [view.strides, out_strides])
    # columns: what the output walks in the smallest steps; rows: the same for the input
    order = sorted(range(len(sizes)), key=lambda axis: (abs(o_strides[axis]), -axis))
    column = order[0] if order else None
    rest = [axis for axis in range(len(sizes)) if axis != column]
    row = min(rest, key=lambda axis: (abs(x_strides[axis]), -axis)) if rest else None
    outer = [axis for axis in rest if axis != row]
    if len(outer) > 3:
        raise ProgramError(
            f"copy: a view of {len(outer) + 2} dimensions that do not merge; 5 is the most",
            hint="copy in two steps",
        )

    def pick(values: Sequence[int], axis: int | None, default: int) -> int:
        return default if axis is None else values[axis]

    axes = [None] * (3 - len(outer)) + outer
    rows, columns = pick(sizes, row, 1), pick(sizes, column, 1)
    count = [pick(sizes, axis, 1) for axis in axes]
    transposed = row is not None and x_strides[row] < pick(x_strides, column, 1)
    block_c = block_size(columns, 16 if transposed else 4096, target)
    block_r = block_size(rows, 64 if transposed else max(1, 16384 // block_c), target)
    blocks = count[0] * count[1] * count[2]
    per_program = max(1, min(16384 // (block_r * block_c), ceil_div(blocks, 8)))
    args: dict[str, Any] = {
        "x_ptr": x, "out_ptr": out, "out_start": out_start, "outer": blocks,
        "size_2": count[1], "size_1": count[2], "rows": rows, "columns": columns,
        "stride_xr": pick(x_strides, row, 0), "stride_xc": pick(x_strides, column, 0),
        "stride_or": pick(o_strides, row, 0), "stride_oc": pick(o_strides, column, 0),
        "OUTER": per_program, "BLOCK_R": block_r, "BLOCK_C": block_c,
    }  # fmt: skip
    for place, axis in zip((3, 2, 1), axes, strict=True):
        args[f"stride_x{place}"] = pick(x_strides, axis, 0)
        args[f"stride_o{place}"] = pick(o_strides, axis, 0)
    grid = (ceil_div(blocks, per_program), ceil_div(rows, block_r), ceil_div(columns, block_c))
    return Launch(copy_kernel, args, grid)


def fill_launch(out: Slot, view: View, value: float, target: TargetDescription) -> Launch:
    """Fill contiguous `out` with `value`."""
    block = block_size(view.size, 16384, target)
    number = float(value) if view.dtype.is_float else int(value)
    args = {
        "out_ptr": out, "size": view.size, "value": number,
        "TYPE": language_type(view.dtype), "BLOCK": block,
    }  # fmt: skip
    return Launch(fill_kernel, args, (ceil_div(view.size, block), 1, 1))


def _copy_plan(
    views: Sequence[Any], outs: Sequence[View], _attrs: Attrs, target: TargetDescription
) -> Plan:
    if outs[0].size == 0:
        return Plan(())
    return Plan((copy_launch(inputs(0), views[0], outputs(0), outs[0].strides, target),))


def _concat_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    (out,) = outs
    axis = attrs["axis"] % len(out.shape)
    start, launches = 0, []
    for index, view in enumerate(views):
        if view.size:
            launches.append(
                copy_launch(inputs(index), view, outputs(0), out.strides, target,
                            out_start=start * out.strides[axis])
            )  # fmt: skip
        start += view.shape[axis]
    return Plan(tuple(launches))


def _pad_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    (x,), (out,) = views, outs
    launches = []
    if out.size > x.size:
        launches.append(fill_launch(outputs(0), out, attrs["value"], target))
    if x.size:
        start = sum(low * stride for low, stride in zip(attrs["low"], out.strides, strict=True))
        launches.append(copy_launch(inputs(0), x, outputs(0), out.strides, target, out_start=start))
    return Plan(tuple(launches))


_EXACT = tolerances(0, "a copy, exact")
register(
    Operator(
        name="copy",
        doc="x in row-major order.",
        inputs=("x",),
        infer=lambda specs, _attrs: [specs[0]],  # type: ignore[list-item]
        reference=lambda arrays, _attrs: [_keep(arrays[0]).copy()],
        cost=cost_of(0),
        plan=_copy_plan,
        strided_inputs=(0,),
        tolerance=_EXACT,
    )
)
register(
    Operator(
        name="concat",
        doc="Inputs one after another along an axis.",
        inputs=("xs*",),
        infer=_concat_infer,
        reference=lambda arrays, attrs: [np.concatenate([_keep(a) for a in arrays], attrs["axis"])],
        cost=cost_of(0),
        plan=_concat_plan,
        strided_inputs=None,
        attrs={"axis": REQUIRED},
        tolerance=_EXACT,
    )
)
register(
    Operator(
        name="pad",
        doc="x with `low` elements of `value` before and `high` after each dimension.",
        inputs=("x",),
        infer=_pad_infer,
        reference=_pad_reference,
        cost=cost_of(0),
        plan=_pad_plan,
        strided_inputs=(0,),
        attrs={"low": REQUIRED, "high": REQUIRED, "value": 0.0},
        tolerance=_EXACT,
    )
)
