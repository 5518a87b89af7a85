"""Op tables: every operation as data.

One `OpDef` says what an operation takes, gives and means. The verifier, printer, parser,
interpreter, documentation and conformance tests all read these tables; there is no second list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.core.errors import InternalError
from isthmus.ir.types import Type

__all__ = ["OPS", "OpDef", "TypeMismatch", "define", "op_def"]

InferRule = Callable[[Sequence[Type], dict[str, Any]], list[Type]]


class TypeMismatch(Exception):  # noqa: N818  (a finding, not a failure)
    """Operand types do not fit an operation; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class OpDef:
    """What one operation is.

    operands: names; a trailing "?" marks an optional one, "*" a variadic tail.
    attrs: attribute name -> Python type; a trailing "?" marks an optional one.
    infer: operand types and attributes to result types; raises TypeMismatch. None: the result
        type is part of the operation (casts, constants) and `check` looks at it.
    check: (operand types, result types, attrs) -> None; raises TypeMismatch.
    regions: number of regions.
    traits: from pure, elementwise, commutative, terminator, reads, writes, constant.
    doc: one sentence.

    What an element-wise operation computes is in `isthmus.ir.reference`, by the same name.
    """

    name: str
    operands: tuple[str, ...]
    doc: str
    attrs: dict[str, type] = field(default_factory=dict)
    infer: InferRule | None = None
    check: Callable[[Sequence[Type], Sequence[Type], dict[str, Any]], None] | None = None
    regions: int = 0
    traits: frozenset[str] = frozenset()

    @property
    def is_pure(self) -> bool:
        return "pure" in self.traits

    @property
    def is_elementwise(self) -> bool:
        return "elementwise" in self.traits

    @property
    def is_terminator(self) -> bool:
        return "terminator" in self.traits

    @property
    def min_operands(self) -> int:
        return sum(1 for operand in self.operands if operand[-1] not in "?*")

    @property
    def max_operands(self) -> int | None:
        """None when the last operand is variadic."""
        if self.operands and self.operands[-1].endswith("*"):
            return None
        return len(self.operands)


OPS: dict[str, OpDef] = {}


def define(
    name: str,
    operands: str,
    doc: str,
    *,
    attrs: dict[str, type] | None = None,
    infer: InferRule | None = None,
    check: Callable[[Sequence[Type], Sequence[Type], dict[str, Any]], None] | None = None,
    regions: int = 0,
    traits: str = "",
) -> OpDef:
    """Add one operation to the tables."""
    if name in OPS:
        raise InternalError(f"operation {name} is defined twice")
    op = OpDef(
        name,
        tuple(operands.split()),
        doc,
        attrs or {},
        infer,
        check,
        regions,
        frozenset(traits.split()),
    )
    OPS[name] = op
    return op


def op_def(name: str) -> OpDef:
    """The table row of operation `name`. Raises InternalError for a name in no table."""
    try:
        return OPS[name]
    except KeyError:
        raise InternalError(f"operation {name!r} is in no op table") from None
