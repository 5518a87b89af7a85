"""Programs, ranges, constants and shapes: `tl.program_id`, `tl.arange`, `tl.full`, `tl.trans`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from isthmus.ir.core import Region
from isthmus.ir.types import TileType
from isthmus.language.emitter import Emitter, describe
from isthmus.language.types import dtype, int32, integer_of, pointer_type
from isthmus.language.values import Tensor, builtin, unwrap

__all__ = [
    "arange", "broadcast", "broadcast_to", "cat", "expand_dims", "flatten_shape", "full", "gather",
    "histogram", "interleave", "item", "join", "num_programs", "permute", "program_id", "ravel",
    "reshape", "split", "squeeze", "trans", "unsqueeze", "view", "zeros", "zeros_like",
]  # fmt: skip


def _grid_axis(emitter: Emitter, name: str, axis: Any) -> Tensor:
    number = emitter.static_int(axis, "the axis")
    if number not in (0, 1, 2):
        emitter.fail("K404", f"the grid has axes 0, 1 and 2, got {number}")
    return Tensor(emitter.builder.emit(f"tile.{name}", axis=number), int32)


@builtin
def program_id(emitter: Emitter, axis: Any) -> Tensor:
    """This program's place along `axis` of the grid, i32."""
    return _grid_axis(emitter, "program_id", axis)


@builtin
def num_programs(emitter: Emitter, axis: Any) -> Tensor:
    """How many programs the grid has along `axis`, i32."""
    return _grid_axis(emitter, "num_programs", axis)


@builtin
def arange(emitter: Emitter, start: Any, end: Any) -> Tensor:
    """Consecutive i32 from `start`, `end` excluded; both known at compile time."""
    low = emitter.static_int(start, "the start of tl.arange")
    high = emitter.static_int(end, "the end of tl.arange")
    if not -(2**31) <= low < high <= 2**31:
        emitter.fail("K401", f"tl.arange({low}, {high}) is empty or does not fit i32")
    shape = emitter.block_shape((high - low,), f"tl.arange({low}, {high})")
    return Tensor(emitter.builder.emit("tile.arange", start=low, end=high), int32, shape)


