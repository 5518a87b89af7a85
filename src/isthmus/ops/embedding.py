"""Rows of a table by index, and the gradient of the table.

embedding           out[.., :] = weight[index[..], :]
embedding_backward  dweight[v, :] = sum over positions with index == v of grad[.., :]

Every row of dweight is summed in the order of the positions by one program: the result does not
depend on threads or runs. An index outside [0, V) gives NaN forward and is left out backward;
positions with padding_idx (>= 0) are left out backward.

Shapes: weight [V, D]; index any shape, i64; out index.shape + [D].
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
    FLOATS,
    Arrays,
    Specs,
    cost_of,
    prod,
    real,
    require_dtypes,
    require_shape,
    tolerances,
)
from isthmus.ops.schedule import (
    accumulate_type,
    block_size,
    ceil_div,
    divide,
    inputs,
    outputs,
    row_block,
    rows_per_program,
    workspace,
)
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


def _infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    weight, index = specs
    require_dtypes("embedding", "weight", weight, FLOATS)
    require_dtypes("embedding", "index", index, ("i64",))
    if len(weight.shape) != 2:
        raise ShapeError(f"embedding: weight has shape {list(weight.shape)}, expected [V, D]")
    return [TensorSpec((*index.shape, weight.shape[1]), weight.dtype)]


def _reference(arrays: Arrays, _attrs: Attrs) -> list[np.ndarray]:
    weight, index = real(arrays[0]), np.asarray(arrays[1], np.int64)
    valid = (index >= 0) & (index < weight.shape[0])
    out = np.full((*index.shape, weight.shape[1]), np.nan)
    out[valid] = weight[index[valid]]
    return [out]


def _backward_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    grad, index = specs
    require_dtypes("embedding_backward", "grad", grad, FLOATS)
    require_dtypes("embedding_backward", "index", index, ("i64",))
    if not grad.shape:
        raise ShapeError("embedding_backward: grad has no dimensions, expected index.shape + [D]")
    require_shape("embedding_backward", "grad", grad, (*index.shape, grad.shape[-1]))
    return [TensorSpec((attrs["rows"], grad.shape[-1]), grad.dtype)]


def _backward_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    grad, index = real(arrays[0]), np.asarray(arrays[1], np.int64).reshape(-1)
    grad = grad.reshape(index.size, grad.shape[-1])
    out = np.zeros((attrs["rows"], grad.shape[-1]))
    kept = (index >= 0) & (index < attrs["rows"]) & (index != attrs["padding_idx"])
    np.add.at(out, index[kept], grad[kept])
    return [out]


@jit
def embedding_kernel(
    weight_ptr, index_ptr, out_ptr, count, V, stride_wv, stride_wd,
    D: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ROWS rows of the output per program."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    columns = tl.arange(0, BLOCK)
    for row in range(first, min(first + ROWS, count)):
        index = tl.load(index_ptr + row)
        valid = (index >= 0) & (index < V)
        for start in range(0, D, BLOCK):
            mask = start + columns < D
            x = tl.load(
                weight_ptr + index * stride_wv + (start + columns) * stride_wd,
                mask=mask & valid, other=float("nan"),
            )  # fmt: skip
            tl.store(out_ptr + row * D + start + columns, x, mask=mask)


@jit
def embedding_backward_kernel(
    grad_ptr, index_ptr, sum_ptr, out_ptr, count, V, padding_idx,
    D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_V: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of the table per program: zero them, then add the positions in order.

    Sums are kept in sum_ptr, which is out_ptr itself where its dtype is that of the sums.
    """
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < D
    lines = tl.arange(0, BLOCK_V).to(tl.int64)
    for start in range(0, V, BLOCK_V):
        offsets = (start + lines)[:, None] * D + columns[None, :]
        inside = (start + lines < V)[:, None] & mask[None, :]
        tl.store(sum_ptr + offsets, tl.zeros((BLOCK_V, BLOCK), ACC), mask=inside)
    for position in range(count):
        index = tl.load(index_ptr + position)
        if (index >= 0) & (index < V) & (index != padding_idx):
            grad_row = grad_ptr + tl.cast(position, tl.int64) * D
            grad = tl.load(grad_row + columns, mask=mask, other=0.0)
            sums = tl.load(sum_ptr + index * D + columns, mask=mask, other=0.0)
            tl.store(sum_ptr + index * D + columns, sums + grad.to(ACC), mask=mask)
    if out_ptr is not None:
        for start in range(0, V, BLOCK_V):
            offsets = (start + lines)[:, None] * D + columns[None, :]
            inside = (start + lines < V)[:, None] & mask[None, :]
            tl.store(out_ptr + offsets, tl.load(sum_ptr + offsets, mask=inside), mask=inside)


def _plan(
    views: Sequence[Any], outs: Sequence[View], _attrs: Attrs, target: TargetDescription
) -> Plan:
    weight, index = views
    rows, width = index.size, weight.shape[1]
    if rows * width == 0:
        return Plan(())
    per_program = rows_per_program(rows, width)
    args = {
        "weight_ptr": inputs(0), "index_ptr": inputs(1), "out_ptr": outputs(0), "count": rows,
        "V": weight.shape[0], "stride_wv": weight.strides[0], "stride_wd": weight.strides[1],
        "D": width, "ROWS": per_program, "BLOCK": row_block(width, target),
    }  # fmt: skip
    return Plan((Launch(embedding_kernel, args, (ceil_div(rows, per_program), 1, 1)),))


def _backward_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    _, index = views
    (out,) = outs
    if out.size == 0:
        return Plan(())
    table, width = out.shape
    block = block_size(width, divide(width, 32, 16), target)
    accumulate = ACCUMULATE[out.dtype.name]
    apart = accumulate is not out.dtype
    args = {
        "grad_ptr": inputs(0), "index_ptr": inputs(1),
        "sum_ptr": workspace(0, accumulate) if apart else outputs(0),
        "out_ptr": outputs(0) if apart else None, "count": index.size, "V": table,
        "padding_idx": attrs["padding_idx"], "D": width,
        "BLOCK": block, "BLOCK_V": block_size(table, 64, target), "ACC": accumulate_type(out.dtype),
    }  # fmt: skip
    space = (out.size * accumulate.size_bytes,) if apart else ()
    return Plan((Launch(embedding_backward_kernel, args, (ceil_div(width, block), 1, 1)),), space)


register(
    Operator(
        name="embedding",
        doc=__doc__ or "",
        inputs=("weight", "index"),
        infer=_infer,
        reference=_reference,
        plan=_plan,
        strided_inputs=(0,),
        cost=cost_of(0),
        tolerance=tolerances(0, "a copy, exact"),
        gradient="embedding_backward",
        nan="NaN rows are copied; an index outside the table gives NaN",
    )
)
register(
    Operator(
        name="embedding_backward",
        doc="The gradient of the table of an embedding; deterministic.",
        inputs=("grad", "index"),
        infer=_backward_infer,
        reference=_backward_reference,
        plan=_backward_plan,
        cost=cost_of(lambda specs, _outputs, _attrs: prod(specs[0].shape)),
        attrs={"rows": REQUIRED, "padding_idx": -1},
        tolerance=tolerances(
            8, "a sum of one term per use of the row, in order", absolute_ulps=1024
        ),
        gradient="none",
        nan="NaN in grad reaches the row of its index only",
        empty="zeros without positions",
    )
)
