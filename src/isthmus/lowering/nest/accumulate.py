"""State of reductions and scans while their axis runs: accumulators and how they combine.

Named kinds start from their identity; "region" kinds start from the first element. Lanes of a
vector accumulator are folded by halves, so the order is fixed by the shapes alone. A reduction is
taken to be associative and commutative, a scan only associative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from isthmus.ir.builder import Builder
from isthmus.ir.core import Operation, Value
from isthmus.ir.types import ScalarType, VectorType, element_type, shape_of
from isthmus.lowering.nest.context import Context
from isthmus.lowering.nest.expressions import elementwise, typed

__all__ = ["Combine", "identity_of", "lanes_of"]


def lanes_of(value: Value) -> int:
    return shape_of(value.type)[0] if isinstance(value.type, VectorType) else 1


class Combine:
    """How tile.reduce or tile.scan `op` puts two states together."""

    def __init__(self, context: Context, op: Operation) -> None:
        self.context = context
        self.op = op
        self.kind: str = op.attrs["kind"]
        self.elements = [element_type(operand.type) for operand in op.operands]

    @property
    def has_identity(self) -> bool:
        return self.kind != "region"

    def identity(self, builder: Builder, lanes: int) -> list[Value]:
        element = self.elements[0]
        assert isinstance(element, ScalarType), "named kinds combine numbers"
        return [builder.constant(identity_of(self.kind, element), typed(element, lanes))]

    def combine(
        self, builder: Builder, left: Sequence[Value], right: Sequence[Value]
    ) -> list[Value]:
        """left, then right; scalars are spread where the other side is a vector."""
        lanes = max(lanes_of(value) for value in (*left, *right))
        left = [_spread(builder, value, lanes) for value in left]
        right = [_spread(builder, value, lanes) for value in right]
        if self.kind != "region":
            return [builder.emit(f"arith.{self.kind}", left[0], right[0])]
        region = self.op.regions[0]
        env = dict(zip(region.args, [*left, *right], strict=True))
        for inner in region.ops[:-1]:
            operands = [env.get(o) or self.context.scalar(o) for o in inner.operands]
            width = max((lanes_of(o) for o in operands), default=1)
            if inner.name == "arith.constant":
                env[inner.result] = builder.constant(inner.attrs["value"], inner.result.type)
                continue
            if inner.regions:
                raise self.context.unsupported(inner)
            spread = [_spread(builder, o, width) for o in operands]
            element = element_type(inner.result.type)
            env[inner.result] = elementwise(self.context, builder, inner, spread, element)
        return [env.get(o) or self.context.scalar(o) for o in region.terminator.operands]

    def fold(self, builder: Builder, state: Sequence[Value], lanes: int = 1) -> list[Value]:
        """Combine lanes until `lanes` are left."""
        state = list(state)
        width = lanes_of(state[0])
        while width > lanes and width % 2 == 0 and width > 2:
            half = width // 2
            low = [_part(builder, value, 0, half) for value in state]
            high = [_part(builder, value, half, half) for value in state]
            state = self.combine(builder, low, high)
            width = half
        if width == lanes:
            return state
        assert lanes == 1, f"{width} lanes do not fold to {lanes}"
        parts = [
            [builder.emit("vector.extract", value, lane=lane) for value in state]
            for lane in range(width)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = self.combine(builder, total, part)
        return total


def _spread(builder: Builder, value: Value, lanes: int) -> Value:
    if lanes == 1 or isinstance(value.type, VectorType):
        return value
    return builder.splat(value, VectorType((lanes,), value.type))


def _part(builder: Builder, value: Value, start: int, count: int) -> Value:
    lanes = tuple(range(start, start + count))
    return builder.emit("vector.shuffle", value, value, lanes=lanes)


def identity_of(kind: str, element: ScalarType) -> float:
    """The value that combining with changes nothing (but -0 and +0 of a sum)."""
    smallest, largest = -(1 << (element.bits - 1)), (1 << (element.bits - 1)) - 1
    if element.bits == 1:
        smallest, largest = 1, 0
    numbers: dict[str, float] = {
        "addi": 0, "muli": 1, "maxsi": smallest, "minsi": largest, "maxui": 0, "minui": -1,
        "andi": -1, "ori": 0, "xori": 0,
        "addf": -0.0, "mulf": 1.0, "maxnumf": math.nan, "minnumf": math.nan,
        "maximumf": -math.inf, "minimumf": math.inf,
    }  # fmt: skip
    value = numbers[kind]
    return value & 1 if element.bits == 1 and isinstance(value, int) else value
