"""The functions of the kernel language: what `tl.load`, `tl.sum`, `tl.exp` build.

Each is a `builtin`: the front end calls it with the semantics of the kernel being built as `sem`.
Called outside a kernel, it says so.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from typing import Any

from isthmus.core.errors import KernelError
from isthmus.ir.types import TileType
from isthmus.language.semantics import Semantics
from isthmus.language.types import (
    bfloat16,
    dtype,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    pointer_type,
    uint32,
)
from isthmus.language.values import BlockPointer, Tensor, constexpr, unwrap

Builtin = Callable[..., Any]


def builtin(function: Builtin) -> Builtin:
    """Mark a function as part of the language; `sem` is filled in by the front end."""

    @functools.wraps(function)
    def outside(*_arguments: Any, **keywords: Any) -> Any:
        if keywords.get("sem") is None:
            raise KernelError(
                f"tl.{function.__name__} only has a meaning inside a kernel",
                hint="decorate the function with @isthmus.jit and launch it over a grid",
                code="K101",
            )
        return function(*_arguments, **keywords)

    outside.is_builtin = True  # type: ignore[attr-defined]
    return outside


def _axis(sem: Semantics, axis: Any, rank: int) -> int:
    axis = unwrap(axis)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise sem.fail(
            f"axis {axis!r} is outside the block, which has {rank} dimensions", code="K203"
        )
    return axis % rank


def _shape(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Shapes are given as one tuple or as separate numbers."""
    first = unwrap(arguments[0]) if len(arguments) == 1 else None
    if isinstance(first, (tuple, list)):
        return tuple(unwrap(item) for item in first)
    return tuple(unwrap(item) for item in arguments)


# Programs and ranges


@builtin
def program_id(axis: Any, *, sem: Semantics) -> Tensor:
    """This program's index along `axis` of the grid, i32."""
    axis = unwrap(axis)
    if axis not in (0, 1, 2):
        raise sem.fail(f"the grid has axes 0, 1, 2, got {axis!r}", code="K203")
    return Tensor(sem.builder.emit("tile.program_id", axis=axis), int32)


@builtin
def num_programs(axis: Any, *, sem: Semantics) -> Tensor:
    """Programs in the grid along `axis`, i32."""
    axis = unwrap(axis)
    if axis not in (0, 1, 2):
        raise sem.fail(f"the grid has axes 0, 1, 2, got {axis!r}", code="K203")
    return Tensor(sem.builder.emit("tile.num_programs", axis=axis), int32)


@builtin
def arange(start: Any, end: Any, *, sem: Semantics) -> Tensor:
    """Block of consecutive i32 from `start`, `end` excluded."""
    start, end = unwrap(start), unwrap(end)
    if not isinstance(start, int) or not isinstance(end, int):
        raise sem.fail(
            "tl.arange takes compile-time integers",
            hint="annotate the parameter with tl.constexpr, or mask a larger block",
            code="K210",
        )
    (size,) = sem.check_block_size((end - start,))
    handle = sem.builder.emit("tile.arange", start=start, end=end)
    return Tensor(handle, int32, (size,))


@builtin
def full(shape: Any, value: Any, dtype: Any, *, sem: Semantics) -> Tensor:
    """Block of `shape` filled with `value`."""
    sizes = sem.check_block_size(_shape((shape,)))
    element = unwrap(dtype)
    if isinstance(value, Tensor):
        return sem.broadcast_to(sem.cast(value, element), sizes)
    return sem.constant(value, element, sizes)


@builtin
def zeros(shape: Any, dtype: Any, *, sem: Semantics) -> Tensor:
    """Block of zeros."""
    return full(shape, 0, dtype, sem=sem)


@builtin
def zeros_like(value: Tensor, *, sem: Semantics) -> Tensor:
    """Block of zeros with the shape and dtype of `value`."""
    return sem.constant(0, value.dtype, value.shape)  # type: ignore[arg-type]


# Memory


def _hints(cache: Any, eviction: Any, volatile: Any) -> dict[str, Any]:
    hints = {
        "cache": unwrap(cache) or None,
        "eviction": unwrap(eviction) or None,
        "volatile": bool(unwrap(volatile)) or None,
    }
    return {name: value for name, value in hints.items() if value is not None}


