"""Types of the kernel language: dtypes with a sign, pointers, and their rules of promotion."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.ir import types as ir

__all__ = [
    "DTYPES", "bfloat16", "block_type", "dtype", "float16", "float32", "float64", "float8e4nv",
    "float8e5", "int1", "int8", "int16", "int32", "int64", "pointer_type", "promote",
    "uint8", "uint16", "uint32", "uint64", "void",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class dtype:  # noqa: N801  (the language's own name)
    """An element type of the language; unlike IR types, integers have a sign."""

    name: str
    kind: str
    primitive_bitwidth: int
    rank: int = 0

    def is_floating(self) -> bool:
        return self.kind == "float"

    def is_int(self) -> bool:
        return self.kind in ("int", "uint", "bool")

    def is_bool(self) -> bool:
        return self.kind == "bool"

    def is_int_signed(self) -> bool:
        return self.kind == "int"

    def is_int_unsigned(self) -> bool:
        return self.kind == "uint"

    def is_ptr(self) -> bool:
        return False

    def is_fp16(self) -> bool:
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        return self.name == "fp64"

    def is_fp8(self) -> bool:
        return self.name.startswith("fp8")

    def is_standard_floating(self) -> bool:
        return self.is_floating() and not self.is_fp8()

    @property
    def itemsize(self) -> int:
        return max(1, self.primitive_bitwidth // 8)

    @property
    def scalar(self) -> dtype:
        return self

    @property
    def ir(self) -> ir.Type:
        """The IR type of a value of this dtype."""
        return _IR[self.name]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class pointer_type:  # noqa: N801
    """Address of an `element_ty` in memory."""

    element_ty: dtype
    const: bool = False

    def is_ptr(self) -> bool:
        return True

    def is_floating(self) -> bool:
        return False

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    @property
    def primitive_bitwidth(self) -> int:
        return 64

    @property
    def scalar(self) -> pointer_type:
        return self

    @property
    def ir(self) -> ir.PointerType:
        """The IR type: truth values lie in memory as bytes."""
        element = ir.I8 if self.element_ty.is_bool() else self.element_ty.ir
        assert isinstance(element, ir.ScalarType), f"pointer to {element}"
        return ir.PointerType(element)

    def __str__(self) -> str:
        return f"pointer<{self.element_ty}>"


@dataclass(frozen=True, slots=True)
class block_type:  # noqa: N801
    """Type of a block of values: `x.type`."""

    element_ty: dtype | pointer_type
    shape: tuple[int, ...]

    @property
    def scalar(self) -> dtype | pointer_type:
        return self.element_ty

    def is_block(self) -> bool:
        return True

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
float8e4nv = dtype("fp8e4nv", "float", 8, 1)
float8e5 = dtype("fp8e5", "float", 8, 1)
bfloat16 = dtype("bf16", "float", 16, 2)
float16 = dtype("fp16", "float", 16, 3)
float32 = dtype("fp32", "float", 32, 4)
float64 = dtype("fp64", "float", 64, 5)

_IR: dict[str, ir.Type] = {
    "int1": ir.I1, "int8": ir.I8, "int16": ir.I16, "int32": ir.I32, "int64": ir.I64,
    "uint8": ir.I8, "uint16": ir.I16, "uint32": ir.I32, "uint64": ir.I64,
    "fp8e4nv": ir.F8E4M3, "fp8e5": ir.F8E5M2, "bf16": ir.BF16, "fp16": ir.F16,
    "fp32": ir.F32, "fp64": ir.F64,
}  # fmt: skip

#: Signature spelling -> dtype.
DTYPES: dict[str, dtype] = {
    "i1": int1, "bool": int1, "i8": int8, "i16": int16, "i32": int32, "i64": int64,
    "u8": uint8, "u16": uint16, "u32": uint32, "u64": uint64,
    "f8e4m3": float8e4nv, "f8e5m2": float8e5, "fp8e4nv": float8e4nv, "fp8e5": float8e5,
    "f16": float16, "bf16": bfloat16, "f32": float32, "f64": float64,
    "fp16": float16, "fp32": float32, "fp64": float64,
}  # fmt: skip


def promote(left: dtype, right: dtype, *, division: bool = False) -> dtype:
    """The type in which two values are combined.

    Truth values give way to integers and integers to floats; the wider one wins; f16 wins over
    bf16; unsigned wins where widths are equal; f16 and bf16 divide in f32.
    """
    if left.is_floating() or right.is_floating():
        if left.is_floating() and right.is_floating():
            result = left if left.rank >= right.rank else right
            if left.is_fp8() and right.is_fp8() and left is not right:
                result = float16
        else:
            result = left if left.is_floating() else right
        if division and result in (float16, bfloat16):
            return float32
        return result
    if left.is_bool():
        return right
    if right.is_bool():
        return left
    if left.kind == right.kind:
        return left if left.primitive_bitwidth >= right.primitive_bitwidth else right
    unsigned, signed = (left, right) if left.kind == "uint" else (right, left)
    return unsigned if unsigned.primitive_bitwidth >= signed.primitive_bitwidth else signed
