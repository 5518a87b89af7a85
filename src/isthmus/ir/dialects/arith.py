"""Element-wise arithmetic on scalars, tiles and vectors. Integers carry no sign; operations do.

Division and remainder of integers truncate toward zero (C); x // 0 is 0, x % 0 is x, and
INT_MIN // -1 wraps to INT_MIN with remainder 0. Shifts by the width or more give 0, or the sign
for `shrsi`. `fptosi` and `fptoui` saturate and turn NaN into 0. Nothing here assumes that NaN
or infinity are absent, and nothing is contracted unless it says `fma`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.ir.dialects import rules
from isthmus.ir.optable import define
from isthmus.ir.types import PointerType, Type, element_type, is_integer, is_pointer, shape_of

ELEMENTWISE = "pure elementwise"
COMMUTATIVE = "pure elementwise commutative"

define(
    "arith.constant", "", "A scalar, or a tile or vector filled with one value.",
    attrs={"value": object}, traits="pure constant",
)  # fmt: skip

for name, doc, commutes in (
    ("addi", "Sum, wrapping.", True),
    ("subi", "Difference, wrapping.", False),
    ("muli", "Product, wrapping.", True),
    ("divsi", "Signed quotient, truncated.", False),
    ("divui", "Unsigned quotient.", False),
    ("remsi", "Signed remainder, with the sign of the dividend.", False),
    ("remui", "Unsigned remainder.", False),
    ("mulhui", "High half of the unsigned product.", True),
    ("andi", "Bitwise and.", True),
    ("ori", "Bitwise or.", True),
    ("xori", "Bitwise exclusive or.", True),
    ("shli", "Left shift; 0 from the width on.", False),
    ("shrsi", "Arithmetic right shift; the sign from the width on.", False),
    ("shrui", "Logical right shift; 0 from the width on.", False),
    ("minsi", "Signed minimum.", True),
    ("maxsi", "Signed maximum.", True),
    ("minui", "Unsigned minimum.", True),
    ("maxui", "Unsigned maximum.", True),
):
    define(
        f"arith.{name}", "lhs rhs", doc,
        infer=rules.same_int, traits=COMMUTATIVE if commutes else ELEMENTWISE,
    )  # fmt: skip

for name, doc, commutes in (
    ("addf", "Sum.", True),
    ("subf", "Difference.", False),
    ("mulf", "Product.", True),
    ("divf", "Quotient, correctly rounded.", False),
    ("remf", "Remainder of the truncated quotient (C fmod).", False),
    ("minnumf", "Smaller one; a NaN loses against a number.", True),
    ("maxnumf", "Larger one; a NaN loses against a number.", True),
    ("minimumf", "Smaller one; NaN if either is NaN; -0 below +0.", True),
    ("maximumf", "Larger one; NaN if either is NaN; -0 below +0.", True),
):
    define(
        f"arith.{name}", "lhs rhs", doc,
        infer=rules.same_float, traits=COMMUTATIVE if commutes else ELEMENTWISE,
    )  # fmt: skip

define("arith.negf", "value", "Sign flipped, NaN and zero too.",
       infer=rules.same_float, traits=ELEMENTWISE)  # fmt: skip
define("arith.fma", "a b c", "a * b + c, rounded once.",
       infer=rules.same_float, traits=ELEMENTWISE)  # fmt: skip

#: Integer comparison predicates.
INT_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
#: Float comparison predicates: o* are false, u* true where an operand is NaN.
FLOAT_PREDICATES = (
    "oeq", "one", "olt", "ole", "ogt", "oge", "ord",
    "ueq", "une", "ult", "ule", "ugt", "uge", "uno",
)  # fmt: skip
define("arith.cmpi", "lhs rhs", "Integer comparison.", attrs={"predicate": str},
       infer=rules.compare_int, traits=ELEMENTWISE)  # fmt: skip
define("arith.cmpf", "lhs rhs", "Float comparison.", attrs={"predicate": str},
       infer=rules.compare_float, traits=ELEMENTWISE)  # fmt: skip
define("arith.select", "condition on_true on_false", "One of two values, lane by lane.",
       infer=rules.select, traits=ELEMENTWISE)  # fmt: skip

for name, source, target, direction, doc in (
    ("extsi", "int", "int", 1, "Widen with the sign."),
    ("extui", "int", "int", 1, "Widen with zeros."),
    ("trunci", "int", "int", -1, "Keep the low bits."),
    ("sitofp", "int", "float", 0, "Signed integer to float, to nearest even."),
    ("uitofp", "int", "float", 0, "Unsigned integer to float, to nearest even."),
    ("fptosi", "float", "int", 0, "Float to signed integer: truncate, saturate, NaN is 0."),
    ("fptoui", "float", "int", 0, "Float to unsigned integer: truncate, saturate, NaN is 0."),
    ("extf", "float", "float", 1, "Widen a float, exact."),
):
    define(f"arith.{name}", "value", doc,
           check=rules.cast(source, target, direction), traits=ELEMENTWISE)  # fmt: skip
define(
    "arith.truncf", "value",
    "Narrow a float: to nearest even, or toward zero; f16 and bf16 convert to each other too.",
    attrs={"rounding?": str}, check=rules.cast("float", "float", 0), traits=ELEMENTWISE,
)  # fmt: skip


def _bitcast(types: Sequence[Type], results: Sequence[Type], _attrs: dict[str, Any]) -> None:
    source, target = element_type(types[0]), element_type(results[0])
    rules.require(
        getattr(source, "bits", 64) == getattr(target, "bits", 64)
        and shape_of(types[0]) == shape_of(results[0]),
        f"a bitcast keeps shape and width, got {types[0]} to {results[0]}",
    )


define("arith.bitcast", "value", "The same bits as another type of the same width.",
       check=_bitcast, traits=ELEMENTWISE)  # fmt: skip


def _ptr_add(types: Sequence[Type], _attrs: dict[str, Any]) -> list[Type]:
    rules.require(is_pointer(types[0]), f"expected a pointer, got {types[0]}")
    rules.require(
        is_integer(types[1]) and shape_of(types[0]) == shape_of(types[1]),
        f"expected integers of shape {shape_of(types[0])}, got {types[1]}",
    )
    return [types[0]]


define("ptr.add", "pointer offset", "Pointer moved by `offset` elements; the offset is signed.",
       infer=_ptr_add, traits=ELEMENTWISE)  # fmt: skip


def _ptr_cast(types: Sequence[Type], results: Sequence[Type], _attrs: dict[str, Any]) -> None:
    rules.require(
        shape_of(types[0]) == shape_of(results[0])
        and (is_pointer(types[0]) or is_pointer(results[0])),
        f"expected a pointer on either side, got {types[0]} to {results[0]}",
    )
    for type_ in (types[0], results[0]):
        rules.require(
            isinstance(element_type(type_), PointerType) or str(element_type(type_)) == "i64",
            f"a pointer converts to i64 or another pointer, got {type_}",
        )


define("ptr.cast", "value", "Pointer to another pointee, to i64, or from i64.",
       check=_ptr_cast, traits=ELEMENTWISE)  # fmt: skip