def _expand_block_pointer(
    sem: Semantics, pointer: BlockPointer, boundary_check: Sequence[int]
) -> tuple[Tensor, Tensor | None]:
    """Pointers of the whole block, and the mask of what lies inside the checked dimensions."""
    rank = len(pointer.block_shape)
    address: Tensor = pointer.base
    mask: Tensor | None = None
    for axis, size in enumerate(pointer.block_shape):
        index = Tensor(sem.builder.emit("tile.arange", start=0, end=size), int32, (size,))
        index = sem.binary("+", sem.cast(pointer.offsets[axis], int64), sem.cast(index, int64))
        for other in builtins.range(rank):
            if other < axis:
                index = sem.expand_dims(index, 0)
            elif other > axis:
                index = sem.expand_dims(index, -1)
        address = sem.binary(
            "+", address, sem.binary("*", index, sem.cast(pointer.strides[axis], int64))
        )
        if axis in boundary_check:
            upper = sem.compare("<", index, sem.cast(pointer.shape[axis], int64))
            lower = sem.compare(">=", index, sem.constant(0, int64))
            inside = sem.binary("&", upper, lower)
            mask = inside if mask is None else sem.binary("&", mask, inside)
    address = sem.broadcast_to(address, pointer.block_shape)
    if mask is not None:
        mask = sem.broadcast_to(mask, pointer.block_shape)
    return address, mask


def _checked_axes(sem: Semantics, boundary_check: Any, rank: int) -> tuple[int, ...]:
    axes = unwrap(boundary_check)
    if axes is None:
        return ()
    if isinstance(axes, int):
        axes = (axes,)
    return tuple(_axis(sem, axis, rank) for axis in axes)


@builtin
def load(
    pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (),
    padding_option: Any = "", cache_modifier: Any = "", eviction_policy: Any = "",
    volatile: Any = False, *, sem: Semantics,
) -> Tensor:  # fmt: skip
    """Read memory. Masked-off lanes touch nothing and give `other`, or 0 without it."""
    hints = _hints(cache_modifier, eviction_policy, volatile)
    if isinstance(pointer, BlockPointer):
        if unwrap(mask) is not None or unwrap(other) is not None:
            raise sem.fail(
                "a block pointer takes boundary_check and padding_option, not mask and other",
                code="K209",
            )
        axes = _checked_axes(sem, boundary_check, len(pointer.block_shape))
        address, inside = _expand_block_pointer(sem, pointer, axes)
        fill = float("nan") if unwrap(padding_option) == "nan" and inside is not None else None
        return sem.load(address, inside, fill, **hints)
    return sem.load(pointer, mask, other, **hints)


@builtin
def store(
    pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (),
    cache_modifier: Any = "", eviction_policy: Any = "", *, sem: Semantics,
) -> None:  # fmt: skip
    """Write memory. Masked-off lanes touch nothing."""
    hints = _hints(cache_modifier, eviction_policy, False)
    if isinstance(pointer, BlockPointer):
        axes = _checked_axes(sem, boundary_check, len(pointer.block_shape))
        address, inside = _expand_block_pointer(sem, pointer, axes)
        sem.store(address, value, inside, **hints)
        return
    sem.store(pointer, value, mask, **hints)


@builtin
def make_block_ptr(
    base: Tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any = None,
    *, sem: Semantics,
) -> BlockPointer:  # fmt: skip
    """A block of a strided tensor at `offsets`; `order` is a hint."""
    sizes = sem.check_block_size(unwrap(block_shape))

    def scalars(values: Any, element: dtype) -> tuple[Tensor, ...]:
        items = unwrap(values)
        if len(items) != len(sizes):
            raise sem.fail(
                f"shape, strides, offsets and block_shape have one length, got {len(items)} "
                f"and {len(sizes)}",
                code="K203",
            )
        return tuple(sem.cast(sem.to_tensor(item), element) for item in items)

    return BlockPointer(
        base, scalars(shape, int64), scalars(strides, int64), scalars(offsets, int32), sizes
    )


@builtin
def advance(base: BlockPointer, offsets: Any, *, sem: Semantics) -> BlockPointer:
    """The block pointer moved by `offsets` elements along each dimension."""
    moved = tuple(
        sem.cast(sem.binary("+", offset, sem.cast(sem.to_tensor(step), int32)), int32)
        for offset, step in zip(base.offsets, unwrap(offsets), strict=True)
    )
    return base.moved(moved)


@builtin
def make_tensor_descriptor(
    base: Tensor, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero",
    *, sem: Semantics,
) -> BlockPointer:  # fmt: skip
    """A descriptor of a strided tensor; load and store take offsets, and check all bounds."""
    sizes = sem.check_block_size(unwrap(block_shape))
    zero = sem.constant(0, int32)
    return BlockPointer(
        base,
        tuple(sem.cast(sem.to_tensor(item), int64) for item in unwrap(shape)),
        tuple(sem.cast(sem.to_tensor(item), int64) for item in unwrap(strides)),
        (zero,) * len(sizes),
        sizes,
        is_descriptor=True,
    )


@builtin
def descriptor_load(descriptor: BlockPointer, offsets: Any, *, sem: Semantics) -> Tensor:
    """The block of a descriptor at `offsets`; outside the tensor it is 0."""
    moved = descriptor.moved(tuple(sem.scalar_i32(item) for item in unwrap(offsets)))
    address, inside = _expand_block_pointer(sem, moved, builtins.range(len(moved.block_shape)))
    return sem.load(address, inside, None)


