"""Functions of the language that are written in the language."""

from __future__ import annotations

# pyright: reportAssignmentType=false, reportArgumentType=false, reportOperatorIssue=false
# ruff: noqa: SIM108, RUF005  (kernels have no conditional expressions of blocks)
from isthmus.language import blocks, math, operations, reductions
from isthmus.language.operations import static_assert, static_range
from isthmus.language.source import helper
from isthmus.language.types import dtype, int1, integer_of
from isthmus.language.values import constexpr, constexpr_function

__all__ = ["bitonic_merge", "flip", "softmax", "sort", "swizzle2d", "topk"]


@constexpr_function
def log2_of(size: int) -> int:
    """Logarithm of a power of two."""
    return size.bit_length() - 1


_log2 = log2_of  # the name that other kernel libraries reach for


@constexpr_function
def is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0


@constexpr_function
def last_axis(dim: int | None, rank: int) -> int:
    """A dimension number counted from the front; the last one for None."""
    if dim is None:
        return rank - 1
    return dim + rank if dim < 0 else dim


@constexpr_function
def bits_type(element: dtype) -> dtype:
    """The integer dtype of the same width."""
    return integer_of(element.primitive_bitwidth)


@helper
def softmax(x, dim=None, keep_dims=False, ieee_rounding=False):
    """Softmax along `dim` (the first dimension by default)."""
    axis: constexpr = 0 if dim is None else dim
    shifted = x - reductions.max(x, axis, keep_dims=True)
    weights = math.exp(shifted)
    return weights / reductions.sum(weights, axis, keep_dims=True)


@helper
def swizzle2d(i, j, size_i, size_j, size_g):
    """Indices of a row-major size_i x size_j grid, walked column by column in groups of rows."""
    place = i * size_j + j
    group_size = size_g * size_j
    group = place // group_size
    first_row = group * size_g
    rows = operations.minimum(size_i - first_row, size_g)
    place = place % group_size
    return first_row + place % rows, place // rows


@helper
def halves(rank: constexpr, place: constexpr):
    """0 and 1 along the dimension that is `place` from the end, of `rank` dimensions of 2."""
    pair = blocks.arange(0, 2)
    return blocks.reshape(pair, [1] * (rank - place - 1) + [2] + [1] * place)


@helper
def compare_and_swap(x, flip, place: constexpr):
    """Order neighbours along the dimension that is `place` from the end."""
    rank: constexpr = log2_of(x.numel)
    bits = x.to(bits_type(x.dtype), bitcast=True)
    other = bits ^ reductions.xor_sum(bits, rank - 1 - place, True)
    neighbour = other.to(x.dtype, bitcast=True)
    is_right = halves(rank, place)
    return operations.where((x > neighbour) != (flip ^ is_right).to(int1), neighbour, x)


@helper
def merge_stage(x, stage: constexpr, order: constexpr):
    """One bitonic merge; order 0 ascends, 1 descends, 2 alternates."""
    if order == 2:
        flip = halves(log2_of(x.numel), stage)
    else:
        flip = order
    for step in static_range(stage):
        x = compare_and_swap(x, flip, stage - 1 - step)
    return x


@helper
def sort_keeping(x, k: constexpr, dim: constexpr, descending: constexpr):
    """The k first elements of each row of the last dimension, in order."""
    axis: constexpr = last_axis(dim, len(x.shape))
    static_assert(axis == len(x.shape) - 1, "sorting is along the last dimension")
    static_assert(is_power_of_two(x.numel), "sorting needs a power of two of elements")
    size: constexpr = x.shape[axis]
    length: constexpr = log2_of(size)
    kept: constexpr = length if k is None else log2_of(k)
    direction: constexpr = 1 if descending else 0
    if k is not None:
        static_assert(is_power_of_two(k) and k <= size, "k must be a power of two up to the size")
    if kept == 0:
        if descending:
            result = reductions.max(x, axis, keep_dims=True).to(x.dtype)
        else:
            result = reductions.min(x, axis, keep_dims=True).to(x.dtype)
    else:
        h = blocks.reshape(x, [2] * log2_of(x.numel))
        for i in static_range(1, kept + 1):
            h = merge_stage(h, i, 2 if i < length else direction)
        for i in static_range(kept + 1, length + 1):
            if descending:
                h = reductions.max(h, log2_of(h.numel) - 1 - kept).to(x.dtype)
            else:
                h = reductions.min(h, log2_of(h.numel) - 1 - kept).to(x.dtype)
            h = merge_stage(h, kept, 2 if i < length else direction)
        result = blocks.reshape(h, x.shape[:-1] + (2**kept,))
    return result


@helper
def sort(x, dim: constexpr = None, descending: constexpr = False):
    """Each row of the last dimension in order."""
    return sort_keeping(x, None, dim, descending)


@helper
def topk(x, k: constexpr, dim: constexpr = None, descending: constexpr = True):
    """The k largest (or smallest) of each row of the last dimension, in order."""
    return sort_keeping(x, k, dim, descending)


@helper
def bitonic_merge(x, dim: constexpr = None, descending: constexpr = False):
    """Order each row of the last dimension that rises and then falls, or falls and then rises."""
    axis: constexpr = last_axis(dim, len(x.shape))
    static_assert(axis == len(x.shape) - 1, "merging is along the last dimension")
    direction: constexpr = 1 if descending else 0
    h = blocks.reshape(x, [2] * log2_of(x.numel))
    h = merge_stage(h, log2_of(x.shape[axis]), direction)
    return blocks.reshape(h, x.shape)


@helper
def flip(x, dim: constexpr = None):
    """The elements along `dim` (the last by default) from the end to the start."""
    axis: constexpr = last_axis(dim, len(x.shape))
    static_assert(0 <= axis < len(x.shape), "flip: no such dimension")
    static_assert(is_power_of_two(x.shape[axis]), "flip needs a power of two of elements")
    steps: constexpr = log2_of(x.shape[axis])
    bits = x.to(bits_type(x.dtype), bitcast=True)
    y = blocks.reshape(bits, x.shape[:axis] + (2,) * steps + x.shape[axis + 1 :])
    for step in static_range(steps):
        y = y ^ reductions.xor_sum(y, axis + step, True)
    return blocks.reshape(y, x.shape).to(x.dtype, bitcast=True)
