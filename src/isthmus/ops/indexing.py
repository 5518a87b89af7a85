"""Gather, scatter-add and index-select along one axis.

gather        out[.., i, ..] = x[.., index[.., i, ..], ..]       (take_along_axis)
scatter_add   out = x, then out[.., index[.., i, ..], ..] += source[.., i, ..]
index_select  out[.., i, ..] = x[.., index[i], ..]

Negative indices are outside. An index outside gives NaN (0 for integers) in gather and
index_select and is left out in scatter_add. scatter_add sums in the order of the positions, one
program per line: the same result in every run and on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.errors import ShapeError
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    ACCUMULATE,
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
    block_size,
    ceil_div,
    fold_axis,
    inputs,
    language_type,
    outputs,
)
from isthmus.ops.shaping import copy_launch
from isthmus.ops.standard import (
    REQUIRED,
    Attrs,
    Launch,
    Operator,
    Plan,
    TensorSpec,
    View,
    register,
)

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__: list[str] = []


def _keep(array: Any) -> np.ndarray:
    given = np.asarray(array)
    return given if given.dtype.kind in "iub" else real(given)


def _along_axis(op: str, x: TensorSpec, index: TensorSpec, axis: int) -> None:
    axis = normal_axis(op, axis, len(x.shape))
    require_dtypes(op, "index", index, ("i64",))
    same = len(index.shape) == len(x.shape) and all(
        position == axis or index.shape[position] == size for position, size in enumerate(x.shape)
    )
    if not same:
        raise ShapeError(
            f"{op}: index {list(index.shape)} must equal x {list(x.shape)} except along axis {axis}"
        )


def _gather_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    x, index = specs
    _along_axis("gather", x, index, attrs["axis"])
    return [TensorSpec(index.shape, x.dtype)]


def _outside(x: np.ndarray) -> Any:
    return np.nan if x.dtype.kind == "f" else 0


def _gather_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x, index = _keep(arrays[0]), np.asarray(arrays[1], np.int64)
    size = x.shape[attrs["axis"]]
    valid = (index >= 0) & (index < size)
    if size == 0:
        return [np.full(index.shape, _outside(x), x.dtype)]
    taken = np.take_along_axis(x, np.where(valid, index, 0), attrs["axis"])
    return [np.where(valid, taken, _outside(x)).astype(x.dtype)]


def _scatter_add_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    x, index, source = specs
    _along_axis("scatter_add", x, index, attrs["axis"])
    require_same_dtype("scatter_add", [x, source])
    require_shape("scatter_add", "source", source, index.shape)
    return [x]


def _scatter_add_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x, index, source = _keep(arrays[0]), np.asarray(arrays[1], np.int64), _keep(arrays[2])
    out = np.moveaxis(x.copy(), attrs["axis"], 0)
    index, source = (np.moveaxis(array, attrs["axis"], 0) for array in (index, source))
    places = np.nonzero((index >= 0) & (index < out.shape[0]))
    np.add.at(out, (index[places], *places[1:]), source[places])
    return [np.moveaxis(out, 0, attrs["axis"])]


def _index_select_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    x, index = specs
    axis = normal_axis("index_select", attrs["axis"], len(x.shape))
    require_dtypes("index_select", "index", index, ("i64",))
    if len(index.shape) != 1:
        raise ShapeError(f"index_select: index has shape {list(index.shape)}, expected [K]")
    return [TensorSpec((*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]), x.dtype)]


def _index_select_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x, index = _keep(arrays[0]), np.asarray(arrays[1], np.int64)
    axis = attrs["axis"] % x.ndim
    valid = (index >= 0) & (index < x.shape[axis])
    shape = (*x.shape[:axis], index.size, *x.shape[axis + 1 :])
    if x.shape[axis] == 0:
        return [np.full(shape, _outside(x), x.dtype)]
    taken = np.take(x, np.where(valid, index, 0), axis)
    column = valid.reshape([-1 if position == axis else 1 for position in range(x.ndim)])
    return [np.where(column, taken, _outside(x)).astype(x.dtype)]


@jit
def gather_kernel(
    x_ptr, index_ptr, out_ptr, N, K, inner,
    FILL: tl.constexpr, FULL: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """[outer, N, inner] by index into [outer, K, inner]; index has the output's shape (FULL), or
    is [K]. Programs: inner along x, K along y, outer along z."""
    columns = (tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I))[None, :]
    places = (tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K))[:, None]
    outer = tl.program_id(2).to(tl.int64)
    mask = (places < K) & (columns < inner)
    offsets = (outer * K + places) * inner + columns
    if FULL:
        index = tl.load(index_ptr + offsets, mask=mask, other=-1)
    else:
        index = tl.load(index_ptr + places, mask=places < K, other=-1)
    valid = (index >= 0) & (index < N)
    x = tl.load(x_ptr + (outer * N + index) * inner + columns, mask=mask & valid, other=FILL)
    tl.store(out_ptr + offsets, x, mask=mask)


@jit
def scatter_add_kernel(
    sum_ptr, index_ptr, source_ptr, N, K, inner, BLOCK_I: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Add source [outer, K, inner] into sum [outer, N, inner], the K positions in order."""
    columns = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    outer = tl.program_id(1).to(tl.int64)
    inside = columns < inner
    for position in range(K):
        offsets = (outer * K + position) * inner + columns
        index = tl.load(index_ptr + offsets, mask=inside, other=-1)
        mask = inside & (index >= 0) & (index < N)
        places = sum_ptr + (outer * N + index) * inner + columns
        source = tl.load(source_ptr + offsets, mask=mask, other=0).to(ACC)
        tl.store(places, tl.load(places, mask=mask, other=0).to(ACC) + source, mask=mask)


