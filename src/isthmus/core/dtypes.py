"""Element types, by one set of names used in kernels, programs, files and reports.

Standard library only: the NumPy side of each dtype lives in `isthmus.ir.numpy_types`.
"""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.core.errors import DTypeError

__all__ = ["DTYPES", "DType", "dtype_named"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    `kind` is "bool", "int", "uint" or "float"; `bits` is the width in storage, 8 for bool.
    """

    name: str
    kind: str
    bits: int
    mantissa_bits: int = 0
    exponent_bits: int = 0

    @property
    def size_bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def epsilon(self) -> float:
        """Distance from 1.0 to the next larger value; 0.0 for integers."""
        return 2.0**-self.mantissa_bits if self.is_float else 0.0

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"dtype({self.name})"


_ALL = (
    DType("bool", "bool", 8),
    DType("i8", "int", 8),
    DType("i16", "int", 16),
    DType("i32", "int", 32),
    DType("i64", "int", 64),
    DType("u8", "uint", 8),
    DType("u16", "uint", 16),
    DType("u32", "uint", 32),
    DType("u64", "uint", 64),
    DType("f8e4m3", "float", 8, mantissa_bits=3, exponent_bits=4),
    DType("f8e5m2", "float", 8, mantissa_bits=2, exponent_bits=5),
    DType("f16", "float", 16, mantissa_bits=10, exponent_bits=5),
    DType("bf16", "float", 16, mantissa_bits=7, exponent_bits=8),
    DType("f32", "float", 32, mantissa_bits=23, exponent_bits=8),
    DType("f64", "float", 64, mantissa_bits=52, exponent_bits=11),
)

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _ALL}


def dtype_named(name: str) -> DType:
    """The dtype called `name`. Raises DTypeError naming the choices."""
    try:
        return DTYPES[name]
    except KeyError:
        raise DTypeError(
            f"unknown dtype {name!r}; known dtypes: {', '.join(DTYPES)}",
        ) from None
