"""Types of the kernel language: dtypes with a sign, pointers, and their rules of promotion."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isthmus.ir import types as ir

__all__ = [
    "SIGNATURE_DTYPES", "bfloat16", "block_type", "dtype", "float16", "float32", "float64",
    "float8e4nv", "float8e5", "int1", "int8", "int16", "int32", "int64", "integer_of",
    "literal_dtype", "parse_type", "pointer_type", "promote", "promote_literal",
    "uint8", "uint16", "uint32", "uint64", "void",
]  # fmt: skip


class _Type:
    """What dtypes, pointers and block types answer alike."""

    __slots__ = ()

    def is_floating(self) -> bool:
        return False

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_int_signed(self) -> bool:
        return False

    def is_int_unsigned(self) -> bool:
        return False

    def is_ptr(self) -> bool:
        return False

    def is_block(self) -> bool:
        return False

    def is_fp8(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class dtype(_Type):  # noqa: N801  (the language's own name)
    """An element type of the language; unlike IR types, integers have a sign.

    `kind` is "bool", "int", "uint", "float" or "void".
    """

    name: str
    kind: str
    primitive_bitwidth: int
    fp_mantissa_width: int = 0

    def is_floating(self) -> bool:
        return self.kind == "float"

    def is_int(self) -> bool:
        return self.kind in ("int", "uint", "bool")

    def is_bool(self) -> bool:
        return self.kind == "bool"

    def is_int_signed(self) -> bool:
        return self.kind == "int"

    def is_int_unsigned(self) -> bool:
        """Truth values count as unsigned."""
        return self.kind in ("uint", "bool")

    def is_standard_floating(self) -> bool:
        return self.kind == "float" and self.primitive_bitwidth > 8

    def is_fp8(self) -> bool:
        return self.kind == "float" and self.primitive_bitwidth == 8

    def is_fp16(self) -> bool:
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        return self.name == "fp64"

    def is_fp8e4nv(self) -> bool:
        return self.name == "fp8e4nv"

    def is_fp8e5(self) -> bool:
        return self.name == "fp8e5"

    def is_int1(self) -> bool:
        return self.name == "int1"

    def is_int8(self) -> bool:
        return self.name == "int8"

    def is_int16(self) -> bool:
        return self.name == "int16"

    def is_int32(self) -> bool:
        return self.name == "int32"

    def is_int64(self) -> bool:
        return self.name == "int64"

    def is_uint8(self) -> bool:
        return self.name == "uint8"

    def is_uint16(self) -> bool:
        return self.name == "uint16"

    def is_uint32(self) -> bool:
        return self.name == "uint32"

    def is_uint64(self) -> bool:
        return self.name == "uint64"

    def is_void(self) -> bool:
        return self.kind == "void"

    @property
    def int_bitwidth(self) -> int:
        return self.primitive_bitwidth

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.primitive_bitwidth // 8)

    @property
    def scalar(self) -> dtype:
        return self

    @property
    def limits(self) -> tuple[int, int]:
        """(smallest, largest) of an integer dtype."""
        if self.kind == "int":
            half = 1 << (self.primitive_bitwidth - 1)
            return -half, half - 1
        return 0, (1 << self.primitive_bitwidth) - 1

    def get_int_min_value(self) -> int:
        return self.limits[0]

    def get_int_max_value(self) -> int:
        return self.limits[1]

    @property
    def ir(self) -> ir.ScalarType:
        """The IR type of a value of this dtype."""
        return _IR[self.name]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class pointer_type(_Type):  # noqa: N801
    """Address of an `element_ty` in memory."""

    element_ty: dtype
    const: bool = False

    def is_ptr(self) -> bool:
        return True

    @property
    def primitive_bitwidth(self) -> int:
        return 64

    @property
    def scalar(self) -> pointer_type:
        return self

    @property
    def ir(self) -> ir.PointerType:
        """The IR type: truth values lie in memory as bytes."""
        return ir.PointerType(ir.I8 if self.element_ty.is_bool() else self.element_ty.ir)

    def __str__(self) -> str:
        return f"pointer<{self.element_ty}>"

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class block_type(_Type):  # noqa: N801
    """Type of a block of values: `x.type`."""

    element_ty: dtype | pointer_type
    shape: tuple[int, ...]

    @property
    def scalar(self) -> dtype | pointer_type:
        return self.element_ty

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def is_block(self) -> bool:
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape

    def __str__(self) -> str:
        return f"<{list(self.shape)}, {self.element_ty}>"


void = dtype("void", "void", 0)
int1 = dtype("int1", "bool", 1)
int8 = dtype("int8", "int", 8)
int16 = dtype("int16", "int", 16)
int32 = dtype("int32", "int", 32)
int64 = dtype("int64", "int", 64)
uint8 = dtype("uint8", "uint", 8)
uint16 = dtype("uint16", "uint", 16)
uint32 = dtype("uint32", "uint", 32)
uint64 = dtype("uint64", "uint", 64)
float8e4nv = dtype("fp8e4nv", "float", 8, 3)
float8e5 = dtype("fp8e5", "float", 8, 2)
float16 = dtype("fp16", "float", 16, 10)
bfloat16 = dtype("bf16", "float", 16, 7)
float32 = dtype("fp32", "float", 32, 23)
float64 = dtype("fp64", "float", 64, 52)

_IR: dict[str, ir.ScalarType] = {
    "int1": ir.I1, "int8": ir.I8, "int16": ir.I16, "int32": ir.I32, "int64": ir.I64,
    "uint8": ir.I8, "uint16": ir.I16, "uint32": ir.I32, "uint64": ir.I64,
    "fp8e4nv": ir.F8E4M3, "fp8e5": ir.F8E5M2, "bf16": ir.BF16, "fp16": ir.F16,
    "fp32": ir.F32, "fp64": ir.F64,
}  # fmt: skip

#: How launch signatures spell the dtypes.
SIGNATURE_DTYPES: dict[str, dtype] = {
    "i1": int1, "u1": int1, "bool": int1, "i8": int8, "i16": int16, "i32": int32, "i64": int64,
    "u8": uint8, "u16": uint16, "u32": uint32, "u64": uint64,
    "f8e4m3": float8e4nv, "f8e5m2": float8e5, "fp8e4nv": float8e4nv, "fp8e5": float8e5,
    "f16": float16, "bf16": bfloat16, "f32": float32, "f64": float64,
    "fp16": float16, "fp32": float32, "fp64": float64,
}  # fmt: skip


def parse_type(text: str) -> dtype | pointer_type:
    """The type that a signature spells: "i32", "*f32", "*bool". Raises KeyError."""
    if text.startswith("*"):
        return pointer_type(SIGNATURE_DTYPES[text[1:]])
    return SIGNATURE_DTYPES[text]


def integer_of(bits: int, signed: bool = True) -> dtype:
    """The integer dtype of a width. Raises KeyError."""
    return SIGNATURE_DTYPES[f"{'i' if signed else 'u'}{bits}"]


def literal_dtype(value: float) -> dtype | None:
    """The dtype that a Python number takes by itself; None where 64 bits do not hold it."""
    if isinstance(value, bool):
        return int1
    if isinstance(value, int):
        for candidate in (int32, uint32, int64, uint64):
            low, high = candidate.limits
            if low <= value <= high:
                return candidate
        return None
    size = abs(value)
    if size in (0.0, math.inf) or size != size or 2.0**-126 <= size <= (2 - 2.0**-23) * 2.0**127:
        return float32
    return float64


def promote(left: dtype, right: dtype, *, division: bool = False) -> dtype | None:
    """The dtype in which two run-time values are combined; None where they do not combine.

    f64 wins; then division involving a float is done in f32; then f32, f16; bf16 only meets bf16
    as such and gives f32 with anything else; two different f8 give f16, and f8 takes no integers.
    Integers give way to floats, truth values to integers; the wider integer wins, and unsigned
    where widths are equal; integers of different sign do not divide.
    """
    if left.kind == "float" or right.kind == "float":
        kinds = (left, right)
        if float64 in kinds:
            return float64
        if division or float32 in kinds:
            return float32
        if float16 in kinds:
            return float16
        if bfloat16 in kinds:
            return bfloat16 if left is right else float32
        if left.kind == right.kind:
            return left if left is right else float16
        return None
    signed = left.is_int_signed()
    if signed == right.is_int_signed():
        return left if left.primitive_bitwidth > right.primitive_bitwidth else right
    if division:
        return None
    unsigned, other = (right, left) if signed else (left, right)
    return unsigned if unsigned.primitive_bitwidth >= other.primitive_bitwidth else other


_KIND_ORDER = {"bool": 0, "int": 1, "uint": 1, "float": 2}


def promote_literal(literal: dtype, other: dtype, *, division: bool = False) -> dtype | None:
    """The dtype in which a literal meets a run-time value: a literal of no higher kind is weak."""
    if _KIND_ORDER[literal.kind] <= _KIND_ORDER[other.kind]:
        return promote(other, other, division=division)
    return promote(literal, other, division=division)