def _gather_plan(full: bool) -> Any:
    def plan(
        views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
    ) -> Plan:
        x, _ = views
        (out,) = outs
        if out.size == 0:
            return Plan(())
        outer, count, inner = fold_axis(out.shape, attrs["axis"])
        block_i = block_size(inner, 1024, target)
        block_k = block_size(count, max(1, 8192 // block_i), target)
        args = {
            "x_ptr": inputs(0), "index_ptr": inputs(1), "out_ptr": outputs(0),
            "N": x.shape[attrs["axis"]], "K": count, "inner": inner,
            "FILL": float("nan") if x.dtype.is_float else 0, "FULL": full,
            "BLOCK_K": block_k, "BLOCK_I": block_i,
        }  # fmt: skip
        grid = (ceil_div(inner, block_i), ceil_div(count, block_k), outer)
        return Plan((Launch(gather_kernel, args, grid),))

    return plan


def _scatter_add_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    x, index, _ = views
    if x.size == 0:
        return Plan(())
    outer, size, inner = fold_axis(x.shape, attrs["axis"])
    block_i = block_size(inner, 128, target)
    count = index.shape[attrs["axis"]]
    args = {
        "sum_ptr": outputs(0), "index_ptr": inputs(1), "source_ptr": inputs(2), "N": size,
        "K": count, "inner": inner, "BLOCK_I": block_i,
        "ACC": language_type(ACCUMULATE.get(x.dtype.name, x.dtype)),
    }  # fmt: skip
    copy = copy_launch(inputs(0), x, outputs(0), outs[0].strides, target)
    add = Launch(scatter_add_kernel, args, (ceil_div(inner, block_i), outer, 1))
    return Plan((copy, add) if count else (copy,))


register(
    Operator(
        name="gather",
        doc=__doc__ or "",
        inputs=("x", "index"),
        infer=_gather_infer,
        reference=_gather_reference,
        plan=_gather_plan(full=True),
        cost=cost_of(0),
        attrs={"axis": REQUIRED},
        tolerance=tolerances(0, "a copy, exact"),
        nan="NaN is copied; an index outside gives NaN",
    )
)
register(
    Operator(
        name="scatter_add",
        doc="x with source added at index along one axis; deterministic.",
        inputs=("x", "index", "source"),
        infer=_scatter_add_infer,
        reference=_scatter_add_reference,
        plan=_scatter_add_plan,
        strided_inputs=(0,),
        cost=cost_of(lambda specs, _outputs, _attrs: specs[2].size),
        attrs={"axis": REQUIRED},
        tolerance=tolerances(
            8, "a sum of one term per use, in order", absolute_ulps=64, half_ulps=8
        ),
        nan="NaN reaches the elements it is added to only",
        empty="x without positions",
        inplace={0: (0,)},
    )
)
register(
    Operator(
        name="index_select",
        doc="Slices of x along one axis, by index.",
        inputs=("x", "index"),
        infer=_index_select_infer,
        reference=_index_select_reference,
        plan=_gather_plan(full=False),
        cost=cost_of(0),
        attrs={"axis": REQUIRED},
        tolerance=tolerances(0, "a copy, exact"),
        nan="NaN is copied; an index outside gives NaN",
    )
)