@builtin
def descriptor_store(
    descriptor: BlockPointer, offsets: Any, value: Any, *, sem: Semantics
) -> None:
    """Write the block of a descriptor at `offsets`; outside the tensor nothing is written."""
    moved = descriptor.moved(tuple(sem.scalar_i32(item) for item in unwrap(offsets)))
    address, inside = _expand_block_pointer(sem, moved, builtins.range(len(moved.block_shape)))
    sem.store(address, value, inside)


# Shapes


@builtin
def broadcast(lhs: Tensor, rhs: Tensor, *, sem: Semantics) -> tuple[Tensor, ...]:
    """Both values in their common shape."""
    return tuple(sem.broadcast(sem.to_tensor(lhs), sem.to_tensor(rhs)))


@builtin
def broadcast_to(value: Any, *shape: Any, sem: Semantics) -> Tensor:
    """The value repeated to `shape`."""
    return sem.broadcast_to(sem.to_tensor(value), _shape(shape))


@builtin
def expand_dims(value: Tensor, axis: Any, *, sem: Semantics) -> Tensor:
    """Dimensions of size 1 inserted at `axis` (a number or several)."""
    axes = unwrap(axis)
    axes = [axes] if isinstance(axes, int) else [unwrap(item) for item in axes]
    rank = len(value.shape) + len(axes)
    for place in sorted(item % rank for item in axes):
        value = sem.expand_dims(value, place)
    return value


@builtin
def reshape(value: Tensor, *shape: Any, can_reorder: Any = False, sem: Semantics) -> Tensor:
    """The same elements in row-major order under another shape."""
    sizes = sem.check_block_size(_shape(shape))
    if not value.shape:
        return sem.broadcast_to(value, sizes)
    kind = TileType(sizes, value.dtype.ir)
    if kind.size != value.numel:
        raise sem.fail(
            f"shape {list(sizes)} has {kind.size} elements, the block {value.numel}", code="K203"
        )
    if sizes == value.shape:
        return value
    return Tensor(sem.builder.emit("tile.reshape", value.handle, type=kind), value.dtype, sizes)


@builtin
def view(value: Tensor, *shape: Any, sem: Semantics) -> Tensor:
    """`reshape`."""
    return reshape(value, *shape, sem=sem)


@builtin
def ravel(value: Tensor, can_reorder: Any = False, *, sem: Semantics) -> Tensor:
    """All elements in one dimension."""
    return reshape(value, (value.numel,), sem=sem)


@builtin
def permute(value: Tensor, *dims: Any, sem: Semantics) -> Tensor:
    """Dimensions in another order."""
    order = tuple(item % len(value.shape) for item in _shape(dims))
    handle = sem.builder.emit("tile.trans", value.handle, order=order)
    return Tensor(handle, value.dtype, tuple(value.shape[axis] for axis in order))


@builtin
def trans(value: Tensor, *dims: Any, sem: Semantics) -> Tensor:
    """The last two dimensions exchanged, or the given order."""
    rank = len(value.shape)
    if not dims:
        if rank < 2:
            raise sem.fail(f"trans needs two dimensions, got shape {list(value.shape)}", code="K203")
        order = [axis for axis, _ in enumerate(value.shape)]
        order[-2:] = order[-1], order[-2]
        return permute(value, tuple(order), sem=sem)
    return permute(value, *dims, sem=sem)


@builtin
def cat(lhs: Tensor, rhs: Tensor, can_reorder: Any = False, dim: Any = 0, *, sem: Semantics) -> Tensor:
    """Two blocks one after the other along the first dimension."""
    handle = sem.builder.emit("tile.cat", lhs.handle, rhs.handle)
    return Tensor(handle, lhs.dtype, (lhs.shape[0] * 2, *lhs.shape[1:]))


@builtin
def join(lhs: Any, rhs: Any, *, sem: Semantics) -> Tensor:
    """Two blocks stacked along a new last dimension of size 2."""
    a, b = sem.broadcast(sem.to_tensor(lhs), sem.to_tensor(rhs))
    if not a.shape:
        a, b = sem.broadcast_to(a, (1,)), sem.broadcast_to(b, (1,))
        joined = join(a, b, sem=sem)
        return reshape(joined, (2,), sem=sem)
    handle = sem.builder.emit("tile.join", a.handle, b.handle)
    return Tensor(handle, a.dtype, (*a.shape, 2))


@builtin
def split(value: Tensor, *, sem: Semantics) -> tuple[Tensor, Tensor]:
    """The halves of a last dimension of size 2."""
    if not value.shape or value.shape[-1] != 2:
        raise sem.fail(f"split needs a last dimension of 2, got {list(value.shape)}", code="K203")
    op = sem.builder.create("tile.split", value.handle)
    rest = value.shape[:-1]
    return Tensor(op.results[0], value.dtype, rest), Tensor(op.results[1], value.dtype, rest)


