"""Loop nests over scalars and vectors: what the nest lowering makes and LLVM text prints.

Pointers here are addresses of one element; `ptr.add` moves them; `arith`, `math` and `scf`
operations act on scalars and vectors. Alignment attributes are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.ir.dialects.rules import require
from isthmus.ir.dialects.tile import ATOMIC_KINDS, REDUCE_KINDS
from isthmus.ir.optable import define
from isthmus.ir.types import (
    I1,
    PointerType,
    Type,
    VectorType,
    element_type,
    is_integer,
    is_pointer,
    shape_of,
)

Types = Sequence[Type]
Attrs = dict[str, Any]
MEMORY = {"align?": int, "invariant?": bool, "nontemporal?": bool}


def _pointer(type_: Type) -> PointerType:
    require(isinstance(type_, PointerType), f"expected a scalar pointer, got {type_}")
    return type_  # type: ignore[return-value]


def _vector(type_: Type) -> VectorType:
    require(isinstance(type_, VectorType), f"expected a vector, got {type_}")
    return type_  # type: ignore[return-value]


def _fits(pointer: Type, value: Type) -> None:
    require(
        _pointer(pointer).pointee is element_type(value)
        or isinstance(element_type(value), PointerType),
        f"{value} does not lie behind {pointer}",
    )


define("nest.load", "pointer", "A scalar, or a vector of consecutive elements.",
       attrs=MEMORY, check=lambda t, r, _a: _fits(t[0], r[0]), traits="reads")  # fmt: skip
define("nest.store", "value pointer", "Write a scalar, or a vector to consecutive elements.",
       attrs=MEMORY, check=lambda t, _r, _a: _fits(t[1], t[0]), traits="writes")  # fmt: skip
define("nest.masked_load", "pointer mask other",
       "Consecutive elements where the mask is true, `other` elsewhere; masked-off lanes are not "
       "touched.",
       attrs=MEMORY, check=lambda t, r, _a: _fits(t[0], r[0]), traits="reads")  # fmt: skip
define("nest.masked_store", "value pointer mask", "Write lanes where the mask is true.",
       attrs=MEMORY, check=lambda t, _r, _a: _fits(t[1], t[0]), traits="writes")  # fmt: skip
define("nest.gather", "pointers mask other", "One element per lane from a vector of pointers.",
       attrs=MEMORY, infer=lambda t, _a: [t[2]], traits="reads")  # fmt: skip
define("nest.scatter", "value pointers mask",
       "One element per lane to a vector of pointers, lane 0 first.",
       attrs=MEMORY, infer=lambda _t, _a: [], traits="writes")  # fmt: skip
define("nest.prefetch", "pointer", "Bring the line at `pointer` closer.",
       attrs={"write?": bool, "locality?": int},
       infer=lambda _t, _a: [], traits="writes")  # fmt: skip
define("nest.alloca", "", "`count` elements on the stack of this call, entered once.",
       attrs={"count": int, "align?": int},
       check=lambda _t, r, _a: require(is_pointer(r[0]), "an alloca gives a pointer"),
       traits="writes")  # fmt: skip


def _splat(types: Types, results: Types, _attrs: Attrs) -> None:
    require(
        not shape_of(types[0]) and _vector(results[0]).element is types[0],
        f"a scalar fills a vector of its type, got {types[0]} to {results[0]}",
    )


define("vector.splat", "scalar", "Every lane the scalar.", check=_splat, traits="pure")
define("vector.iota", "", "Lanes 0, 1, 2, ...",
       check=lambda _t, r, _a: require(is_integer(_vector(r[0])), "iota gives integers"),
       traits="pure")  # fmt: skip
define("vector.extract", "value", "Lane `lane`.", attrs={"lane": int},
       infer=lambda t, _a: [_vector(t[0]).element], traits="pure")  # fmt: skip
define("vector.insert", "value scalar", "The vector with lane `lane` replaced.",
       attrs={"lane": int},
       infer=lambda t, _a: [t[0]], traits="pure")  # fmt: skip
define("vector.extract_at", "value lane", "Lane number `lane`, known at run time.",
       infer=lambda t, _a: [_vector(t[0]).element], traits="pure")  # fmt: skip
define("vector.shuffle", "lhs rhs", "Lanes picked from lhs then rhs; -1 leaves a lane undefined.",
       attrs={"lanes": tuple},
       infer=lambda t, a: [VectorType((len(a["lanes"]),), _vector(t[0]).element)],
       traits="pure")  # fmt: skip


def _reduce(types: Types, attrs: Attrs) -> list[Type]:
    require(attrs["kind"] in REDUCE_KINDS, f"unknown combine {attrs['kind']!r}")
    return [_vector(types[0]).element]


define("vector.reduce", "value",
       "Combine all lanes: halves are combined until one is left, so the order is fixed.",
       attrs={"kind": str}, infer=_reduce, traits="pure")  # fmt: skip
define("vector.any", "mask", "Whether any lane is true.", infer=lambda _t, _a: [I1], traits="pure")
define(
    "vector.all", "mask", "Whether all lanes are true.", infer=lambda _t, _a: [I1], traits="pure"
)


def _atomic(types: Types, attrs: Attrs) -> list[Type]:
    require(attrs["kind"] in ATOMIC_KINDS, f"unknown atomic {attrs['kind']!r}")
    _fits(types[0], types[1])
    return [types[1]]


define("nest.atomic_rmw", "pointer value",
       "Read, combine, write one scalar as one step; the old value.",
       attrs={"kind": str, "ordering?": str}, infer=_atomic, traits="reads writes")  # fmt: skip
define("nest.atomic_cas", "pointer compare value", "Compare and swap one scalar; the old value.",
       attrs={"ordering?": str}, infer=lambda t, _a: [t[1]], traits="reads writes")  # fmt: skip
define("nest.call", "arguments*", "Call an external C function `callee`; at most one result.",
       attrs={"callee": str}, traits="reads writes")  # fmt: skip
