"""Constants are worked out, operations that change nothing go, branches on constants are taken.

Only what gives the same bits on every target: integers, and floats where one rounding is all
there is. Functions that targets approximate stay, and so does whatever makes or meets a NaN.
"""

from __future__ import annotations

import math

import numpy as np

from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Operation, Region, Value
from isthmus.ir.reference import REFERENCE, constant, evaluate
from isthmus.ir.types import ScalarType, element_type

__all__ = ["canonicalise"]

_EXACT_FUNCTIONS = {
    "math.absf", "math.absi", "math.floor", "math.ceil", "math.trunc", "math.roundeven",
    "math.sqrt",
}  # fmt: skip
_FOLDED = {name for name in REFERENCE if name.startswith("arith.")} | _EXACT_FUNCTIONS
#: Operations that only repeat or rearrange elements: of one value they give that value again.
_RESHAPING = {
    "tile.splat", "tile.broadcast", "tile.expand_dims", "tile.reshape", "tile.trans",
    "vector.splat",
}  # fmt: skip
#: Operation -> the right operand that makes it give its left one.
_RIGHT_NEUTRAL: dict[str, float] = {
    "arith.addi": 0, "arith.subi": 0, "arith.muli": 1, "arith.divsi": 1, "arith.divui": 1,
    "arith.ori": 0, "arith.xori": 0, "arith.andi": -1, "arith.shli": 0, "arith.shrsi": 0,
    "arith.shrui": 0, "arith.mulf": 1.0, "arith.divf": 1.0, "arith.subf": 0.0,
    "arith.addf": -0.0, "ptr.add": 0,
}  # fmt: skip
#: The same for the left operand.
_LEFT_NEUTRAL = {
    name: _RIGHT_NEUTRAL[name]
    for name in ("arith.addi", "arith.muli", "arith.ori", "arith.xori", "arith.andi",
                 "arith.mulf", "arith.addf")
}  # fmt: skip
#: Operation -> the operand, on either side, that is the result whatever the other one is.
_ABSORBING = {"arith.muli": 0, "arith.andi": 0, "arith.ori": -1}


def canonicalise(function: Function) -> None:
    """Fold, simplify and take branches, in program order."""
    _visit(function.body)


def _visit(region: Region) -> None:
    position = 0
    while position < len(region.ops):
        op = region.ops[position]
        if op.name == "scf.if" and (condition := _number(op.operands[0])) is not None:
            _take_branch(op, region, op.regions[0 if condition else 1])
            continue  # the branch's operations now stand at `position`
        for inner in op.regions:
            _visit(inner)
        replacement = _same_value(op) if len(op.results) == 1 else None
        if replacement is not None and replacement.type is op.result.type:
            op.result.replace_by(replacement)
            op.erase()
            continue
        folded = _folded(op)
        if folded is not None:
            builder = Builder(region, position)
            builder.location = op.location
            op.result.replace_by(builder.constant(folded, op.result.type))
            op.erase()
        position += 1


def _number(value: Value) -> float | None:
    """The number that a constant is, or is filled with; integers as signed, i1 as 0 or 1."""
    op = value.defining_op
    if op is None or op.name != "arith.constant":
        return None
    element = element_type(value.type)
    assert isinstance(element, ScalarType), "constants are numbers"
    return _python_number(constant(op.attrs["value"], element), element)


def _python_number(array: np.ndarray, element: ScalarType) -> float:
    return float(array) if element.kind == "float" else int(array)


def _is(value: Value, wanted: float | None) -> bool:
    """Whether `value` is the constant `wanted`; all ones of i1 are -1, and -0.0 is not 0.0."""
    number = _number(value)
    if number is None or wanted is None:
        return False
    if wanted == -1 and str(element_type(value.type)) == "i1":
        return number == 1
    return number == wanted and math.copysign(1, number) == math.copysign(1, wanted)


def _same_value(op: Operation) -> Value | None:
    """An operand that equals the result."""
    if op.name == "arith.select":
        condition = _number(op.operands[0])
        return None if condition is None else op.operands[1 if condition else 2]
    if len(op.operands) != 2:
        return None
    left, right = op.operands
    if _is(right, _RIGHT_NEUTRAL.get(op.name)):
        return left
    if _is(left, _LEFT_NEUTRAL.get(op.name)):
        return right
    absorbing = _ABSORBING.get(op.name)
    return next((side for side in (right, left) if _is(side, absorbing)), None)


def _folded(op: Operation) -> float | None:
    """The number that the result is, or is filled with; None where it is not known."""
    if not op.operands or op.name not in _FOLDED | _RESHAPING:
        return None
    numbers = [_number(operand) for operand in op.operands]
    if any(number is None or math.isnan(number) for number in numbers):
        return None
    if op.name in _RESHAPING:
        return numbers[0]
    element = element_type(op.result.type)
    assert isinstance(element, ScalarType), "arithmetic on constants gives numbers"
    operands = [
        constant(number, element_type(operand.type))  # type: ignore[arg-type]
        for operand, number in zip(op.operands, numbers, strict=True)
    ]
    result = _python_number(evaluate(op.name, operands, element, op.attrs), element)
    return None if math.isnan(result) else result


def _take_branch(op: Operation, region: Region, branch: Region) -> None:
    """Put the operations of `branch` where `op` stands."""
    position = region.ops.index(op)
    *moved, terminator = branch.ops
    values = list(terminator.operands)
    terminator.drop_uses()
    branch.ops = []
    for inner in moved:
        inner.parent = region
    region.ops[position:position] = moved
    for result, value in zip(op.results, values, strict=True):
        result.replace_by(value)
    op.erase()