@builtin
def interleave(lhs: Tensor, rhs: Tensor, *, sem: Semantics) -> Tensor:
    """Elements of two blocks in turn along the last dimension."""
    joined = join(lhs, rhs, sem=sem)
    if len(joined.shape) == 1:
        return joined
    return reshape(joined, (*joined.shape[:-2], joined.shape[-2] * 2), sem=sem)


@builtin
def gather(src: Tensor, index: Tensor, axis: Any, *, sem: Semantics) -> Tensor:
    """src[.., index, ..] along `axis`."""
    place = _axis(sem, axis, len(src.shape))
    handle = sem.builder.emit("tile.gather", src.handle, index.handle, axis=place)
    return Tensor(handle, src.dtype, index.shape)


@builtin
def histogram(value: Tensor, num_bins: Any, mask: Any = None, *, sem: Semantics) -> Tensor:
    """Counts of 0 .. num_bins - 1, i32."""
    operands = [value.handle]
    if unwrap(mask) is not None:
        operands.append(sem.broadcast_to(sem.truth(mask), value.shape).handle)
    (bins,) = sem.check_block_size((num_bins,))
    return Tensor(sem.builder.emit("tile.histogram", *operands, bins=bins), int32, (bins,))


# Arithmetic


def _float_math(name: str, operation: str) -> Builtin:
    def function(x: Any, *, sem: Semantics) -> Tensor:
        value = sem.to_tensor(x)
        if not isinstance(value.dtype, dtype) or not value.dtype.is_floating():
            raise sem.fail(
                f"tl.{name} takes floats, got {value.dtype}",
                hint=f"convert first: tl.{name}(x.to(tl.float32))",
                code="K206",
            )
        return sem.emit(operation, value, like=value)

    function.__name__ = name
    function.__doc__ = f"{name} of each element."
    return builtin(function)


exp = _float_math("exp", "math.exp")
exp2 = _float_math("exp2", "math.exp2")
expm1 = _float_math("expm1", "math.expm1")
log = _float_math("log", "math.log")
log2 = _float_math("log2", "math.log2")
log1p = _float_math("log1p", "math.log1p")
sin = _float_math("sin", "math.sin")
cos = _float_math("cos", "math.cos")
tan = _float_math("tan", "math.tan")
asin = _float_math("asin", "math.asin")
acos = _float_math("acos", "math.acos")
atan = _float_math("atan", "math.atan")
sinh = _float_math("sinh", "math.sinh")
cosh = _float_math("cosh", "math.cosh")
tanh = _float_math("tanh", "math.tanh")
erf = _float_math("erf", "math.erf")
sqrt = _float_math("sqrt", "math.sqrt")
sqrt_rn = _float_math("sqrt_rn", "math.sqrt")
rsqrt = _float_math("rsqrt", "math.rsqrt")
floor = _float_math("floor", "math.floor")
ceil = _float_math("ceil", "math.ceil")
trunc = _float_math("trunc", "math.trunc")
rint = _float_math("rint", "math.roundeven")
sigmoid = _float_math("sigmoid", "math.sigmoid")


@builtin
def abs(x: Any, *, sem: Semantics) -> Tensor:  # noqa: A001
    """Magnitude of each element."""
    value = sem.to_tensor(x)
    if value.dtype.is_floating():
        return sem.emit("math.absf", value, like=value)
    if value.dtype.is_int() and value.dtype.is_int_signed():  # type: ignore[union-attr]
        return sem.emit("math.absi", value, like=value)
    return value


def _two_floats(name: str, operation: str) -> Builtin:
    def function(x: Any, y: Any, *, sem: Semantics) -> Tensor:
        a, b, common = sem._operand_types(x, y, "+")
        if not common.is_floating():
            raise sem.fail(f"tl.{name} takes floats, got {common}", code="K206")
        a, b = sem.broadcast(a, b)
        return sem.emit(operation, a, b, like=a)

    function.__name__ = name
    function.__doc__ = f"{name} of each pair."
    return builtin(function)


pow = _two_floats("pow", "math.pow")  # noqa: A001
atan2 = _two_floats("atan2", "math.atan2")
fmod = _two_floats("fmod", "arith.remf")
div_rn = _two_floats("div_rn", "arith.divf")
fdiv = _two_floats("fdiv", "arith.divf")


@builtin
def fma(x: Any, y: Any, z: Any, *, sem: Semantics) -> Tensor:
    """x * y + z, rounded once."""
    a, b, _ = sem._operand_types(x, y, "+")
    a, c, common = sem._operand_types(a, z, "+")
    b = sem.cast(b, common)
    a, b, c = sem.broadcast(a, b, c)
    return sem.emit("arith.fma", a, b, c, like=a)


