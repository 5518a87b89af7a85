"""Lazy values: blocks that are computed inside the nests that need them, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.ir.core import Operation, Value
from isthmus.ir.optable import OPS
from isthmus.ir.types import element_type, is_float, shape_of
from isthmus.lowering.nest.maps import is_unit_reshape

__all__ = [
    "CHEAP", "EXPENSIVE_PER_LANE", "LOAD_COST", "Costs", "is_block", "is_lazy", "is_scalar",
    "is_view",
]  # fmt: skip

#: Cost up to which a value is computed again in a second nest instead of stored.
CHEAP = 4
#: Cost from which a value that a larger nest repeats along a dimension gets a nest of its own.
EXPENSIVE_PER_LANE = 6
LOAD_COST = 2

_SHAPING = frozenset(
    ("tile.arange", "tile.splat", "tile.broadcast", "tile.expand_dims", "tile.trans", "tile.split")
)
_FREE = _SHAPING | {"arith.constant", "tile.reshape", "arith.bitcast", "ptr.cast", "ptr.add"}
_COSTS = {
    "arith.divf": 5, "arith.remf": 20, "arith.divsi": 12, "arith.divui": 12, "arith.remsi": 12,
    "arith.remui": 12, "math.sqrt": 5, "math.rsqrt": 8, "math.absf": 1, "math.floor": 1,
    "math.ceil": 1, "math.trunc": 1, "math.roundeven": 1, "math.absi": 1, "arith.mulhui": 4,
    "tile.gather": 8,
}  # fmt: skip
_FUNCTION_COST = 20
_MOST = 1 << 20


def is_block(value: Value) -> bool:
    return bool(shape_of(value.type))


def is_scalar(op: Operation) -> bool:
    """Whether an operation deals with scalars only."""
    return not any(shape_of(value.type) for value in (*op.operands, *op.results))


def is_view(op: Operation) -> bool:
    """A reshape that reads its operand's storage under another shape."""
    return op.name == "tile.reshape" and not is_unit_reshape(op)


def is_lazy(op: Operation) -> bool:
    """Whether the block results of `op` are computed where they are needed."""
    if op.name in _SHAPING or op.name in ("tile.load", "tile.gather"):
        return any(is_block(result) for result in op.results)
    if op.name == "tile.reshape":
        return is_unit_reshape(op)
    row = OPS[op.name]
    if not (row.is_elementwise or "constant" in row.traits):
        return False
    return is_block(op.result)


class Costs:
    """Estimated operations per element, and whether a value is a pure index expression.

    `stored` tells whether a value lies in scratch already; call `forget` when that changes.
    """

    def __init__(
        self, stored: Mapping[Value, object], inductions: Mapping[Value, tuple[Value, Value]]
    ) -> None:
        self._stored = stored
        self._inductions = inductions
        self._memo: dict[Value, int] = {}

    def forget(self) -> None:
        self._memo.clear()

    def of(self, value: Value) -> int:
        if not is_block(value):
            return 0
        found = self._memo.get(value)
        if found is None:
            found = self._memo[value] = min(_MOST, self._estimate(value))
        return found

    def _estimate(self, value: Value) -> int:
        if value in self._stored:
            return 1
        if value in self._inductions:
            return self.of(self._inductions[value][0])
        op = value.defining_op
        if op is None:
            return 1
        if op.name == "tile.load":
            return LOAD_COST + sum(self.of(operand) for operand in op.operands[2:])
        own = 0
        if op.name not in _FREE:
            own = _COSTS.get(op.name, _FUNCTION_COST if op.name.startswith("math.") else 1)
        if not is_lazy(op):
            return own or 1
        return own + sum(self.of(operand) for operand in op.operands)

    def is_index(self, value: Value, budget: int = 10) -> bool:
        """Whether `value` is cheap arithmetic on indices and scalars, without any loads."""
        if not is_block(value) or value in self._stored:
            return True
        if value in self._inductions:
            return self.is_index(self._inductions[value][0], budget)
        op = value.defining_op
        if op is None or not is_lazy(op) or op.name in ("tile.load", "tile.gather"):
            return False
        if op.name == "arith.constant":
            return True
        if is_float(element_type(value.type)) and op.name not in _SHAPING:
            return False
        return self.of(value) <= budget and all(
            self.is_index(operand, budget) for operand in op.operands
        )
