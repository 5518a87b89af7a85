"""From the arguments of a launch to what the compiler is told: types, constants, facts.

Facts make better code: an integer that is 1 becomes a constant, one that is divisible by 16 and
an array aligned to 16 bytes say so, and arrays that lie apart are free of aliasing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.jit.arguments import classify, constant_key
from isthmus.language.values import unwrap

__all__ = ["CONSTANT", "FIXED", "SPECIALISED", "Arguments", "Layout", "specialise"]

#: How a parameter is treated: compile-time; run-time; run-time with facts about its value.
CONSTANT, FIXED, SPECIALISED = "constant", "fixed", "specialised"

#: How the arrays of a launch lie to one another: None when all are apart, else (arrays that start
#: at different places are apart, for each array the first one that starts at the same place).
Layout = tuple[bool, tuple[int, ...]] | None


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the compiler is told about the arguments of a launch.

    positions: which of the launch's run-time values remain arguments of the code.
    """

    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    attrs: Mapping[str, Mapping[str, Any]]
    positions: tuple[int, ...]

    def types(self) -> tuple[Any, ...]:
        """Types and constants, in a form that compares."""
        constants = ((name, constant_key(value)) for name, value in self.constexprs.items())
        return tuple(self.signature.items()), tuple(constants)

    def differences(self, other: Arguments) -> Iterator[str]:
        """In words, what is new here against `other`."""
        for name, type_ in self.signature.items():
            before = other.signature.get(name)
            if before is None:
                yield f"{name} is a run-time value"
            elif before != type_:
                yield f"{name} is {type_}, was {before}"
            elif self.attrs.get(name, {}) != other.attrs.get(name, {}):
                yield f"{name} {_facts(self.attrs.get(name, {}))}"
        for name, value in self.constexprs.items():
            if name not in other.constexprs:
                yield f"{name} is {value!r}"
            elif constant_key(value) != constant_key(other.constexprs[name]):
                yield f"{name} is {value!r}, was {other.constexprs[name]!r}"


def _facts(attrs: Mapping[str, Any]) -> str:
    facts = []
    if "divisibility" in attrs:
        facts.append(f"is divisible by {attrs['divisibility']}")
    if "same_as" in attrs:
        facts.append("starts where another array starts")
    elif "noalias" in attrs:
        facts.append("overlaps no other array")
    return " and ".join(facts) or "has no known facts"


def specialise(
    names: Sequence[str], modes: Sequence[str], values: Sequence[Any], layout: Layout,
    *, generic: bool = False,
) -> Arguments:  # fmt: skip
    """Types, constants and facts of one launch; `generic` leaves out what depends on values."""
    signature: dict[str, str] = {}
    constexprs: dict[str, Any] = {}
    attrs: dict[str, Mapping[str, Any]] = {}
    positions: list[int] = []
    pointers: list[int] = []
    slots = 0
    for name, mode, value in zip(names, modes, values, strict=True):
        entry = ("constant",) if mode is CONSTANT else classify(value, mode is SPECIALISED)
        kind = entry[0]
        if kind in ("constant", "none"):
            constexprs[name] = unwrap(value)
            continue
        slots += 1
        if kind == "=1" and not generic:
            constexprs[name] = 1
            continue
        positions.append(slots - 1)
        signature[name] = "i32" if kind == "=1" else kind
        facts: dict[str, Any] = {}
        if len(entry) > 1 and entry[1] and not generic:
            facts["divisibility"] = 16
        if kind[0] == "*":
            pointers.append(len(signature) - 1)
            if not generic:
                facts.update(_alias_facts(len(pointers) - 1, pointers, layout))
        if facts:
            attrs[name] = facts
    return Arguments(signature, constexprs, attrs, tuple(positions))


def _alias_facts(number: int, pointers: Sequence[int], layout: Layout) -> dict[str, Any]:
    """What is known of the array with that number; `pointers` gives argument numbers."""
    if layout is None:
        return {"noalias": True}
    apart, first = layout
    facts: dict[str, Any] = {"noalias": True} if apart else {}
    if first[number] != number:
        facts["same_as"] = pointers[first[number]]
    return facts