@builtin
def umulhi(x: Any, y: Any, *, sem: Semantics) -> Tensor:
    """High half of the unsigned product."""
    a, b, _ = sem._operand_types(x, y, "*")
    a, b = sem.broadcast(a, b)
    return sem.emit("arith.mulhui", a, b, like=a)


@builtin
def where(condition: Any, x: Any, y: Any, *, sem: Semantics) -> Tensor:
    """x where the condition holds, else y."""
    return sem.select(condition, x, y)


def _extreme(sem: Semantics, x: Any, y: Any, operator: str, propagate_nan: Any) -> Tensor:
    mode = unwrap(propagate_nan)
    propagate = getattr(mode, "name", mode) in ("ALL", True)
    a, b, common = sem._operand_types(x, y, operator)
    if common.is_floating() and propagate:
        a, b = sem.broadcast(a, b)
        name = "arith.minimumf" if operator == "min" else "arith.maximumf"
        return sem.emit(name, a, b, like=a)
    return sem.binary(operator, a, b)


class PropagateNan:
    """Values of `propagate_nan`: NONE lets a number win over NaN, ALL lets NaN win."""

    NONE = False
    ALL = True


@builtin
def maximum(x: Any, y: Any, propagate_nan: Any = False, *, sem: Semantics) -> Tensor:
    """The larger of each pair; NaN loses unless `propagate_nan` is ALL."""
    return _extreme(sem, x, y, "max", propagate_nan)


@builtin
def minimum(x: Any, y: Any, propagate_nan: Any = False, *, sem: Semantics) -> Tensor:
    """The smaller of each pair; NaN loses unless `propagate_nan` is ALL."""
    return _extreme(sem, x, y, "min", propagate_nan)


@builtin
def clamp(
    x: Any, min: Any, max: Any, propagate_nan: Any = False, *, sem: Semantics  # noqa: A002
) -> Tensor:
    """x limited to [min, max]."""
    return _extreme(sem, _extreme(sem, x, min, "max", propagate_nan), max, "min", propagate_nan)


