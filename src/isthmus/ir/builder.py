"""Building IR: an insertion point, constants, and one method that makes any operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import InternalError
from isthmus.ir import dialects  # noqa: F401  (fills the op tables)
from isthmus.ir.core import Function, Operation, Region, Value
from isthmus.ir.optable import TypeMismatch, op_def
from isthmus.ir.types import I1, I32, I64, TileType, Type, VectorType, is_float

if TYPE_CHECKING:
    from isthmus.core.location import Location

__all__ = ["Builder"]


class Builder:
    """Appends operations at an insertion point.

    `region` and `position` are the insertion point (None: at the end); `location` marks what
    is built with its source line.
    """

    __slots__ = ("location", "position", "region")

    def __init__(self, region: Region | Function, position: int | None = None) -> None:
        self.region = region.body if isinstance(region, Function) else region
        self.position = position
        self.location: Location | None = None

    @contextmanager
    def at(self, region: Region, position: int | None = None) -> Iterator[Builder]:
        """Build inside `region`, then come back."""
        saved = self.region, self.position
        self.region, self.position = region, position
        try:
            yield self
        finally:
            self.region, self.position = saved

    def insert(self, op: Operation) -> Operation:
        """Put a finished operation at the insertion point."""
        if self.position is None:
            return self.region.append(op)
        self.region.insert(self.position, op)
        self.position += 1
        return op

    def create(
        self,
        name: str,
        *operands: Value,
        type: Type | Sequence[Type] | None = None,  # noqa: A002
        regions: Sequence[Region] = (),
        **attrs: Any,
    ) -> Operation:
        """Make operation `name`; result types are inferred, or given where they cannot be."""
        definition = op_def(name)
        types = [operand.type for operand in operands]
        try:
            if definition.infer is not None:
                results = definition.infer(types, attrs)
            elif type is None:
                results = []
            else:
                results = [type] if isinstance(type, Type) else list(type)
            if definition.check is not None:
                definition.check(types, results, attrs)
        except TypeMismatch as mismatch:
            raise InternalError(f"building {name}: {mismatch}", stage="build") from mismatch
        return self.insert(Operation(name, operands, results, attrs, regions, self.location))

    def emit(self, name: str, *operands: Value, **keywords: Any) -> Value:
        """`create` for operations with exactly one result."""
        return self.create(name, *operands, **keywords).result

    def constant(self, value: float, type_: Type) -> Value:
        """A scalar constant, or a tile or vector filled with `value`."""
        element = getattr(type_, "element", type_)
        normal = float(value) if is_float(element) else int(value)
        return self.emit("arith.constant", type=type_, value=normal)

    def i32(self, value: int) -> Value:
        return self.constant(value, I32)

    def i64(self, value: int) -> Value:
        return self.constant(value, I64)

    def i1(self, value: bool) -> Value:
        return self.constant(int(value), I1)

    def splat(self, scalar: Value, like: Type) -> Value:
        """Fill the shape of tile or vector type `like` with a scalar of any type."""
        if isinstance(like, TileType):
            return self.emit("tile.splat", scalar, type=TileType(like.shape, scalar.type))
        assert isinstance(like, VectorType), f"cannot splat to {like}"
        return self.emit("vector.splat", scalar, type=VectorType(like.shape, scalar.type))

    def for_loop(
        self, lower: Value, upper: Value, step: Value, initial: Sequence[Value] = (), **attrs: Any
    ) -> tuple[Operation, Region]:
        """A loop and its region (arguments: induction variable, carried values), to be filled."""
        types = [value.type for value in initial]
        region = Region([lower.type, *types])
        op = self.create(
            "scf.for", lower, upper, step, *initial, type=types, regions=[region], **attrs
        )
        return op, region

    def if_else(self, condition: Value, types: Sequence[Type] = ()) -> Operation:
        """A branch with two regions to be filled; each must end in scf.yield."""
        return self.create("scf.if", condition, type=list(types), regions=[Region(), Region()])
