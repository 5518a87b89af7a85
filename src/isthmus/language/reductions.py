"""Reductions, scans and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.ir.core import Region
from isthmus.ir.dialects.tile import REDUCE_KINDS
from isthmus.ir.types import TileType
from isthmus.language.blocks import as_dtype
from isthmus.language.emitter import Emitter, describe
from isthmus.language.types import (
    dtype,
    float32,
    float64,
    int8,
    int32,
    pointer_type,
    uint32,
)
from isthmus.language.values import Builtin, Tensor, builtin, runtime_parts, unwrap

__all__ = [
    "argmax", "argmin", "associative_scan", "cumprod", "cumsum", "dot", "max", "min", "reduce",
    "reduce_or", "sum", "xor_sum",
]  # fmt: skip

#: name -> combine operation for signed integers, unsigned integers, floats.
_KINDS = {
    "sum": ("addi", "addi", "addf"),
    "prod": ("muli", "muli", "mulf"),
    "max": ("maxsi", "maxui", "maxnumf"),
    "min": ("minsi", "minui", "minnumf"),
    "xor": ("xori", "xori", None),
    "or": ("ori", "ori", None),
}


def _kind(emitter: Emitter, name: str, block: Tensor) -> str:
    if isinstance(block.dtype, pointer_type):
        emitter.fail("K301", f"pointers have no {name}")
    signed, unsigned, floating = _KINDS[name]
    if block.dtype.is_floating():
        kind = floating
    else:
        kind = signed if block.dtype.is_int_signed() else unsigned
    if kind is None:
        emitter.fail("K301", f"the {name} along an axis needs integers, got {describe(block)}")
    return kind


def _reduce_axis(
    emitter: Emitter, blocks: Sequence[Tensor], axis: int, kind: str, region: Region
) -> list[Tensor]:
    op = emitter.builder.create(
        "tile.reduce", *map(emitter.value, blocks), axis=axis, kind=kind, regions=[region]
    )
    shape = blocks[0].shape[:axis] + blocks[0].shape[axis + 1 :]
    return [
        Tensor(value, block.dtype, shape) for value, block in zip(op.results, blocks, strict=True)
    ]


def _named(emitter: Emitter, block: Tensor, axis: Any, kind: str, keep_dims: Any) -> Tensor:
    """A reduction by a named operation along one axis, or along all from the last to the first."""
    place, rank, shape = unwrap(axis), len(block.shape), block.shape
    if rank == 0:
        if place is not None:
            emitter.fail("K404", f"a scalar has no axis {place} to reduce")
        return block
    axes = range(rank - 1, -1, -1) if place is None else [emitter.axis(place, rank)]
    for dim in axes:
        (block,) = _reduce_axis(emitter, [block], dim, kind, Region())
    if unwrap(keep_dims):
        kept = (1,) * rank if place is None else _with_one(shape, axes[0])
        for dim in range(rank):
            if len(block.shape) < len(kept) and (place is None or dim == axes[0]):
                block = emitter.expand_dims(block, dim)
    return block


def _with_one(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis + 1 :])


def _sum_type(block: Tensor, wanted: Any) -> dtype:
    """What sums are kept in: integers below 32 bits in 32; f16 and bf16 in themselves."""
    if wanted is not None:
        return wanted
    own = block.dtype
    if own.is_int() and own.primitive_bitwidth < 32:
        return int32 if own.is_int_signed() else uint32
    return own


def _wanted(emitter: Emitter, value: Any) -> Any:
    return None if unwrap(value) is None else as_dtype(emitter, value)


@builtin
def sum(  # noqa: A001
    emitter: Emitter, input: Any, axis: Any = None, keep_dims: Any = False,  # noqa: A002
    dtype: Any = None,
) -> Tensor:  # fmt: skip
    """Sum along `axis`, or of all. Integers below 32 bits are summed in 32 bits."""
    block = emitter.tensor(input)
    block = emitter.cast(block, _sum_type(block, _wanted(emitter, dtype)))
    return _named(emitter, block, axis, _kind(emitter, "sum", block), keep_dims)


@builtin
def xor_sum(emitter: Emitter, input: Any, axis: Any = None, keep_dims: Any = False) -> Tensor:  # noqa: A002
    """Exclusive or along `axis`, or of all."""
    block = emitter.tensor(input)
    return _named(emitter, block, axis, _kind(emitter, "xor", block), keep_dims)


@builtin
def reduce_or(emitter: Emitter, input: Any, axis: Any, keep_dims: Any = False) -> Tensor:  # noqa: A002
    """Bitwise or along `axis`."""
    block = emitter.tensor(input)
    return _named(emitter, block, axis, _kind(emitter, "or", block), keep_dims)


def _widen(emitter: Emitter, block: Tensor) -> Tensor:
    """Narrow values compare in 32 bits."""
    if block.dtype.primitive_bitwidth >= 32:
        return block
    return emitter.cast(block, float32 if block.dtype.is_floating() else int32)


def _with_index(
    emitter: Emitter, name: str, block: Tensor, axis: Any, keep_dims: Any
) -> tuple[Tensor, Tensor]:
    """(largest or smallest, its index): NaN loses, and of equals the lower index wins."""
    place = unwrap(axis)
    if place is None:
        if keep := unwrap(keep_dims):
            emitter.fail("K404", f"the index of the {name} of all with keep_dims={keep}")
        flat = TileType((block.numel,), block.dtype.ir)
        if len(block.shape) > 1:
            value = emitter.builder.emit("tile.reshape", emitter.value(block), type=flat)
            block = Tensor(value, block.dtype, (block.numel,))
        place = 0
    rank = len(block.shape)
    dim = emitter.axis(place, rank)
    if block.dtype.is_bool():
        block = emitter.cast(block, int32)
    size = block.shape[dim]
    index = Tensor(emitter.builder.emit("tile.arange", start=0, end=size), int32, (size,))
    for other in range(rank):
        if other != dim:
            index = emitter.expand_dims(index, other)
    index = emitter.broadcast_to(index, block.shape)

    def combine(a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        better = emitter.compare(">" if name == "max" else "<", a, b)
        tie = emitter.compare("==", a, b)
        if block.dtype.is_floating():
            a_nan, b_nan = emitter.compare("!=", a, a), emitter.compare("!=", b, b)
            tie = emitter.binary("|", tie, emitter.binary("&", a_nan, b_nan))
            only_b = emitter.binary("&", b_nan, emitter.invert(a_nan))
            better = emitter.binary("|", better, only_b)
        lower = emitter.compare("<", i, j)
        better = emitter.binary("|", better, emitter.binary("&", tie, lower))
        return emitter.select(better, a, b), emitter.select(better, i, j)

    region, _ = _combine_region(emitter, [block, index], combine)
    results = _reduce_axis(emitter, [block, index], dim, "region", region)
    if unwrap(keep_dims):
        results = [emitter.expand_dims(result, dim) for result in results]
    best, where = results
    return best, where


def _extreme(name: str) -> Builtin:
    def build(
        emitter: Emitter, input: Any, axis: Any = None, return_indices: Any = False,  # noqa: A002
        return_indices_tie_break_left: Any = True, keep_dims: Any = False,
    ) -> Any:  # fmt: skip
        block = emitter.tensor(input)
        if unwrap(return_indices):
            return _with_index(emitter, name, block, axis, keep_dims)
        block = _widen(emitter, block)
        return _named(emitter, block, axis, _kind(emitter, name, block), keep_dims)

    build.__doc__ = f"The {name} along `axis`, or of all; NaN loses against numbers."
    return Builtin(name, build)


max = _extreme("max")  # noqa: A001
min = _extreme("min")  # noqa: A001


def _index_of(name: str) -> Builtin:
    def build(
        emitter: Emitter, input: Any, axis: Any, tie_break_left: Any = True,  # noqa: A002
        keep_dims: Any = False,
    ) -> Tensor:  # fmt: skip
        return _with_index(emitter, name, emitter.tensor(input), axis, keep_dims)[1]

    build.__doc__ = f"Index of the {name} along `axis`, the first of equals; NaN loses."
    return Builtin(f"arg{name}", build)


argmax = _index_of("max")
argmin = _index_of("min")


def _combine_region(emitter: Emitter, blocks: Sequence[Tensor], combine: Any) -> tuple[Region, str]:
    """The region of a combine function, and its kind: a named one where it is one operation."""
    types = [block.dtype.ir for block in blocks]
    region = Region([*types, *types])
    scalars = [
        Tensor(value, block.dtype)
        for value, block in zip(region.args, [*blocks, *blocks], strict=True)
    ]
    with emitter.builder.at(region), emitter.isolated():
        results = combine(*scalars)
        parts = runtime_parts(results) if isinstance(results, tuple) else [emitter.tensor(results)]
        if isinstance(results, tuple):
            parts = [emitter.tensor(result) for result in results]
        if len(parts) != len(blocks):
            emitter.fail(
                "K306", f"the combine function gives {len(parts)} values, not {len(blocks)}"
            )
        cast = [
            emitter.value(_same_type(emitter, part, block.dtype))
            for part, block in zip(parts, blocks, strict=True)
        ]
        emitter.builder.create("scf.yield", *cast)
    kind = _named_kind(region)
    return (region if kind == "region" else Region()), kind


def _same_type(emitter: Emitter, part: Tensor, wanted: Any) -> Tensor:
    if part.shape or part.dtype != wanted:
        if part.constant is not None and not part.shape:
            return emitter.literal(part.constant, wanted)
        emitter.fail(
            "K306", f"the combine function gives {describe(part)}, its arguments are {wanted}",
            f"convert the result: .to(tl.{wanted})",
        )  # fmt: skip
    return part


def _named_kind(region: Region) -> str:
    """The named combination that a region of one operation is; else "region"."""
    if len(region.ops) != 2 or len(region.args) != 2:
        return "region"
    op, end = region.ops
    kind = op.name.removeprefix("arith.")
    if kind not in REDUCE_KINDS or end.operands != op.results:
        return "region"
    return kind if set(op.operands) == set(region.args) else "region"


def _operands(emitter: Emitter, value: Any) -> list[Tensor]:
    given = unwrap(value)
    blocks = [emitter.tensor(item) for item in (given if isinstance(given, tuple) else (given,))]
    if any(block.shape != blocks[0].shape for block in blocks):
        emitter.fail("K403", f"the blocks differ in shape: {', '.join(map(describe, blocks))}")
    return blocks


@builtin
def reduce(
    emitter: Emitter,
    input: Any,  # noqa: A002
    axis: Any,
    combine_fn: Any,
    keep_dims: Any = False,
) -> Any:
    """Combine along `axis` with a helper kernel of left, then right values (tuples of blocks)."""
    blocks = _operands(emitter, input)
    place, shape = unwrap(axis), blocks[0].shape
    if not shape:
        return input
    if place is None and len(shape) > 1:
        kind = [TileType((block.numel,), block.dtype.ir) for block in blocks]
        blocks = [
            Tensor(
                emitter.builder.emit("tile.reshape", emitter.value(block), type=type_),
                block.dtype, (block.numel,),
            )
            for block, type_ in zip(blocks, kind, strict=True)
        ]  # fmt: skip
    dim = 0 if place is None else emitter.axis(place, len(shape))
    combine = unwrap(combine_fn)
    region, name = _combine_region(emitter, blocks, lambda *args: emitter.call(combine, args, {}))
    results = _reduce_axis(emitter, blocks, dim, name, region)
    if unwrap(keep_dims):
        for _ in range(len(shape) if place is None else 1):
            results = [emitter.expand_dims(result, dim) for result in results]
    return tuple(results) if isinstance(unwrap(input), tuple) else results[0]


@builtin
def associative_scan(
    emitter: Emitter,
    input: Any,  # noqa: A002
    axis: Any,
    combine_fn: Any,
    reverse: Any = False,
) -> Any:
    """Running combination along `axis` with a helper kernel; from the end when `reverse`."""
    blocks = _operands(emitter, input)
    combine = unwrap(combine_fn)
    region, name = _combine_region(emitter, blocks, lambda *args: emitter.call(combine, args, {}))
    results = _scan_axis(emitter, blocks, axis, name, region, reverse)
    return tuple(results) if isinstance(unwrap(input), tuple) else results[0]


def _scan_axis(
    emitter: Emitter, blocks: Sequence[Tensor], axis: Any, kind: str, region: Region, reverse: Any
) -> list[Tensor]:
    shape = blocks[0].shape
    dim = emitter.axis(axis, len(shape))
    attrs: dict[str, Any] = {"reverse": True} if unwrap(reverse) else {}
    op = emitter.builder.create(
        "tile.scan", *map(emitter.value, blocks), axis=dim, kind=kind, regions=[region], **attrs
    )
    return [
        Tensor(value, block.dtype, shape) for value, block in zip(op.results, blocks, strict=True)
    ]


def _running(name: str, combine: str) -> Builtin:
    def build(
        emitter: Emitter, input: Any, axis: Any = 0, reverse: Any = False,  # noqa: A002
        dtype: Any = None,
    ) -> Tensor:  # fmt: skip
        block = emitter.tensor(input)
        block = emitter.cast(block, _sum_type(block, _wanted(emitter, dtype)))
        kind = _kind(emitter, combine, block)
        return _scan_axis(emitter, [block], axis, kind, Region(), reverse)[0]

    build.__doc__ = f"Running {combine} along `axis`; integers below 32 bits are kept in 32."
    return Builtin(name, build)


cumsum = _running("cumsum", "sum")
cumprod = _running("cumprod", "prod")


@builtin
def dot(
    emitter: Emitter, input: Any, other: Any, acc: Any = None, input_precision: Any = None,  # noqa: A002
    allow_tf32: Any = None, max_num_imprecise_acc: Any = None, out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """input @ other + acc. Floats multiply and add in f32 (f64 in f64), i8 in i32.

    Every input_precision is at least met: products are exact IEEE ones.
    """
    left, right = emitter.tensor(input), emitter.tensor(other)
    if len(left.shape) != len(right.shape) or len(left.shape) not in (2, 3):
        emitter.fail(
            "K406", f"tl.dot multiplies blocks of rank 2 or 3, got {describe(left)} and "
            f"{describe(right)}", "add a dimension with x[:, None], or use tl.sum(a * b)",
        )  # fmt: skip
    if left.shape[-1] != right.shape[-2] or left.shape[:-2] != right.shape[:-2]:
        emitter.fail(
            "K406", f"shapes {list(left.shape)} and {list(right.shape)} do not multiply",
            "the last size of the first must be the last but one of the second; see tl.trans",
        )  # fmt: skip
    fp8 = left.dtype.is_fp8() and right.dtype.is_fp8()
    if left.dtype != right.dtype and not fp8:
        emitter.fail(
            "K406", f"tl.dot of {left.dtype} and {right.dtype}",
            "convert one of them: both must have one dtype",
        )  # fmt: skip
    if left.dtype.is_int() and left.dtype != int8:
        emitter.fail("K406", f"tl.dot takes floats and int8, got {left.dtype}")
    shape = (*left.shape[:-1], right.shape[-1])
    if left.dtype.is_int():
        element: dtype = int32
    else:
        element = float64 if left.dtype == float64 else float32
    start, result = unwrap(acc), unwrap(out_dtype)
    if start is not None:
        start = emitter.tensor(start)
        if start.shape != shape:
            emitter.fail("K406", f"the accumulator is {describe(start)}, the product {list(shape)}")
        result = start.dtype if result is None else result
        if result != start.dtype:
            emitter.fail("K406", f"out_dtype is {result}, but the accumulator is {start.dtype}")
        start = emitter.cast(start, element)
    else:
        result = element if result is None else result
        start = emitter.splat(emitter.literal(0, element), shape)
    attrs = {}
    if unwrap(input_precision) is not None:
        attrs["precision"] = str(unwrap(input_precision))
    value = emitter.builder.emit("tile.dot", *map(emitter.value, (left, right, start)), **attrs)
    product = Tensor(value, element, shape)
    if left.dtype.is_int() or element == float64:
        return product
    return emitter.cast(product, result)
