"""Values while a kernel is being built: blocks and scalars, block pointers, compile-time values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from isthmus.ir.core import Value
from isthmus.language.types import block_type, dtype, int32, int64, pointer_type

__all__ = ["BlockPointer", "Tensor", "constexpr", "is_static", "unwrap"]


class constexpr:  # noqa: N801  (the language's own name)
    """A compile-time value; as an annotation it marks a compile-time parameter."""

    def __init__(self, value: Any) -> None:
        self.value = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return self.value == unwrap(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.value(*arguments, **keywords)

    def __add__(self, other: Any) -> constexpr:
        return constexpr(self.value + unwrap(other))

    def __radd__(self, other: Any) -> constexpr:
        return constexpr(unwrap(other) + self.value)

    def __sub__(self, other: Any) -> constexpr:
        return constexpr(self.value - unwrap(other))

    def __rsub__(self, other: Any) -> constexpr:
        return constexpr(unwrap(other) - self.value)

    def __mul__(self, other: Any) -> constexpr:
        return constexpr(self.value * unwrap(other))

    def __rmul__(self, other: Any) -> constexpr:
        return constexpr(unwrap(other) * self.value)

    def __truediv__(self, other: Any) -> constexpr:
        return constexpr(self.value / unwrap(other))

    def __rtruediv__(self, other: Any) -> constexpr:
        return constexpr(unwrap(other) / self.value)

    def __floordiv__(self, other: Any) -> constexpr:
        return constexpr(self.value // unwrap(other))

    def __mod__(self, other: Any) -> constexpr:
        return constexpr(self.value % unwrap(other))

    def __neg__(self) -> constexpr:
        return constexpr(-self.value)


def unwrap(value: Any) -> Any:
    """The value inside a constexpr; anything else as it is."""
    return value.value if isinstance(value, constexpr) else value


@dataclass(slots=True, eq=False)
class Tensor:
    """A run-time value: a block, or a scalar when `shape` is ()."""

    handle: Value
    dtype: dtype | pointer_type
    shape: tuple[int, ...] = ()

    @property
    def type(self) -> dtype | pointer_type | block_type:
        return block_type(self.dtype, self.shape) if self.shape else self.dtype

    @property
    def numel(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    def __repr__(self) -> str:
        return str(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class BlockPointer:
    """A block pointer or tensor descriptor: scalars only, expanded at each load and store.

    `strides` count elements; `offsets` is where the block begins.
    """

    base: Tensor
    shape: tuple[Tensor, ...]
    strides: tuple[Tensor, ...]
    offsets: tuple[Tensor, ...]
    block_shape: tuple[int, ...]
    is_descriptor: bool = False
    dtype: Any = field(default=None)

    def moved(self, offsets: tuple[Tensor, ...]) -> BlockPointer:
        return replace(self, offsets=offsets)


def is_static(value: Any) -> bool:
    """Whether a value is known while building: not a run-time value, nor a tuple holding one."""
    if isinstance(value, (Tensor, BlockPointer)):
        return False
    if isinstance(value, (tuple, list)):
        return all(is_static(item) for item in value)
    return True


_INDEX_TYPES = (int32, int64)
