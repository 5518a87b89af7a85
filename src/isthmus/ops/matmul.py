"""Matrix product, batched and broadcast, with an optional bias.

out[.., m, n] = sum_k a[.., m, k] * b[.., k, n] (+ bias[n])

Shapes: a [.., M, K], b [.., K, N]; batch dimensions broadcast; bias [N].
Types:  floats of one dtype, sums in f32 (f64 for f64); i8 times i8 gives i32.
Cost:   2*M*N*K flops per batch.

Epilogue: `matmul_kernel` takes a jit function EPILOGUE that works on the finished block before it
is stored, so that element-wise operators after the product need no pass of their own:

    result = EPILOGUE(acc, offsets, rows, columns, mask, extra0_ptr, .., extra3_ptr)

acc      [BLOCK_M, BLOCK_N] product with bias, in ACC (f32, f64 or i32)
offsets  [BLOCK_M, BLOCK_N] i64, element number in the contiguous output
rows     [BLOCK_M, 1] i64 row and columns [1, BLOCK_N] i64 column within the matrix
mask     [BLOCK_M, BLOCK_N] what is inside the output
extra    up to four more pointers, None where unused

It gives the block to store; it may store others itself. `matmul_plan(..., epilogue=, extra=)`
makes the plan of a product with an epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.dtypes import DTYPES
from isthmus.core.errors import ProgramError, ShapeError
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    ACCUMULATE,
    FLOATS,
    Arrays,
    Specs,
    broadcast_shapes,
    cost_of,
    real,
    require_dtypes,
    require_same_dtype,
    require_shape,
    tolerances,
)
from isthmus.ops.schedule import (
    block_size,
    ceil_div,
    collapse,
    divide,
    inputs,
    language_type,
    optional_input,
    outputs,
)
from isthmus.ops.standard import (
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

__all__ = ["matmul_kernel", "matmul_plan"]


def _infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    a, b, bias = specs
    require_dtypes("matmul", "a", a, (*FLOATS, "i8"))
    dtype = require_same_dtype("matmul", [a, b])
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul: {list(a.shape)} and {list(b.shape)} do not multiply; "
            "expected [.., M, K] and [.., K, N]"
        )
    batch = broadcast_shapes("matmul", [a.shape[:-2], b.shape[:-2]])
    out = DTYPES["i32"] if dtype.name == "i8" else dtype
    if bias is not None:
        require_dtypes("matmul", "bias", bias, (out.name,))
        require_shape("matmul", "bias", bias, b.shape[-1:])
    return [TensorSpec((*batch, a.shape[-2], b.shape[-1]), out)]


def _reference(arrays: Arrays, _attrs: Attrs) -> list[np.ndarray]:
    a, b, bias = arrays
    if np.asarray(a).dtype.kind == "i":
        out = np.matmul(np.asarray(a, np.int32), np.asarray(b, np.int32))
        return [out if bias is None else out + np.asarray(bias)]
    with np.errstate(all="ignore"):
        out = np.matmul(real(a), real(b))
        return [out if bias is None else out + real(bias)]


def _flops(specs: Specs, outputs: Specs, _attrs: Attrs) -> int:
    return 2 * outputs[0].size * specs[0].shape[-1]


@jit
def matmul_kernel(
    a_ptr, b_ptr, bias_ptr, out_ptr, extra0_ptr, extra1_ptr, extra2_ptr, extra3_ptr,
    M, N, K, size_2, size_1,
    stride_a3, stride_a2, stride_a1, stride_am, stride_ak,
    stride_b3, stride_b2, stride_b1, stride_bk, stride_bn,
    ACC: tl.constexpr, EVEN_K: tl.constexpr, EPILOGUE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One block of the output per program; programs along y walk up to three batch dimensions."""
    blocks_n = tl.cdiv(N, BLOCK_N)
    batch = tl.program_id(1).to(tl.int64)
    third, second, last = batch // (size_2 * size_1), batch // size_1 % size_2, batch % size_1
    a_ptr += third * stride_a3 + second * stride_a2 + last * stride_a1
    b_ptr += third * stride_b3 + second * stride_b2 + last * stride_b1
    rows = (tl.program_id(0) // blocks_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    columns = (tl.program_id(0) % blocks_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    depth = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), ACC)
    for k in range(0, K, BLOCK_K):
        left, right = (k + depth)[None, :], (k + depth)[:, None]
        a_mask, b_mask = rows < M, columns < N
        if not EVEN_K:
            a_mask, b_mask = a_mask & (left < K), b_mask & (right < K)
        a = tl.load(a_ptr + rows * stride_am + left * stride_ak, mask=a_mask, other=0)
        b = tl.load(b_ptr + right * stride_bk + columns * stride_bn, mask=b_mask, other=0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    mask = (rows < M) & (columns < N)
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + columns, mask=columns < N, other=0).to(ACC)
    offsets = batch * M * N + rows * N + columns
    if EPILOGUE is not None:
        acc = EPILOGUE(
            acc, offsets, rows, columns, mask, extra0_ptr, extra1_ptr, extra2_ptr, extra3_ptr
        )
    tl.store(out_ptr + offsets, acc, mask=mask)


#: Candidates for the block of a program, most of them multiples of the register tiles.
_ROWS = (48, 96, 144, 192, 288)
_COLUMNS = (64, 128, 192, 256, 384, 512)


def matmul_blocks(
    m: int, n: int, k: int, batch: int, target: TargetDescription
) -> tuple[int, int, int]:
    """(BLOCK_M, BLOCK_N, BLOCK_K): the least estimated time on all cores.

    A program's time is its arithmetic, with a share on top for packing that narrow blocks reuse
    less; programs run in rounds of one per core, and the last core is a quarter of a round late.
    BLOCK_K comes from k alone: it decides the order of the sums.
    """
    block_k = _block_k(k) if target.any_block_size else block_size(k, 256, target)

    def size(extent: int, limit: int, multiple: int) -> int:
        if target.any_block_size:
            return divide(extent, limit, multiple)
        return block_size(extent, 1 << (limit.bit_length() - 1), target)

    def time(blocks: tuple[int, int]) -> float:
        rows, columns = blocks
        programs = batch * ceil_div(m, rows) * ceil_div(n, columns)
        rounds = ceil_div(programs, target.cores) + 0.25
        return rounds * rows * columns * (1.0 + 3.0 / rows + 10.0 / columns)

    heights = {size(m, rows, 6) for rows in _ROWS}
    widths = {size(n, columns, 16) for columns in _COLUMNS}
    candidates = sorted(((a, b) for a in heights for b in widths), reverse=True)
    return (*min(candidates, key=time), block_k)


def _block_k(k: int) -> int:
    """The largest divisor of k that is between 128 and 384, else an even split of k."""
    if k <= 384:
        return max(k, 1)
    for block in range(384, 127, -1):
        if k % block == 0:
            return block
    return divide(k, 256, 8)


def _batch(shape: Sequence[int], a: View, b: View) -> tuple[list[int], list[list[int]]]:
    """Batch sizes merged to three at most, with the strides of a and b (0 where they repeat)."""

    def strides(view: View) -> list[int]:
        own = [
            0 if size == 1 else step
            for size, step in zip(view.shape[:-2], view.strides[:-2], strict=True)
        ]
        return [0] * (len(shape) - len(own)) + own

    sizes, (a_strides, b_strides, _) = collapse(
        shape, [strides(a), strides(b), contiguous_strides(shape)]
    )
    if len(sizes) > 3:
        raise ProgramError(
            f"matmul: batch dimensions {list(shape)} do not merge to three",
            hint="copy the operands to row-major order first",
        )
    missing = 3 - len(sizes)
    return [1] * missing + sizes, [[0] * missing + a_strides, [0] * missing + b_strides]


def _rows_merge(a: View, b: View) -> View | None:
    """a with its batch folded into the rows, where one b serves all of the batch."""
    if len(a.shape) < 3 or any(size != 1 for size in b.shape[:-2]):
        return None
    sizes, (strides,) = collapse(a.shape[:-1], [a.strides[:-1]])
    if len(sizes) > 1:
        return None
    rows, step = (sizes[0], strides[0]) if sizes else (1, a.shape[-1])
    return View((rows, a.shape[-1]), a.dtype, (step, a.strides[-1]))


def matmul_plan(
    a: View, b: View, bias: View | None, out: View, target: TargetDescription,
    *, epilogue: Any = None, extra: Sequence[Slot] = (),
) -> Plan:  # fmt: skip
    """One launch; see the module for `epilogue` and the slots of its extra pointers."""
    if out.size == 0:
        return Plan(())
    shape = out.shape
    folded = _rows_merge(a, b)
    if folded is not None:
        a, shape = folded, (folded.shape[0], shape[-1])
    (m, n), k = shape[-2:], a.shape[-1]
    sizes, (a_strides, b_strides) = _batch(shape[:-2], a, b)
    batch = sizes[0] * sizes[1] * sizes[2]
    block_m, block_n, block_k = matmul_blocks(m, n, k, batch, target)
    accumulate = DTYPES["i32"] if a.dtype.name == "i8" else ACCUMULATE[a.dtype.name]
    args: dict[str, Any] = {
        "a_ptr": inputs(0), "b_ptr": inputs(1), "bias_ptr": optional_input(bias, 2),
        "out_ptr": outputs(0), "M": m, "N": n, "K": k, "size_2": sizes[1], "size_1": sizes[2],
        "stride_am": a.strides[-2], "stride_ak": a.strides[-1],
        "stride_bk": b.strides[-2], "stride_bn": b.strides[-1],
        "ACC": language_type(accumulate), "EVEN_K": k % block_k == 0, "EPILOGUE": epilogue,
        "BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k,
    }  # fmt: skip
    for place in range(3):
        args[f"stride_a{3 - place}"] = a_strides[place]
        args[f"stride_b{3 - place}"] = b_strides[place]
    for index in range(4):
        args[f"extra{index}_ptr"] = extra[index] if index < len(extra) else None
    grid = (ceil_div(m, block_m) * ceil_div(n, block_n), batch, 1)
    return Plan((Launch(matmul_kernel, args, grid),))


def _plan(
    views: Sequence[Any], outs: Sequence[View], _attrs: Attrs, target: TargetDescription
) -> Plan:
    a, b, bias = views
    return matmul_plan(a, b, bias, outs[0], target)


register(
    Operator(
        name="matmul",
        doc=__doc__ or "",
        inputs=("a", "b", "bias?"),
        infer=_infer,
        reference=_reference,
        cost=cost_of(_flops),
        plan=_plan,
        strided_inputs=(0, 1),
        tolerance=tolerances(
            16,
            "sums of up to 4096 products of magnitude 1 in f32 (f64 for f64), blocked",
            absolute_ulps=256,
        ),
        nan="NaN or inf - inf anywhere in a row or column reaches its products",
        empty="zeros (or bias) where K is 0; empty where M, N or a batch is 0",
    )
)
