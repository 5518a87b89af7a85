"""How types and constants are spelled in LLVM IR.

Narrow floats (f8, f16, bf16) are held as integers of their width: LLVM would turn arithmetic on
them into library calls on most targets, so `numbers.py` converts them explicitly.
"""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.ir.types import PointerType, ScalarType, Type, VectorType

__all__ = ["STORAGE_FLOATS", "constant_text", "llvm_type", "mangled", "shaped", "signed"]

#: Floats that are computed in f32 and held as integers in between.
STORAGE_FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16")

_ELEMENTS = {
    "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "f8e4m3": "i8", "f8e5m2": "i8", "f16": "i16", "bf16": "i16", "f32": "float", "f64": "double",
}  # fmt: skip

_BITS_OF = {
    "f8e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
    "f8e5m2": (ml_dtypes.float8_e5m2, np.uint8),
    "f16": (np.float16, np.uint16),
    "bf16": (ml_dtypes.bfloat16, np.uint16),
}

_MANGLED = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


def shaped(element: str, lanes: int) -> str:
    """LLVM type of `lanes` elements; 0 lanes is a scalar."""
    return f"<{lanes} x {element}>" if lanes else element


def llvm_type(type_: Type) -> str:
    """LLVM spelling of a scalar, pointer or vector type."""
    if isinstance(type_, VectorType):
        return f"<{type_.lanes} x {llvm_type(type_.element)}>"
    if isinstance(type_, PointerType):
        return "ptr"
    assert isinstance(type_, ScalarType), f"{type_} does not exist below the nest lowering"
    return _ELEMENTS[type_.name]


def mangled(element: str, lanes: int) -> str:
    """The suffix of an overloaded intrinsic: `v8f32`, `i64`."""
    name = _MANGLED.get(element, element)
    return f"v{lanes}{name}" if lanes else name


def signed(value: int, bits: int) -> int:
    """`value` wrapped into the signed range of `bits` bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _scalar_text(scalar: ScalarType, value: Any) -> str:
    if scalar.name == "i1":
        return "true" if value else "false"
    if scalar.kind == "int":
        return str(signed(int(value), scalar.bits))
    if scalar.name in _BITS_OF:
        float_type, bits_type = _BITS_OF[scalar.name]
        with np.errstate(over="ignore", invalid="ignore"):
            bits = np.float64(value).astype(float_type).view(bits_type)
        return str(signed(int(bits), scalar.bits))
    with np.errstate(over="ignore"):
        number = float(np.float32(value)) if scalar.name == "f32" else float(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def constant_text(type_: Type, value: Any) -> str:
    """An `arith.constant` as an LLVM operand."""
    if isinstance(type_, VectorType):
        assert isinstance(type_.element, ScalarType), "constants of pointers do not exist"
        text = _scalar_text(type_.element, value)
        return f"splat ({_ELEMENTS[type_.element.name]} {text})"
    if isinstance(type_, PointerType):
        return "null" if not value else f"inttoptr (i64 {int(value)} to ptr)"
    assert isinstance(type_, ScalarType), f"{type_} does not exist below the nest lowering"
    return _scalar_text(type_, value)
