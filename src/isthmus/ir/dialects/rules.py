"""Type rules shared by the op tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.ir.optable import TypeMismatch
from isthmus.ir.types import (
    I1,
    Type,
    element_type,
    is_float,
    is_integer,
    is_pointer,
    shape_of,
    with_element,
)


def require(condition: bool, message: str) -> None:
    """Raise TypeMismatch with `message` unless `condition` holds."""
    if not condition:
        raise TypeMismatch(message)


def same_types(types: Sequence[Type]) -> Type:
    """All types equal; returns the type."""
    for type_ in types[1:]:
        require(type_ is types[0], f"operands must have one type, got {', '.join(map(str, types))}")
    return types[0]


def same_int(types: Sequence[Type], _attrs: dict[str, Any]) -> list[Type]:
    type_ = same_types(types)
    require(is_integer(type_), f"expected integers, got {type_}")
    return [type_]


def same_float(types: Sequence[Type], _attrs: dict[str, Any]) -> list[Type]:
    type_ = same_types(types)
    require(is_float(type_), f"expected floats, got {type_}")
    return [type_]


def compare_int(types: Sequence[Type], _attrs: dict[str, Any]) -> list[Type]:
    type_ = same_types(types)
    require(is_integer(type_) or is_pointer(type_), f"expected integers, got {type_}")
    return [with_element(type_, I1)]


def compare_float(types: Sequence[Type], _attrs: dict[str, Any]) -> list[Type]:
    (type_,) = same_float(types, _attrs)
    return [with_element(type_, I1)]


def select(types: Sequence[Type], _attrs: dict[str, Any]) -> list[Type]:
    type_ = same_types(types[1:])
    require(
        element_type(types[0]) is I1 and shape_of(types[0]) in ((), shape_of(type_)),
        f"condition must be i1 or i1 of shape {shape_of(type_)}, got {types[0]}",
    )
    return [type_]


def cast(
    from_kind: str, to_kind: str, direction: int
) -> Any:  # direction: 1 widens, -1 narrows, 0 any width
    """A check that one element kind turns into another with the shape kept."""

    def check(types: Sequence[Type], results: Sequence[Type], _attrs: dict[str, Any]) -> None:
        source, target = types[0], results[0]
        require(
            type(source) is type(target) and shape_of(source) == shape_of(target)
            if shape_of(source)
            else not shape_of(target),
            f"a cast keeps the shape, got {source} to {target}",
        )
        kinds = {"int": is_integer, "float": is_float}
        require(kinds[from_kind](source), f"expected {from_kind} source, got {source}")
        require(kinds[to_kind](target), f"expected {to_kind} result, got {target}")
        source_bits, target_bits = element_type(source).bits, element_type(target).bits  # type: ignore[attr-defined]
        if direction > 0:
            require(source_bits < target_bits, f"{source} does not widen to {target}")
        if direction < 0:
            require(source_bits > target_bits, f"{source} does not narrow to {target}")

    return check