def flatten_shape(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """A shape is given as one tuple or as separate numbers."""
    if len(arguments) == 1:
        first = unwrap(arguments[0])
        if isinstance(first, (tuple, list)):
            return tuple(map(unwrap, first))
    return tuple(map(unwrap, arguments))


def as_dtype(emitter: Emitter, value: Any) -> Any:
    """A dtype argument."""
    element = unwrap(value)
    if not isinstance(element, (dtype, pointer_type)):
        emitter.fail("K303", f"expected a dtype such as tl.float32, got {describe(element)}")
    return element


@builtin
def full(emitter: Emitter, shape: Any, value: Any, dtype: Any) -> Tensor:
    """A block of `shape` filled with one value; a scalar for shape ()."""
    sizes = emitter.block_shape(flatten_shape((shape,)))
    element, filling = as_dtype(emitter, dtype), unwrap(value)
    if not isinstance(filling, Tensor):
        return emitter.splat(emitter.literal(filling, element), sizes)
    if filling.shape:
        if filling.numel != 1:
            emitter.fail("K403", f"tl.full takes one value, got {describe(filling)}")
        filling = item.build(emitter, filling)
    return emitter.splat(emitter.cast(filling, element), sizes)


@builtin
def zeros(emitter: Emitter, shape: Any, dtype: Any) -> Tensor:
    """A block of zeros."""
    return full.build(emitter, shape, 0, dtype)


@builtin
def zeros_like(emitter: Emitter, input: Any) -> Tensor:  # noqa: A002
    """Zeros with the shape and dtype of a block."""
    block = emitter.tensor(input)
    return emitter.splat(emitter.literal(0, block.dtype), block.shape)


@builtin
def broadcast(emitter: Emitter, input: Any, other: Any) -> tuple[Tensor, ...]:  # noqa: A002
    """Two values in their common shape."""
    return tuple(emitter.broadcast(emitter.tensor(input), emitter.tensor(other)))


@builtin
def broadcast_to(emitter: Emitter, input: Any, *shape: Any) -> Tensor:  # noqa: A002
    """A block repeated to `shape`."""
    sizes = emitter.block_shape(flatten_shape(shape))
    return emitter.broadcast_to(emitter.tensor(input), sizes)


@builtin
def expand_dims(emitter: Emitter, input: Any, axis: Any) -> Tensor:  # noqa: A002
    """Dimensions of size 1 inserted at `axis`, one number or several."""
    block, places = emitter.tensor(input), flatten_shape((axis,))
    rank = len(block.shape) + len(places)
    for place in sorted(emitter.axis(place, rank) for place in places):
        block = emitter.expand_dims(block, place)
    return block


@builtin
def unsqueeze(emitter: Emitter, x: Any, dim: Any) -> Tensor:
    """One dimension of size 1 inserted at `dim`."""
    return expand_dims.build(emitter, x, dim)


@builtin
def squeeze(emitter: Emitter, x: Any, dim: Any) -> Tensor:
    """The dimension `dim`, which has size 1, removed."""
    block = emitter.tensor(x)
    place = emitter.axis(dim, len(block.shape))
    if block.shape[place] != 1:
        emitter.fail("K405", f"dimension {place} has size {block.shape[place]}, not 1")
    return _reshape(emitter, block, block.shape[:place] + block.shape[place + 1 :])


def _reshape(emitter: Emitter, block: Tensor, shape: tuple[int, ...]) -> Tensor:
    if shape == block.shape:
        return block
    if math.prod(shape) != block.numel:
        emitter.fail(
            "K405",
            f"shape {list(shape)} has {math.prod(shape)} elements, the block {block.numel}",
        )
    if not block.shape:
        return emitter.splat(block, shape)
    if not shape:
        return _only_element(emitter, block)
    kind = TileType(shape, block.dtype.ir)
    value = emitter.builder.emit("tile.reshape", emitter.value(block), type=kind)
    return Tensor(value, block.dtype, shape)


def _only_element(emitter: Emitter, block: Tensor) -> Tensor:
    """The scalar in a block of one element."""
    bits = block
    if not block.dtype.is_int():
        bits = emitter.bitcast(block, integer_of(block.dtype.primitive_bitwidth))
    for _ in block.shape:
        value = emitter.builder.emit(
            "tile.reduce", emitter.value(bits), axis=0, kind="ori", regions=[Region()]
        )
        bits = Tensor(value, bits.dtype, bits.shape[1:])
    return bits if block.dtype.is_int() else emitter.bitcast(bits, block.dtype)


@builtin
def reshape(emitter: Emitter, input: Any, *shape: Any, can_reorder: Any = False) -> Tensor:  # noqa: A002
    """The same elements in row-major order under another shape."""
    return _reshape(emitter, emitter.tensor(input), emitter.block_shape(flatten_shape(shape)))


@builtin
def view(emitter: Emitter, input: Any, *shape: Any) -> Tensor:  # noqa: A002
    """The same as reshape."""
    return _reshape(emitter, emitter.tensor(input), emitter.block_shape(flatten_shape(shape)))


@builtin
def ravel(emitter: Emitter, x: Any, can_reorder: Any = False) -> Tensor:
    """All elements in one dimension."""
    block = emitter.tensor(x)
    return _reshape(emitter, block, (block.numel,))


@builtin
def item(emitter: Emitter, input: Any) -> Tensor:  # noqa: A002
    """The only element of a block, as a scalar."""
    block = emitter.tensor(input)
    if block.numel != 1:
        emitter.fail("K405", f"item needs one element, got {describe(block)}")
    return _reshape(emitter, block, ())


@builtin
def permute(emitter: Emitter, input: Any, *dims: Any) -> Tensor:  # noqa: A002
    """Dimensions in another order: result dimension i is dimension dims[i]."""
    block = emitter.tensor(input)
    rank = len(block.shape)
    order = tuple(emitter.axis(dim, rank) for dim in flatten_shape(dims))
    if sorted(order) != list(range(rank)):
        emitter.fail("K404", f"{list(order)} is no order of the {rank} dimensions of the block")
    value = emitter.builder.emit("tile.trans", emitter.value(block), order=order)
    return Tensor(value, block.dtype, tuple(block.shape[axis] for axis in order))


@builtin
def trans(emitter: Emitter, input: Any, *dims: Any) -> Tensor:  # noqa: A002
    """The last two dimensions exchanged, or all in the order given."""
    block = emitter.tensor(input)
    rank = len(block.shape)
    if not dims:
        if rank < 2:
            emitter.fail("K404", f"tl.trans needs two dimensions, got {describe(block)}")
        dims = (*range(rank - 2), rank - 1, rank - 2)
    return permute.build(emitter, block, *dims)


@builtin
def cat(
    emitter: Emitter, input: Any, other: Any, can_reorder: Any = False, dim: Any = 0,  # noqa: A002
) -> Tensor:  # fmt: skip
    """Two blocks of one shape, one after the other along `dim`; the order is always kept."""
    left, right = emitter.unify(emitter.tensor(input), emitter.tensor(other))
    if left.shape != right.shape or not left.shape:
        emitter.fail("K403", f"tl.cat takes blocks of one shape, got {left} and {right}")
    place = emitter.axis(dim, len(left.shape))
    if place:
        order = (place, *(axis for axis in range(len(left.shape)) if axis != place))
        back = tuple(order.index(axis) for axis in range(len(order)))
        parts = (permute.build(emitter, block, *order) for block in (left, right))
        return permute.build(emitter, cat.build(emitter, *parts), *back)
    value = emitter.builder.emit("tile.cat", emitter.value(left), emitter.value(right))
    return Tensor(value, left.dtype, (2 * left.shape[0], *left.shape[1:]))


@builtin
def join(emitter: Emitter, a: Any, b: Any) -> Tensor:
    """Two blocks side by side along a new last dimension of size 2."""
    left, right = emitter.unify(emitter.tensor(a), emitter.tensor(b))
    left, right = emitter.broadcast(left, right)
    scalars = not left.shape
    if scalars:
        left, right = emitter.splat(left, (1,)), emitter.splat(right, (1,))
    value = emitter.builder.emit("tile.join", emitter.value(left), emitter.value(right))
    joined = Tensor(value, left.dtype, (*left.shape, 2))
    return _reshape(emitter, joined, (2,)) if scalars else joined


@builtin
def split(emitter: Emitter, a: Any) -> tuple[Tensor, Tensor]:
    """The two halves of a last dimension of size 2."""
    block = emitter.tensor(a)
    if not block.shape or block.shape[-1] != 2:
        emitter.fail("K405", f"tl.split needs a last dimension of size 2, got {describe(block)}")
    op = emitter.builder.create("tile.split", emitter.value(block))
    first, second = (Tensor(value, block.dtype, block.shape[:-1]) for value in op.results)
    return first, second


@builtin
def interleave(emitter: Emitter, a: Any, b: Any) -> Tensor:
    """Elements of two blocks in turn along the last dimension."""
    joined = join.build(emitter, a, b)
    if len(joined.shape) == 1:
        return joined
    return _reshape(emitter, joined, (*joined.shape[:-2], 2 * joined.shape[-2]))


@builtin
def gather(emitter: Emitter, src: Any, index: Any, axis: Any) -> Tensor:
    """src[.., index, ..] along `axis`."""
    source, places = emitter.tensor(src), emitter.tensor(index)
    dim = emitter.axis(axis, len(source.shape))
    if not places.dtype.is_int() or len(places.shape) != len(source.shape):
        emitter.fail("K403", f"the index {describe(places)} does not fit {describe(source)}")
    others = zip(source.shape, places.shape, strict=True)
    if any(a != b for place, (a, b) in enumerate(others) if place != dim):
        emitter.fail("K403", f"the index {describe(places)} does not fit {describe(source)}")
    value = emitter.builder.emit(
        "tile.gather", emitter.value(source), emitter.value(places), axis=dim
    )
    return Tensor(value, source.dtype, places.shape)


@builtin
def histogram(emitter: Emitter, input: Any, num_bins: Any, mask: Any = None) -> Tensor:  # noqa: A002
    """How often each of 0 .. num_bins - 1 occurs in a block of integers, i32."""
    block = emitter.tensor(input)
    (bins,) = emitter.block_shape((num_bins,), "the histogram")
    operands = [emitter.value(block)]
    if unwrap(mask) is not None:
        operands.append(emitter.value(emitter.broadcast_to(emitter.truth(mask), block.shape)))
    value = emitter.builder.emit("tile.histogram", *operands, bins=bins)
    return Tensor(value, int32, (bins,))
