"""Promotion: every pair of dtypes against the table of Triton 3.9."""

from __future__ import annotations

import pytest

import isthmus.language as tl
from isthmus.language.types import SIGNATURE_DTYPES, literal_dtype, promote, promote_literal

NAMES = [
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "fp8e4nv",
    "fp8e5",
    "bf16",
    "f16",
    "f32",
    "f64",
]
#: Row and column in the order of NAMES; "-" where the operands do not combine.
SUM = """
i1 i8 i16 i32 i64 u8 u16 u32 u64 - - f32 f16 f32 f64
i8 i8 i16 i32 i64 u8 u16 u32 u64 - - f32 f16 f32 f64
i16 i16 i16 i32 i64 i16 u16 u32 u64 - - f32 f16 f32 f64
i32 i32 i32 i32 i64 i32 i32 u32 u64 - - f32 f16 f32 f64
i64 i64 i64 i64 i64 i64 i64 i64 u64 - - f32 f16 f32 f64
u8 u8 i16 i32 i64 u8 u16 u32 u64 - - f32 f16 f32 f64
u16 u16 u16 i32 i64 u16 u16 u32 u64 - - f32 f16 f32 f64
u32 u32 u32 u32 i64 u32 u32 u32 u64 - - f32 f16 f32 f64
u64 u64 u64 u64 u64 u64 u64 u64 u64 - - f32 f16 f32 f64
- - - - - - - - - fp8e4nv f16 f32 f16 f32 f64
- - - - - - - - - f16 fp8e5 f32 f16 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 bf16 f16 f32 f64
f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""
REMAINDER = """
i1 - - - - u8 u16 u32 u64 f32 f32 f32 f32 f32 f64
- i8 i16 i32 i64 - - - - f32 f32 f32 f32 f32 f64
- i16 i16 i32 i64 - - - - f32 f32 f32 f32 f32 f64
- i32 i32 i32 i64 - - - - f32 f32 f32 f32 f32 f64
- i64 i64 i64 i64 - - - - f32 f32 f32 f32 f32 f64
u8 - - - - u8 u16 u32 u64 f32 f32 f32 f32 f32 f64
u16 - - - - u16 u16 u32 u64 f32 f32 f32 f32 f32 f64
u32 - - - - u32 u32 u32 u64 f32 f32 f32 f32 f32 f64
u64 - - - - u64 u64 u64 u64 f32 f32 f32 f32 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64
f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
"""


def dtype_of(name: str) -> tl.dtype | None:
    return None if name == "-" else SIGNATURE_DTYPES[name]


@pytest.mark.parametrize(("table", "division"), [(SUM, False), (REMAINDER, True)])
def test_promotion_of_all_pairs(table: str, division: bool) -> None:
    rows = [line.split() for line in table.split("\n") if line]
    for left, row in zip(NAMES, rows, strict=True):
        for right, wanted in zip(NAMES, row, strict=True):
            found = promote(SIGNATURE_DTYPES[left], SIGNATURE_DTYPES[right], division=division)
            assert found is dtype_of(wanted), f"{left} and {right}"


@pytest.mark.parametrize(
    ("number", "other", "wanted"),
    [
        (2.0, "f16", "f16"), (2.0, "i32", "f32"), (1, "bf16", "bf16"), (1, "i8", "i8"),
        (True, "u8", "u8"), (2, "i1", "i32"), (2.0, "i1", "f32"), (1e300, "f32", "f32"),
        (1e300, "i32", "f64"), (3_000_000_000, "i1", "u32"), (5_000_000_000, "i1", "i64"),
    ],
)  # fmt: skip
def test_literals_are_weak(number: float, other: str, wanted: str) -> None:
    own = literal_dtype(number)
    assert own is not None
    assert promote_literal(own, SIGNATURE_DTYPES[other]) is SIGNATURE_DTYPES[wanted]


def test_numbers_by_themselves() -> None:
    assert literal_dtype(True) is tl.int1
    assert literal_dtype(2**31 - 1) is tl.int32
    assert literal_dtype(2**31) is tl.uint32
    assert literal_dtype(-(2**31) - 1) is tl.int64
    assert literal_dtype(2**63) is tl.uint64
    assert literal_dtype(2**64) is None
    assert literal_dtype(float("inf")) is tl.float32
    assert literal_dtype(1e-40) is tl.float64


def test_dtypes_answer_questions() -> None:
    assert str(tl.float16) == "fp16"
    assert tl.float16.is_floating()
    assert tl.bfloat16.is_bf16()
    assert tl.int1.is_int()
    assert tl.int1.is_bool()
    assert tl.uint8.is_int_unsigned()
    assert tl.int64.primitive_bitwidth == 64
    assert tl.int1.itemsize == 1
    assert tl.int8.get_int_min_value() == -128
    assert tl.uint32.get_int_max_value() == 2**32 - 1
    assert tl.float8e5.is_fp8()
    assert not tl.float8e5.is_standard_floating()
    assert tl.pointer_type(tl.float32) == tl.pointer_type(tl.float32)
    assert tl.pointer_type(tl.float32).element_ty is tl.float32
    assert tl.block_type(tl.int8, (4, 2)).scalar is tl.int8
