"""What several rules need: axes, operands in one dtype, slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from isthmus.core.dtypes import DType, dtype_named
from isthmus.program.capture.convert import Converter, dtype_of
from isthmus.program.graph import Value

__all__ = ["BOOL", "I32", "I64", "dims", "pair", "promoted", "slice_of"]

I32, I64, BOOL = dtype_named("i32"), dtype_named("i64"), dtype_named("bool")


def dims(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order; all when none are named."""
    if axes is None or axes == []:
        return tuple(range(rank))
    items = [axes] if isinstance(axes, int) else list(axes)
    return tuple(sorted(axis % max(rank, 1) for axis in items)) if rank else ()


def pair(c: Converter, a: Any, b: Any, dtype: DType) -> tuple[Value, Value]:
    """Two operands, numbers included, in one dtype."""
    values = [
        c.cast(item, dtype) if isinstance(item, Value) else c.constant(item, dtype)
        for item in (a, b)
    ]
    return values[0], values[1]


def promoted(a: Any, b: Any) -> DType:
    """The dtype in which PyTorch combines two operands."""

    def sample(item: Any) -> Any:
        if not isinstance(item, Value):
            return item
        name = {"bool": torch.bool, "f32": torch.float32, "f64": torch.float64,
                "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8,
                "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
                "u8": torch.uint8}[item.spec.dtype.name]  # fmt: skip
        return torch.empty(
            item.spec.shape if not item.spec.shape else (1,) * len(item.spec.shape), dtype=name
        )

    return dtype_of(torch.result_type(sample(a), sample(b)))


def slice_of(c: Converter, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    """A stretch of one axis; `x` itself when that is all of it."""
    if start == 0 and stop == x.spec.shape[axis] and step == 1:
        return x
    return c.emit("slice", x, axis=axis, start=start, stop=stop, step=step)
