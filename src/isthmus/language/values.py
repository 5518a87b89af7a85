"""What names are bound to while a kernel is built.

Compile-time values are plain Python objects: numbers, None, strings, dtypes, tuples, functions.
Run-time values are the classes here. `flatten` and `rebuild` turn any of them, tuples included,
into the SSA values that loops and branches carry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from isthmus.core.errors import KernelError
from isthmus.ir.core import Value
from isthmus.ir.types import TileType, Type
from isthmus.language.types import block_type, dtype, pointer_type

__all__ = [
    "BlockPointer", "Builtin", "Tensor", "TensorDescriptor", "builtin", "constexpr",
    "constexpr_function", "is_runtime", "rebuild", "runtime_parts", "unwrap",
]  # fmt: skip


class constexpr:  # noqa: N801  (the language's own name)
    """A compile-time value: `N = tl.constexpr(4)` for globals, an annotation for parameters."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == unwrap(other)

    def __index__(self) -> int:
        return self.value.__index__()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.value(*arguments, **keywords)

    def __add__(self, other: Any) -> Any:
        return constexpr(self.value + unwrap(other))

    def __radd__(self, other: Any) -> Any:
        return constexpr(unwrap(other) + self.value)

    def __sub__(self, other: Any) -> Any:
        return constexpr(self.value - unwrap(other))

    def __rsub__(self, other: Any) -> Any:
        return constexpr(unwrap(other) - self.value)

    def __mul__(self, other: Any) -> Any:
        return constexpr(self.value * unwrap(other))

    def __rmul__(self, other: Any) -> Any:
        return constexpr(unwrap(other) * self.value)

    def __truediv__(self, other: Any) -> Any:
        return constexpr(self.value / unwrap(other))

    def __rtruediv__(self, other: Any) -> Any:
        return constexpr(unwrap(other) / self.value)

    def __floordiv__(self, other: Any) -> Any:
        return constexpr(self.value // unwrap(other))

    def __rfloordiv__(self, other: Any) -> Any:
        return constexpr(unwrap(other) // self.value)

    def __mod__(self, other: Any) -> Any:
        return constexpr(self.value % unwrap(other))

    def __rmod__(self, other: Any) -> Any:
        return constexpr(unwrap(other) % self.value)

    def __pow__(self, other: Any) -> Any:
        return constexpr(self.value ** unwrap(other))

    def __rpow__(self, other: Any) -> Any:
        return constexpr(unwrap(other) ** self.value)

    def __lshift__(self, other: Any) -> Any:
        return constexpr(self.value << unwrap(other))

    def __rlshift__(self, other: Any) -> Any:
        return constexpr(unwrap(other) << self.value)

    def __rshift__(self, other: Any) -> Any:
        return constexpr(self.value >> unwrap(other))

    def __rrshift__(self, other: Any) -> Any:
        return constexpr(unwrap(other) >> self.value)

    def __and__(self, other: Any) -> Any:
        return constexpr(self.value & unwrap(other))

    def __rand__(self, other: Any) -> Any:
        return constexpr(unwrap(other) & self.value)

    def __or__(self, other: Any) -> Any:
        return constexpr(self.value | unwrap(other))

    def __ror__(self, other: Any) -> Any:
        return constexpr(unwrap(other) | self.value)

    def __xor__(self, other: Any) -> Any:
        return constexpr(self.value ^ unwrap(other))

    def __rxor__(self, other: Any) -> Any:
        return constexpr(unwrap(other) ^ self.value)

    def __lt__(self, other: Any) -> Any:
        return constexpr(self.value < unwrap(other))

    def __le__(self, other: Any) -> Any:
        return constexpr(self.value <= unwrap(other))

    def __gt__(self, other: Any) -> Any:
        return constexpr(self.value > unwrap(other))

    def __ge__(self, other: Any) -> Any:
        return constexpr(self.value >= unwrap(other))

    def __neg__(self) -> Any:
        return constexpr(-self.value)


def unwrap(value: Any) -> Any:
    """The value inside a constexpr; anything else as it is."""
    return value.value if isinstance(value, constexpr) else value


class Tensor:
    """A block of values, or one value where `shape` is ().

    `constant` holds the number of a scalar that is known; its IR value is made when needed,
    and `value` is None.
    """

    __slots__ = ("constant", "dtype", "shape", "value")

    def __init__(
        self,
        value: Value | None,
        dtype: dtype | pointer_type,
        shape: tuple[int, ...] = (),
        constant: float | None = None,
    ) -> None:
        self.value = value
        self.dtype: Any = dtype
        self.shape = shape
        self.constant = constant

    @property
    def type(self) -> dtype | pointer_type | block_type:
        return block_type(self.dtype, self.shape) if self.shape else self.dtype

    @property
    def ir_type(self) -> Type:
        return TileType(self.shape, self.dtype.ir) if self.shape else self.dtype.ir

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"{'x'.join(map(str, self.shape))}x{self.dtype}" if self.shape else str(self.dtype)


class BlockPointer:
    """A window of `block_shape` elements into a strided tensor: scalars only.

    shape and strides are i64 and count elements; offsets are i32, where the window begins.
    """

    __slots__ = ("base", "block_shape", "offsets", "shape", "strides")

    def __init__(
        self,
        base: Tensor,
        shape: tuple[Tensor, ...],
        strides: tuple[Tensor, ...],
        offsets: tuple[Tensor, ...],
        block_shape: tuple[int, ...],
    ) -> None:
        self.base = base
        self.shape = shape
        self.strides = strides
        self.offsets = offsets
        self.block_shape = block_shape

    @property
    def dtype(self) -> dtype:
        return self.base.dtype.element_ty

    def moved(self, offsets: Sequence[Tensor]) -> BlockPointer:
        return BlockPointer(self.base, self.shape, self.strides, tuple(offsets), self.block_shape)

    def parts(self) -> list[Tensor]:
        return [self.base, *self.shape, *self.strides, *self.offsets]

    def with_parts(self, parts: Iterator[Tensor]) -> BlockPointer:
        rank = len(self.block_shape)
        base = next(parts)
        shape, strides, offsets = (tuple(next(parts) for _ in range(rank)) for _ in range(3))
        return BlockPointer(base, shape, strides, offsets, self.block_shape)

    def __repr__(self) -> str:
        return f"block pointer to {'x'.join(map(str, self.block_shape))}x{self.dtype}"


class TensorDescriptor:
    """A strided tensor read and written in blocks of `block_shape`, all bounds checked."""

    __slots__ = ("base", "block_shape", "padding", "shape", "strides")

    def __init__(
        self,
        base: Tensor,
        shape: tuple[Tensor, ...],
        strides: tuple[Tensor, ...],
        block_shape: tuple[int, ...],
        padding: str = "zero",
    ) -> None:
        self.base = base
        self.shape = shape
        self.strides = strides
        self.block_shape = block_shape
        self.padding = padding

    @property
    def dtype(self) -> dtype:
        return self.base.dtype.element_ty

    def window(self, offsets: Sequence[Tensor]) -> BlockPointer:
        return BlockPointer(self.base, self.shape, self.strides, tuple(offsets), self.block_shape)

    def parts(self) -> list[Tensor]:
        return [self.base, *self.shape, *self.strides]

    def with_parts(self, parts: Iterator[Tensor]) -> TensorDescriptor:
        rank = len(self.block_shape)
        base = next(parts)
        shape, strides = (tuple(next(parts) for _ in range(rank)) for _ in range(2))
        return TensorDescriptor(base, shape, strides, self.block_shape, self.padding)

    def __repr__(self) -> str:
        return f"tensor descriptor of {'x'.join(map(str, self.block_shape))}x{self.dtype}"


_BUNDLES = (BlockPointer, TensorDescriptor)


def is_runtime(value: Any) -> bool:
    """Whether a value is known only while the kernel runs, in whole or in part."""
    if isinstance(value, tuple):
        return any(map(is_runtime, value))
    return isinstance(value, (Tensor, *_BUNDLES))


def runtime_parts(value: Any) -> list[Tensor]:
    """The run-time scalars and blocks inside a value, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple):
        return [part for item in value for part in runtime_parts(item)]
    return value.parts() if isinstance(value, _BUNDLES) else []


def rebuild(value: Any, parts: Iterator[Tensor]) -> Any:
    """`value` with its run-time parts replaced by those of `parts`, in order."""
    if isinstance(value, Tensor):
        return next(parts)
    if isinstance(value, tuple):
        items = [rebuild(item, parts) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value.with_parts(parts) if isinstance(value, _BUNDLES) else value


class Builtin:
    """A function of the language. The front end calls `build(emitter, *arguments, **keywords)`."""

    def __init__(self, name: str, build: Callable[..., Any]) -> None:
        self.name = name
        self.build = build
        self.__doc__ = build.__doc__

    def __call__(self, *_arguments: Any, **_keywords: Any) -> Any:
        raise KernelError(
            f"tl.{self.name} has a meaning only inside a kernel",
            hint="decorate the function with @isthmus.jit and launch it over a grid",
            code="K101",
        )

    def __repr__(self) -> str:
        return f"tl.{self.name}"


def builtin(build: Callable[..., Any]) -> Builtin:
    """Make a function of the language; a trailing underscore of the name is dropped."""
    return Builtin(build.__name__.rstrip("_"), build)


def constexpr_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let kernels call a Python function with compile-time arguments, while they are built."""
    function.is_constexpr_function = True  # type: ignore[attr-defined]
    return function
