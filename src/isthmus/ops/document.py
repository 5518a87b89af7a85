"""Writes the reference of the operators from their records.

Run it: `python -m isthmus.ops.document [path]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import isthmus.ops as _registered
from isthmus.ops.standard import OPERATORS, REQUIRED, Operator

__all__ = ["document"]

_ = _registered  # importing the operators fills the register
_INTRODUCTION = """\
# Operators

<!-- Written by `make docs` from the records in src/isthmus/ops; do not edit. -->

Training programs are made of these operators. All are functional: they give new tensors and change
none. Element-wise operators broadcast as in NumPy, and their inputs have one dtype.

A result differs from the float64 reference by at most *absolute + relative x |reference|*; the
conformance tests hold every operator to the numbers given here, and to what is said about NaN and
empty tensors. In lists of inputs `?` marks what may be left out and `*` any number of tensors.
Integers and bools are exact.
"""


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _attribute(name: str, default: object) -> str:
    return f"`{name}` (required)" if default is REQUIRED else f"`{name}` = `{default!r}`"


def _kind(operator: Operator) -> str:
    if operator.is_pointwise:
        return "element-wise"
    if operator.plan is None:
        return "no kernel: resolved while the program is planned"
    return "drawn from the program's key" if operator.random else "own kernels"


def _accuracy(operator: Operator) -> list[str]:
    if not operator.tolerance:
        return ["- Accuracy: exact"]
    exact = min(operator.tolerance.values(), key=lambda tolerance: len(tolerance.reason))
    rows = [
        f"| {name} | {tolerance.relative:.1e} | {tolerance.absolute:.1e} |"
        for name, tolerance in operator.tolerance.items()
    ]
    return [
        f"- Accuracy: {exact.reason}",
        "",
        "| dtype | relative | absolute |",
        "|---|---|---|",
        *rows,
    ]


def _section(operator: Operator, told: dict[str, str]) -> list[str]:
    """One operator; a text that several records share is given with the first of them."""
    text = operator.doc.strip()
    first = told.setdefault(text, operator.name)
    if first != operator.name:
        meaning = [f"Described with [{first}](#{first})."]
    elif "\n" in text:
        summary, _, rest = text.partition("\n")
        meaning = [summary.strip(), "", "```text", rest.strip("\n"), "```"]
    else:
        meaning = [text]
    attributes = ", ".join(_attribute(*item) for item in operator.attrs.items()) or "none"
    return [
        f"## {operator.name}",
        "",
        *meaning,
        "",
        f"- Inputs: {_names(operator.inputs)}",
        f"- Attributes: {attributes}",
        f"- Kind: {_kind(operator)}",
        f"- Gradient: {operator.gradient}",
        f"- NaN: {operator.nan}",
        f"- Empty tensors: {operator.empty}",
        *_accuracy(operator),
        "",
    ]


def document() -> str:
    """The page docs/operators.md."""
    told: dict[str, str] = {}
    operators = list(OPERATORS.values())
    index = " · ".join(f"[{operator.name}](#{operator.name})" for operator in operators)
    lines = [_INTRODUCTION, index, ""]
    for operator in operators:
        lines += _section(operator, told)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> None:
    root = Path(__file__).resolve().parents[3]
    path = Path(arguments[0]) if arguments else root / "docs" / "operators.md"
    path.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
