"""Structured control flow; every region ends with its terminator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.ir.dialects import rules
from isthmus.ir.optable import define
from isthmus.ir.types import I1, Type, is_integer


def _for(types: Sequence[Type], results: Sequence[Type], _attrs: dict[str, Any]) -> None:
    bound = rules.same_types(types[:3])
    rules.require(is_integer(bound), f"loop bounds must be integers, got {bound}")
    rules.require(
        list(types[3:]) == list(results), "loop results must have the types of the initial values"
    )


define(
    "scf.for", "lower upper step initial*",
    "Loop over [lower, upper) by step > 0. Region: induction variable, carried values; ends in "
    "scf.yield.",
    attrs={"unroll?": int}, check=_for, regions=1,
)  # fmt: skip
define(
    "scf.while", "initial*",
    "Region 0 computes a condition and forwards values (scf.condition); region 1 is the body "
    "(scf.yield).",
    regions=2,
)  # fmt: skip


def _if(types: Sequence[Type], _results: Sequence[Type], _attrs: dict[str, Any]) -> None:
    rules.require(types[0] is I1, f"condition must be i1, got {types[0]}")


define("scf.if", "condition", "Then region, else region; each yields the results.",
       check=_if, regions=2)  # fmt: skip
define("scf.yield", "values*", "End a loop body or branch.", traits="terminator")
define("scf.condition", "condition values*", "End the first region of scf.while.",
       traits="terminator")  # fmt: skip
define("func.return", "", "End the function.", traits="terminator")
