"""Memory: loads, stores, block pointers, tensor descriptors and atomics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.language.blocks import flatten_shape
from isthmus.language.emitter import Emitter, describe
from isthmus.language.types import float16, float32, int1, int8, int32, int64, pointer_type
from isthmus.language.values import (
    BlockPointer,
    Builtin,
    Tensor,
    TensorDescriptor,
    builtin,
    unwrap,
)

__all__ = [
    "advance", "atomic_add", "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min",
    "atomic_or", "atomic_store", "atomic_xchg", "atomic_xor", "load", "load_tensor_descriptor",
    "make_block_ptr", "make_tensor_descriptor", "store", "store_tensor_descriptor",
]  # fmt: skip


def _pointer(emitter: Emitter, name: str, pointer: Any) -> Tensor:
    if not isinstance(pointer, Tensor) or not isinstance(pointer.dtype, pointer_type):
        emitter.fail(
            "K501", f"tl.{name} needs pointers, got {describe(pointer)}",
            "pass the kernel a tensor and add offsets to it: x_ptr + offsets",
        )  # fmt: skip
    return pointer


def _mask(emitter: Emitter, mask: Any) -> Tensor | None:
    mask = unwrap(mask)
    if mask is None:
        return None
    block = emitter.tensor(mask)
    if block.dtype != int1:
        emitter.fail(
            "K503", f"a mask is made of truth values, got {describe(block)}",
            "compare: mask = offsets < n, or convert: mask.to(tl.int1)",
        )  # fmt: skip
    return block


def _hints(cache: Any, eviction: Any, volatile: Any = False) -> dict[str, Any]:
    hints = {"cache": unwrap(cache), "eviction": unwrap(eviction), "volatile": unwrap(volatile)}
    return {name: value for name, value in hints.items() if value}


def _load(emitter: Emitter, pointer: Tensor, mask: Tensor | None, other: Any, hints: Any) -> Tensor:
    element = pointer.dtype.element_ty
    memory = int8 if element.is_bool() else element
    fill: Tensor | None = None
    if other is not None:
        number = int(other) if element.is_bool() and not isinstance(other, Tensor) else other
        fill = emitter.cast(number, memory) if isinstance(number, Tensor) else (
            _fill(emitter, number, memory))  # fmt: skip
    blocks = [block for block in (mask, fill) if block is not None and block.shape]
    if blocks:
        shape = emitter.common_shape(pointer.shape, *(block.shape for block in blocks))
        if not pointer.shape:
            emitter.fail(
                "K504", f"one pointer, but a mask or fill value of shape {list(shape)}",
                "add a block of offsets to the pointer",
            )  # fmt: skip
        pointer = emitter.broadcast_to(pointer, shape)
    lanes = [emitter.broadcast_to(item, pointer.shape) for item in (mask, fill) if item is not None]
    operands = [emitter.value(item) for item in (pointer, *lanes)]
    value = emitter.builder.emit("tile.load", *operands, **hints)
    loaded = Tensor(value, memory, pointer.shape)
    return emitter.cast(loaded, int1) if element.is_bool() else loaded


def _fill(emitter: Emitter, number: Any, memory: Any) -> Tensor:
    """A fill value; a float for a block of integers is cut and saturates, as a cast does."""
    if isinstance(number, float) and memory.is_int():
        return emitter.cast(emitter.tensor(number), memory)
    return emitter.literal(number, memory)


def _store(
    emitter: Emitter, pointer: Tensor, value: Tensor, mask: Tensor | None, hints: Any
) -> None:
    shapes = [value.shape] if mask is None else [value.shape, mask.shape]
    shape = emitter.common_shape(pointer.shape, *shapes)
    if shape != pointer.shape:
        if not pointer.shape:
            emitter.fail(
                "K504", f"one pointer, but a value or mask of shape {list(shape)}",
                "add a block of offsets to the pointer",
            )  # fmt: skip
        emitter.fail(
            "K504", f"pointers of shape {list(pointer.shape)}, but a value or mask of shape "
            f"{list(shape)}", "broadcast the pointers first: several lanes would write one place",
        )  # fmt: skip
    stored = emitter.to_memory(value, pointer.dtype.element_ty)
    operands = [emitter.value(pointer), emitter.value(emitter.broadcast_to(stored, shape))]
    if mask is not None:
        operands.append(emitter.value(emitter.broadcast_to(mask, shape)))
    emitter.builder.create("tile.store", *operands, **hints)


@builtin
def load(
    emitter: Emitter, pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (),
    padding_option: Any = "", cache_modifier: Any = "", eviction_policy: Any = "",
    volatile: Any = False, cache_policy: Any = None,
) -> Tensor:  # fmt: skip
    """Read memory. Masked-off lanes touch nothing and give `other`, or 0 without it."""
    hints, other = _hints(cache_modifier, eviction_policy, volatile), unwrap(other)
    if isinstance(pointer, BlockPointer):
        if unwrap(mask) is not None or other is not None:
            emitter.fail(
                "K505", "a block pointer takes neither mask nor other",
                "write boundary_check=(0, 1) and padding_option='zero'",
            )  # fmt: skip
        address, inside = _window(emitter, pointer, boundary_check)
        padding = _padding(emitter, padding_option, pointer)
        return _load(emitter, address, inside, padding if inside is not None else None, hints)
    address, lanes = _pointer(emitter, "load", pointer), _mask(emitter, mask)
    if other is not None and lanes is None:
        emitter.fail(
            "K502", "tl.load has a fill value (other) but no mask",
            "give mask=..., or leave other out",
        )  # fmt: skip
    return _load(emitter, address, lanes, other, hints)


@builtin
def store(
    emitter: Emitter, pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (),
    cache_modifier: Any = "", eviction_policy: Any = "", cache_policy: Any = None,
) -> None:  # fmt: skip
    """Write memory. Masked-off lanes touch nothing."""
    hints, stored = _hints(cache_modifier, eviction_policy), emitter.tensor(value)
    if isinstance(pointer, BlockPointer):
        if unwrap(mask) is not None:
            emitter.fail("K505", "a block pointer takes no mask", "write boundary_check=(0, 1)")
        address, inside = _window(emitter, pointer, boundary_check)
        _store(emitter, address, stored, inside, hints)
        return
    address = _pointer(emitter, "store", pointer)
    if address.dtype.const:
        emitter.fail("K506", f"{address.dtype} is read-only")
    _store(emitter, address, stored, _mask(emitter, mask), hints)


# Block pointers and descriptors


def _window(
    emitter: Emitter, pointer: BlockPointer, boundary_check: Any
) -> tuple[Tensor, Tensor | None]:
    """Pointers of a whole window, and the mask of what lies inside along the checked axes."""
    rank = len(pointer.block_shape)
    axes = unwrap(boundary_check)
    axes = (axes,) if isinstance(axes, int) else axes or ()
    checked = {emitter.axis(axis, rank) for axis in axes}
    address, mask = pointer.base, None
    for axis, size in enumerate(pointer.block_shape):
        lanes = Tensor(emitter.builder.emit("tile.arange", start=0, end=size), int32, (size,))
        first = emitter.cast(pointer.offsets[axis], int64)
        index = emitter.binary("+", first, emitter.cast(lanes, int64))
        for other in range(rank):
            if other != axis:
                index = emitter.expand_dims(index, other)
        address = emitter.binary("+", address, emitter.binary("*", index, pointer.strides[axis]))
        if axis in checked:
            below = emitter.compare("<", index, pointer.shape[axis])
            inside = emitter.binary("&", emitter.compare(">=", index, 0), below)
            mask = inside if mask is None else emitter.binary("&", mask, inside)
    address = emitter.broadcast_to(address, pointer.block_shape)
    return address, None if mask is None else emitter.broadcast_to(mask, pointer.block_shape)


def _padding(emitter: Emitter, option: Any, pointer: BlockPointer | TensorDescriptor) -> Any:
    """The fill value of a padding option; None for zero."""
    option = unwrap(option)
    if option in (None, "", "zero"):
        return None
    if option != "nan":
        emitter.fail("K505", f"padding_option is {option!r}; it must be 'zero' or 'nan'")
    if not pointer.dtype.is_floating():
        emitter.fail("K505", f"padding with NaN needs a float dtype, got {pointer.dtype}")
    return float("nan")


def _scalars(emitter: Emitter, what: str, values: Any, rank: int, to: Any) -> tuple[Tensor, ...]:
    items = unwrap(values)
    if not isinstance(items, (tuple, list)) or len(items) != rank:
        emitter.fail("K505", f"{what} must have {rank} entries, one per dimension of the block")
    scalars = tuple(emitter.tensor(item) for item in items)
    for scalar in scalars:
        if scalar.shape or isinstance(scalar.dtype, pointer_type) or not scalar.dtype.is_int():
            emitter.fail("K505", f"{what} must be whole numbers, got {describe(scalar)}")
    return tuple(emitter.cast(scalar, to) for scalar in scalars)


@builtin
def make_block_ptr(
    emitter: Emitter, base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any,
    order: Any = None,
) -> BlockPointer:  # fmt: skip
    """A window of `block_shape` at `offsets` of a strided tensor; `order` is a hint."""
    pointer = _pointer(emitter, "make_block_ptr", base)
    sizes = emitter.block_shape(flatten_shape((block_shape,)))
    rank = len(sizes)
    return BlockPointer(
        pointer,
        _scalars(emitter, "shape", shape, rank, int64),
        _scalars(emitter, "strides", strides, rank, int64),
        _scalars(emitter, "offsets", offsets, rank, int32),
        sizes,
    )


@builtin
def advance(emitter: Emitter, base: Any, offsets: Any) -> BlockPointer:
    """The block pointer moved by `offsets` elements along each dimension."""
    if not isinstance(base, BlockPointer):
        emitter.fail("K505", f"tl.advance moves block pointers, got {describe(base)}")
    steps = _scalars(emitter, "offsets", offsets, len(base.block_shape), int32)
    return base.moved([emitter.binary("+", a, b) for a, b in zip(base.offsets, steps, strict=True)])


@builtin
def make_tensor_descriptor(
    emitter: Emitter, base: Any, shape: Any, strides: Any, block_shape: Any,
    padding_option: Any = "zero",
) -> TensorDescriptor:  # fmt: skip
    """A strided tensor read and written in blocks of `block_shape`, all bounds checked."""
    pointer = _pointer(emitter, "make_tensor_descriptor", base)
    sizes = emitter.block_shape(flatten_shape((block_shape,)))
    descriptor = TensorDescriptor(
        pointer,
        _scalars(emitter, "shape", shape, len(sizes), int64),
        _scalars(emitter, "strides", strides, len(sizes), int64),
        sizes,
        unwrap(padding_option) or "zero",
    )
    _padding(emitter, padding_option, descriptor)
    return descriptor


def _at(emitter: Emitter, desc: Any, offsets: Any) -> tuple[Tensor, Tensor | None]:
    if not isinstance(desc, TensorDescriptor):
        emitter.fail("K505", f"expected a tensor descriptor, got {describe(desc)}")
    rank = len(desc.block_shape)
    window = desc.window(_scalars(emitter, "offsets", offsets, rank, int32))
    return _window(emitter, window, tuple(range(rank)))


@builtin
def load_tensor_descriptor(emitter: Emitter, desc: Any, offsets: Any) -> Tensor:
    """The block of a descriptor at `offsets`; what lies outside is padding."""
    address, inside = _at(emitter, desc, offsets)
    return _load(emitter, address, inside, _padding(emitter, desc.padding, desc), {})


@builtin
def store_tensor_descriptor(emitter: Emitter, desc: Any, offsets: Any, value: Any) -> None:
    """Write the block of a descriptor at `offsets`; what lies outside is not written."""
    address, inside = _at(emitter, desc, offsets)
    block = emitter.tensor(value)
    if block.shape != desc.block_shape:
        emitter.fail(
            "K505",
            f"the descriptor has blocks {list(desc.block_shape)}, got {describe(block)}",
        )
    _store(emitter, address, block, inside, {})


# Atomics


def _atomic_operands(
    emitter: Emitter, name: str, pointer: Any, values: Sequence[Any], mask: Any
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    address = _pointer(emitter, name, pointer)
    element = address.dtype.element_ty
    blocks = [emitter.cast(emitter.tensor(value), element) for value in values]
    lanes = _mask(emitter, mask)
    shapes = [block.shape for block in blocks] + ([lanes.shape] if lanes is not None else [])
    shape = emitter.common_shape(address.shape, *shapes)
    if shape != address.shape:
        emitter.fail(
            "K504", f"pointers of shape {list(address.shape)}, but values or mask of {list(shape)}",
            "add a block of offsets to the pointer",
        )  # fmt: skip
    blocks = [emitter.broadcast_to(block, shape) for block in blocks]
    return address, blocks, None if lanes is None else emitter.broadcast_to(lanes, shape)


def _order(sem: Any, scope: Any) -> dict[str, Any]:
    order = {"sem": unwrap(sem), "scope": unwrap(scope)}
    return {name: value for name, value in order.items() if value}


#: name -> kind for signed integers, unsigned integers, floats; the smallest width in bits.
_ATOMICS: dict[str, tuple[str | None, str | None, str | None, int]] = {
    "atomic_add": ("add", "add", "fadd", 16),
    "atomic_max": ("maxs", "maxu", None, 32),
    "atomic_min": ("mins", "minu", None, 32),
    "atomic_and": ("and", "and", None, 32),
    "atomic_or": ("or", "or", None, 32),
    "atomic_xor": ("xor", "xor", None, 32),
    "atomic_xchg": ("xchg", "xchg", "xchg", 32),
}
_ATOMIC_DOC = "{}: read, combine and write as one step; gives the old value."


def _atomic(name: str) -> Builtin:
    signed, unsigned, floating, smallest = _ATOMICS[name]

    def build(
        emitter: Emitter, pointer: Any, val: Any, mask: Any = None, sem: Any = None,
        scope: Any = None,
    ) -> Tensor:  # fmt: skip
        address, (value,), lanes = _atomic_operands(emitter, name, pointer, (val,), mask)
        element = address.dtype.element_ty
        bits = element.primitive_bitwidth
        narrow = bits < smallest or (bits == 16 and element.is_int())
        if element.is_floating() and floating is None and not narrow:
            return _float_extreme(emitter, name, address, value, lanes, _order(sem, scope))
        kind = floating if element.is_floating() else (
            signed if element.is_int_signed() else unsigned)  # fmt: skip
        if kind is None or narrow:
            emitter.fail(
                "K507", f"tl.{name} does not take {element}", "use int32, int64 or float32"
            )
        operands = [emitter.value(item) for item in (address, value, lanes) if item is not None]
        result = emitter.builder.emit("tile.atomic_rmw", *operands, kind=kind, **_order(sem, scope))
        return Tensor(result, element, address.shape)

    build.__doc__ = _ATOMIC_DOC.format(name)
    return Builtin(name, build)


def _float_extreme(
    emitter: Emitter, name: str, address: Tensor, value: Tensor, lanes: Tensor | None,
    order: dict[str, Any],
) -> Tensor:  # fmt: skip
    """Largest or smallest float by integers: floats of one sign compare like their bits.

    Values without sign bit use the signed operation, values with it the opposite unsigned one.
    """
    if name not in ("atomic_max", "atomic_min") or value.dtype == float16:
        emitter.fail("K507", f"tl.{name} does not take {value.dtype}", "use an integer dtype")
    bits = int32 if value.dtype == float32 else int64
    place = emitter.cast(address, pointer_type(bits))
    raw = emitter.bitcast(value, bits)
    positive = emitter.compare(">=", raw, 0)
    kinds = ("maxs", "minu") if name == "atomic_max" else ("mins", "maxu")
    results = []
    for kind, sign in zip(kinds, (positive, emitter.invert(positive)), strict=True):
        mask = sign if lanes is None else emitter.binary("&", sign, lanes)
        operands = [emitter.value(item) for item in (place, raw, mask)]
        result = emitter.builder.emit("tile.atomic_rmw", *operands, kind=kind, **order)
        results.append(Tensor(result, bits, address.shape))
    old = emitter.select(positive, *results)
    return emitter.bitcast(old, value.dtype)


atomic_add = _atomic("atomic_add")
atomic_max = _atomic("atomic_max")
atomic_min = _atomic("atomic_min")
atomic_and = _atomic("atomic_and")
atomic_or = _atomic("atomic_or")
atomic_xor = _atomic("atomic_xor")
atomic_xchg = _atomic("atomic_xchg")


@builtin
def atomic_cas(
    emitter: Emitter, pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None
) -> Tensor:
    """Write `val` where memory equals `cmp`; gives the old value."""
    address, blocks, _ = _atomic_operands(emitter, "atomic_cas", pointer, (cmp, val), None)
    element = address.dtype.element_ty
    if element.primitive_bitwidth < 16:
        emitter.fail("K507", f"tl.atomic_cas does not take {element}", "use int32 or int64")
    operands = [emitter.value(item) for item in (address, *blocks)]
    result = emitter.builder.emit("tile.atomic_cas", *operands, **_order(sem, scope))
    return Tensor(result, element, address.shape)


@builtin
def atomic_load(
    emitter: Emitter, pointer: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> Tensor:
    """Read memory that other programs write."""
    address = _pointer(emitter, "atomic_load", pointer)
    return _load(emitter, address, _mask(emitter, mask), None, {"volatile": True})


@builtin
def atomic_store(
    emitter: Emitter, pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None
) -> None:
    """Write memory that other programs read."""
    address, value = _pointer(emitter, "atomic_store", pointer), emitter.tensor(val)
    _store(emitter, address, value, _mask(emitter, mask), {"volatile": True})