@builtin
def cdiv(x: Any, div: Any, *, sem: Semantics) -> Any:
    """x / div, rounded up, for integers above 0."""
    x, div = unwrap(x), unwrap(div)
    if isinstance(x, int) and isinstance(div, int):
        return -(-x // div)
    return sem.binary("//", sem.binary("+", x, sem.binary("-", div, 1) if isinstance(div, Tensor)
                                       else div - 1), div)  # fmt: skip


@builtin
def cast(
    x: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False, *, sem: Semantics
) -> Tensor:
    """Values in another dtype, or with `bitcast` the same bits as one."""
    value, element = sem.to_tensor(x), unwrap(dtype)
    if unwrap(bitcast):
        return sem.bitcast(value, element)
    rounding = unwrap(fp_downcast_rounding)
    if rounding not in (None, "rtne", "rtz"):
        raise sem.fail(f"fp_downcast_rounding is 'rtne' or 'rtz', got {rounding!r}", code="K204")
    return sem.cast(value, element, rounding)


# Products


@builtin
def dot(
    input: Any, other: Any, acc: Any = None, input_precision: Any = None,  # noqa: A002
    allow_tf32: Any = None, max_num_imprecise_acc: Any = None, out_dtype: Any = float32,
    *, sem: Semantics,
) -> Tensor:  # fmt: skip
    """Matrix product of blocks, added to `acc`. Sums in f32 (f64, i32); precision is always IEEE."""
    lhs, rhs = sem.to_tensor(input), sem.to_tensor(other)
    if len(lhs.shape) not in (2, 3) or len(lhs.shape) != len(rhs.shape):
        raise sem.fail(
            f"dot takes two blocks of two or three dimensions, got {list(lhs.shape)} "
            f"and {list(rhs.shape)}",
            code="K203",
        )
    if lhs.shape[-1] != rhs.shape[-2] or lhs.shape[:-2] != rhs.shape[:-2]:
        raise sem.fail(
            f"{list(lhs.shape)} and {list(rhs.shape)} do not multiply: the last dimension of the "
            "first must equal the second-last of the other",
            hint="transpose with tl.trans, or load the block the other way round",
            code="K203",
        )
    if lhs.dtype != rhs.dtype and not (lhs.dtype.is_floating() and rhs.dtype.is_floating()):
        both_int8 = {str(lhs.dtype), str(rhs.dtype)} <= {"int8", "uint8"}
        if not both_int8:
            raise sem.fail(f"dot of {lhs.dtype} and {rhs.dtype}: cast one to the other", code="K212")
    if lhs.dtype.is_floating():
        element = float64 if float64 in (lhs.dtype, rhs.dtype) else float32
    else:
        element = int32
    shape = (*lhs.shape[:-1], rhs.shape[-1])
    accumulator = unwrap(acc)
    if accumulator is None:
        start = sem.constant(0, element, shape)
        out = unwrap(out_dtype)
        out = element if out is float32 or out is None else out
    else:
        if accumulator.shape != shape:
            raise sem.fail(
                f"the accumulator has shape {list(accumulator.shape)}, the product {list(shape)}",
                code="K203",
            )
        out = accumulator.dtype
        start = sem.cast(accumulator, element)
    handle = sem.builder.emit("tile.dot", lhs.handle, rhs.handle, start.handle)
    return sem.cast(Tensor(handle, element, shape), out)


# Reductions and scans with named combinations


def _reduce_kind(sem: Semantics, value: Tensor, axis: Any, kinds: tuple[str, str, str],
                 keep_dims: Any) -> Tensor:  # fmt: skip
    signed, unsigned, floating = kinds
    element = value.dtype
    kind = floating if element.is_floating() else (
        signed if element.is_int_signed() else unsigned)  # type: ignore[union-attr]  # fmt: skip
    place = unwrap(axis)
    original = value.shape
    if not original:
        return value
    if place is None:
        value = ravel(value, sem=sem)
        place = 0
    place = _axis(sem, place, len(value.shape))
    shape = value.shape[:place] + value.shape[place + 1 :]
    region = _empty_region()
    handle = sem.builder.emit("tile.reduce", value.handle, axis=place, kind=kind, regions=[region])
    result = Tensor(handle, element, shape)
    if unwrap(keep_dims):
        if unwrap(axis) is None:
            return sem.broadcast_to(result, (1,) * len(original))
        return sem.expand_dims(result, place)
    return result


def _empty_region() -> Any:
    from isthmus.ir.core import Region

    return Region()


@builtin
def sum(  # noqa: A001
    input: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None,  # noqa: A002
    *, sem: Semantics,
) -> Tensor:  # fmt: skip
    """Sum along `axis` (all dimensions when None). Integers below 32 bits are summed in 32."""
    value = sem.to_tensor(input)
    wanted = unwrap(dtype)
    if wanted is not None:
        value = sem.cast(value, wanted)
    elif value.dtype.is_int() and value.dtype.primitive_bitwidth < 32:
        value = sem.cast(value, uint32 if value.dtype.is_int_unsigned() else int32)  # type: ignore[union-attr]
    return _reduce_kind(sem, value, axis, ("addi", "addi", "addf"), keep_dims)


def _with_index(
    sem: Semantics, value: Tensor, axis: Any, larger: bool, tie_break_left: bool, keep_dims: Any
) -> tuple[Tensor, Tensor]:
    """(extreme, its index) along `axis`; ties go to the lower index, NaN wins over numbers."""
    from isthmus.ir.core import Region

    place = unwrap(axis)
    if place is None:
        value, place = ravel(value, sem=sem), 0
    place = _axis(sem, place, len(value.shape))
    size = value.shape[place]
    index = Tensor(sem.builder.emit("tile.arange", start=0, end=size), int32, (size,))
    for other in builtins.range(len(value.shape)):
        if other < place:
            index = sem.expand_dims(index, 0)
        elif other > place:
            index = sem.expand_dims(index, -1)
    index = sem.broadcast_to(index, value.shape)
    element = value.dtype
    region = Region([element.ir, int32.ir, element.ir, int32.ir])
    with sem.builder.at(region):
        left, left_index = Tensor(region.args[0], element), Tensor(region.args[1], int32)
        right, right_index = Tensor(region.args[2], element), Tensor(region.args[3], int32)
        better = sem.compare(">" if larger else "<", left, right)
        if element.is_floating():
            left_nan = sem.compare("!=", left, left)
            right_nan = sem.compare("!=", right, right)
            only_left = sem.binary("&", left_nan, sem.invert(right_nan))
            better = sem.binary("|", better, only_left)
            same = sem.binary("|", sem.compare("==", left, right), sem.binary("&", left_nan, right_nan))
        else:
            same = sem.compare("==", left, right)
        if tie_break_left:
            tie = sem.binary("&", same, sem.compare("<", left_index, right_index))
            better = sem.binary("|", better, tie)
        chosen = sem.select(better, left, right)
        chosen_index = sem.select(better, left_index, right_index)
        sem.builder.create("scf.yield", chosen.handle, chosen_index.handle)
    op = sem.builder.create(
        "tile.reduce", value.handle, index.handle, axis=place, kind="region", regions=[region]
    )
    shape = value.shape[:place] + value.shape[place + 1 :]
    results = Tensor(op.results[0], element, shape), Tensor(op.results[1], int32, shape)
    if unwrap(keep_dims):
        return sem.expand_dims(results[0], place), sem.expand_dims(results[1], place)
    return results


def _extreme_reduce(
    sem: Semantics, value: Any, axis: Any, indices: Any, tie: Any, keep_dims: Any, larger: bool
) -> Any:
    tensor = sem.to_tensor(value)
    if unwrap(indices):
        return _with_index(sem, tensor, axis, larger, bool(unwrap(tie)), keep_dims)
    if tensor.dtype.primitive_bitwidth < 32:
        if tensor.dtype.is_floating():
            tensor = sem.cast(tensor, float32)
        else:
            tensor = sem.cast(tensor, int32)
    kinds = ("maxsi", "maxui", "maxnumf") if larger else ("minsi", "minui", "minnumf")
    return _reduce_kind(sem, tensor, axis, kinds, keep_dims)


@builtin
def max(  # noqa: A001
    input: Any, axis: Any = None, return_indices: Any = False,  # noqa: A002
    return_indices_tie_break_left: Any = True, keep_dims: Any = False, *, sem: Semantics,
) -> Any:  # fmt: skip
    """Largest along `axis`; a NaN loses against a number."""
    return _extreme_reduce(
        sem, input, axis, return_indices, return_indices_tie_break_left, keep_dims, True
    )


@builtin
def min(  # noqa: A001
    input: Any, axis: Any = None, return_indices: Any = False,  # noqa: A002
    return_indices_tie_break_left: Any = True, keep_dims: Any = False, *, sem: Semantics,
) -> Any:  # fmt: skip
    """Smallest along `axis`; a NaN loses against a number."""
    return _extreme_reduce(
        sem, input, axis, return_indices, return_indices_tie_break_left, keep_dims, False
    )


@builtin
def argmax(
    input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False,  # noqa: A002
    *, sem: Semantics,
) -> Tensor:  # fmt: skip
    """Index of the largest along `axis`, the first of equals; the first NaN if there is one."""
    return _with_index(
        sem, sem.to_tensor(input), axis, True, bool(unwrap(tie_break_left)), keep_dims
    )[1]


@builtin
def argmin(
    input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False,  # noqa: A002
    *, sem: Semantics,
) -> Tensor:  # fmt: skip
    """Index of the smallest along `axis`, the first of equals; the first NaN if there is one."""
    return _with_index(
        sem, sem.to_tensor(input), axis, False, bool(unwrap(tie_break_left)), keep_dims
    )[1]


@builtin
def xor_sum(input: Any, axis: Any = None, keep_dims: Any = False, *, sem: Semantics) -> Tensor:  # noqa: A002
    """Exclusive or along `axis`."""
    return _reduce_kind(sem, sem.to_tensor(input), axis, ("xori", "xori", "xori"), keep_dims)


def _scan_kind(sem: Semantics, value: Tensor, axis: Any, kinds: tuple[str, str], reverse: Any) -> Tensor:
    place = _axis(sem, axis, len(value.shape))
    kind = kinds[1] if value.dtype.is_floating() else kinds[0]
    handle = sem.builder.emit(
        "tile.scan", value.handle, axis=place, kind=kind, reverse=bool(unwrap(reverse)),
        regions=[_empty_region()],
    )  # fmt: skip
    return Tensor(handle, value.dtype, value.shape)


@builtin
def cumsum(input: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None, *, sem: Semantics) -> Tensor:  # noqa: A002
    """Running sum along `axis`."""
    value = sem.to_tensor(input)
    if unwrap(dtype) is not None:
        value = sem.cast(value, unwrap(dtype))
    elif value.dtype.is_int() and value.dtype.primitive_bitwidth < 32:
        value = sem.cast(value, uint32 if value.dtype.is_int_unsigned() else int32)  # type: ignore[union-attr]
    return _scan_kind(sem, value, axis, ("addi", "addf"), reverse)


@builtin
def cumprod(input: Any, axis: Any = 0, reverse: Any = False, *, sem: Semantics) -> Tensor:  # noqa: A002
    """Running product along `axis`."""
    return _scan_kind(sem, sem.to_tensor(input), axis, ("muli", "mulf"), reverse)


# Atomics


def _atomic(kinds: tuple[str, str, str | None]) -> Builtin:
    signed, unsigned, floating = kinds

    def function(
        pointer: Tensor, val: Any, mask: Any = None, sem: Any = None, scope: Any = None,
        *, _sem: Semantics,
    ) -> Tensor:  # fmt: skip
        element = pointer.dtype.element_ty  # type: ignore[union-attr]
        value = _sem.broadcast_to(_sem.cast(_sem.to_tensor(val), element), pointer.shape)
        kind = floating if element.is_floating() else (
            signed if element.is_int_signed() else unsigned)  # fmt: skip
        if kind is None:
            raise _sem.fail(f"this atomic does not take {element}", code="K206")
        operands = [pointer.handle, value.handle]
        if unwrap(mask) is not None:
            operands.append(_sem.broadcast_to(_sem.truth(mask), pointer.shape).handle)
        attrs = {n: unwrap(v) for n, v in (("sem", sem), ("scope", scope)) if unwrap(v) is not None}
        handle = _sem.builder.emit("tile.atomic_rmw", *operands, kind=kind, **attrs)
        return Tensor(handle, element, pointer.shape)

    return function


def _atomic_builtin(name: str, kinds: tuple[str, str, str | None]) -> Builtin:
    inner = _atomic(kinds)

    def function(
        pointer: Tensor, val: Any, mask: Any = None, sem: Any = None, scope: Any = None,
        **context: Any,
    ) -> Tensor:  # fmt: skip
        return inner(pointer, val, mask, sem, scope, _sem=context["_sem"])

    function.__name__ = name
    function.__doc__ = f"{name}: read, combine, write as one step; gives the old value."
    function.is_builtin = True  # type: ignore[attr-defined]
    function.context_name = "_sem"  # type: ignore[attr-defined]
    return function


atomic_add = _atomic_builtin("atomic_add", ("add", "add", "fadd"))
atomic_max = _atomic_builtin("atomic_max", ("maxs", "maxu", None))
atomic_min = _atomic_builtin("atomic_min", ("mins", "minu", None))
atomic_and = _atomic_builtin("atomic_and", ("and", "and", None))
atomic_or = _atomic_builtin("atomic_or", ("or", "or", None))
atomic_xor = _atomic_builtin("atomic_xor", ("xor", "xor", None))
atomic_xchg = _atomic_builtin("atomic_xchg", ("xchg", "xchg", "xchg"))


def atomic_cas(pointer: Tensor, cmp: Any, val: Any, sem: Any = None, scope: Any = None, **context: Any) -> Tensor:
    """Write `val` where memory equals `cmp`; gives the old value."""
    inner: Semantics = context["_sem"]
    element = pointer.dtype.element_ty  # type: ignore[union-attr]
    compare, value = (
        inner.broadcast_to(inner.cast(inner.to_tensor(item), element), pointer.shape)
        for item in (cmp, val)
    )
    handle = inner.builder.emit("tile.atomic_cas", pointer.handle, compare.handle, value.handle)
    return Tensor(handle, element, pointer.shape)


atomic_cas.is_builtin = True  # type: ignore[attr-defined]
atomic_cas.context_name = "_sem"  # type: ignore[attr-defined]


# Hints, checks, output


def _hint(name: str) -> Builtin:
    def function(value: Any, *_rest: Any, sem: Semantics) -> Any:
        return value

    function.__name__ = name
    function.__doc__ = f"{name}: a hint, accepted and not needed."
    return builtin(function)


multiple_of = _hint("multiple_of")
max_contiguous = _hint("max_contiguous")
max_constancy = _hint("max_constancy")


@builtin
def assume(condition: Any, *, sem: Semantics) -> None:
    """A hint."""


@builtin
def debug_barrier(*, sem: Semantics) -> None:
    """Order memory accesses of this program."""
    sem.builder.create("tile.barrier")


@builtin
def static_assert(condition: Any, message: Any = "", *, sem: Semantics) -> None:
    """Stop compiling with `message` unless the compile-time condition holds."""
    value = unwrap(condition)
    if isinstance(value, Tensor):
        raise sem.fail(
            "static_assert needs a compile-time condition",
            hint="use tl.device_assert for run-time conditions",
            code="K213",
        )
    if not value:
        raise sem.fail(f"static assertion failed: {unwrap(message) or 'condition is false'}",
                       code="K213")  # fmt: skip


@builtin
def static_print(*values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False,
                 sem: Semantics) -> None:  # fmt: skip
    """Print while compiling."""
    print(*(unwrap(value) for value in values), sep=unwrap(sep), end=unwrap(end))  # noqa: T201


@builtin
def device_assert(condition: Any, message: Any = "", mask: Any = None, *, sem: Semantics) -> None:
    """Checked in debug mode only, as in Triton; without it the condition is not evaluated."""


@builtin
def device_print(prefix: Any, *values: Any, hex: Any = False, sem: Semantics) -> None:  # noqa: A002
    """Print values of each program."""
    handles = [sem.to_tensor(value).handle for value in values]
    sem.builder.create("tile.print", *handles, prefix=str(unwrap(prefix)))


class static_range:  # noqa: N801
    """A loop unrolled while compiling."""

    def __init__(self, *bounds: Any) -> None:
        self.bounds = bounds


class range:  # noqa: A001, N801
    """A run-time loop; the hints are accepted."""

    def __init__(self, *bounds: Any, **hints: Any) -> None:
        self.bounds = bounds
        self.hints = hints


_UNUSED = (constexpr, pointer_type, bfloat16, float16, int1)
