"""The NumPy side of every element type."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from isthmus.core.dtypes import DTYPES, DType
from isthmus.ir.types import ScalarType

__all__ = ["dtype_of", "numpy_dtype"]

_NUMPY: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in (
        ("bool", np.bool_), ("i1", np.bool_), ("i8", np.int8), ("i16", np.int16),
        ("i32", np.int32), ("i64", np.int64), ("u8", np.uint8), ("u16", np.uint16),
        ("u32", np.uint32), ("u64", np.uint64), ("f16", np.float16), ("f32", np.float32),
        ("f64", np.float64), ("bf16", ml_dtypes.bfloat16), ("f8e4m3", ml_dtypes.float8_e4m3fn),
        ("f8e5m2", ml_dtypes.float8_e5m2),
    )
}  # fmt: skip
_BY_NUMPY = {_NUMPY[name]: dtype for name, dtype in DTYPES.items()}


def numpy_dtype(element: ScalarType | DType) -> np.dtype:
    """The NumPy dtype of an IR scalar or a dtype; `i1` and `bool` are NumPy's bool."""
    return _NUMPY[element.name]


def dtype_of(array: np.ndarray) -> DType:
    """The dtype of an array's elements. Raises KeyError where there is none."""
    return _BY_NUMPY[array.dtype]
