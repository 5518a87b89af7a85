"""Values, operations, regions, functions, modules: the program as data.

A region holds its arguments and its operations directly (one block per region, structured
control flow), so there is no class for basic blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.core.location import Location
    from isthmus.ir.types import Type

__all__ = ["Function", "Module", "Operation", "Region", "Value"]


class Value:
    """One SSA value: a result of an operation or an argument of a region.

    `owner` is the Operation or Region that defines it, `index` its position there.
    `uses` lists (operation, operand index) pairs in no promised order.
    """

    __slots__ = ("hint", "index", "owner", "type", "uses")

    def __init__(
        self, type_: Type, owner: Operation | Region, index: int, hint: str | None = None
    ) -> None:
        self.type = type_
        self.owner = owner
        self.index = index
        self.hint = hint
        self.uses: list[tuple[Operation, int]] = []

    @property
    def defining_op(self) -> Operation | None:
        """The operation that defines this value; None for a region argument."""
        return self.owner if isinstance(self.owner, Operation) else None

    def replace_by(self, other: Value) -> None:
        """Make every user of this value use `other` instead."""
        if other is self:
            return
        for user, position in self.uses:
            user.operands[position] = other
            other.uses.append((user, position))
        self.uses = []

    def __repr__(self) -> str:
        return f"<Value {self.hint or ''}:{self.type}>"


class Operation:
    """One operation: name, operands, results, attributes, regions, source location."""

    __slots__ = ("attrs", "location", "name", "operands", "parent", "regions", "results")

    def __init__(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] = (),
        attrs: dict[str, Any] | None = None,
        regions: Sequence[Region] = (),
        location: Location | None = None,
    ) -> None:
        self.name = name
        self.operands: list[Value] = list(operands)
        self.attrs: dict[str, Any] = attrs if attrs is not None else {}
        self.regions: list[Region] = list(regions)
        self.location = location
        self.parent: Region | None = None
        self.results: list[Value] = [
            Value(type_, self, position) for position, type_ in enumerate(result_types)
        ]
        for position, operand in enumerate(self.operands):
            operand.uses.append((self, position))
        for region in self.regions:
            region.owner = self

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.name} has {len(self.results)} results, not one"
        return self.results[0]

    def set_operand(self, position: int, value: Value) -> None:
        """Replace one operand, keeping use lists right."""
        self.operands[position].uses.remove((self, position))
        self.operands[position] = value
        value.uses.append((self, position))

    def set_operands(self, values: Sequence[Value]) -> None:
        """Replace all operands, keeping use lists right."""
        for position, operand in enumerate(self.operands):
            operand.uses.remove((self, position))
        self.operands = list(values)
        for position, operand in enumerate(self.operands):
            operand.uses.append((self, position))

    def erase(self) -> None:
        """Remove from its region and drop all operand uses, nested regions included.

        The results must have no users left.
        """
        for result in self.results:
            assert not result.uses, f"erasing {self.name} whose result is still used"
        self.drop_uses()
        if self.parent is not None:
            self.parent.ops.remove(self)
            self.parent = None

    def drop_uses(self) -> None:
        """Forget the operands, here and in nested regions."""
        for position, operand in enumerate(self.operands):
            operand.uses.remove((self, position))
        self.operands = []
        for region in self.regions:
            for op in region.ops:
                op.drop_uses()

    def walk(self) -> Iterator[Operation]:
        """This operation, then all nested ones, in program order."""
        yield self
        for region in self.regions:
            yield from region.walk()

    def __repr__(self) -> str:
        return f"<Operation {self.name}>"


class Region:
    """Arguments and a list of operations, the last of which ends it (yield, return, condition)."""

    __slots__ = ("args", "ops", "owner")

    def __init__(self, arg_types: Iterable[Type] = (), hints: Iterable[str] = ()) -> None:
        self.args: list[Value] = [
            Value(type_, self, position) for position, type_ in enumerate(arg_types)
        ]
        for arg, hint in zip(self.args, hints, strict=False):
            arg.hint = hint
        self.ops: list[Operation] = []
        self.owner: Operation | Function | None = None

    def append(self, op: Operation) -> Operation:
        op.parent = self
        self.ops.append(op)
        return op

    def insert(self, position: int, op: Operation) -> Operation:
        op.parent = self
        self.ops.insert(position, op)
        return op

    def add_arg(self, type_: Type, hint: str | None = None) -> Value:
        arg = Value(type_, self, len(self.args), hint)
        self.args.append(arg)
        return arg

    @property
    def terminator(self) -> Operation:
        return self.ops[-1]

    def walk(self) -> Iterator[Operation]:
        for op in list(self.ops):
            yield from op.walk()


class Function:
    """One kernel. `arg_attrs` holds per-argument facts: "divisibility" (int), "noalias" (bool),
    "same_as" (number of an earlier pointer argument that starts at the same address)."""

    __slots__ = ("arg_attrs", "attrs", "body", "location", "name")

    def __init__(
        self,
        name: str,
        arg_types: Sequence[Type] = (),
        arg_names: Sequence[str] = (),
        location: Location | None = None,
    ) -> None:
        self.name = name
        self.body = Region(arg_types, arg_names)
        self.body.owner = self
        self.arg_attrs: list[dict[str, Any]] = [{} for _ in arg_types]
        self.attrs: dict[str, Any] = {}
        self.location = location

    @property
    def args(self) -> list[Value]:
        return self.body.args

    def walk(self) -> Iterator[Operation]:
        return self.body.walk()


class Module:
    """Functions by name."""

    __slots__ = ("functions",)

    def __init__(self, functions: Iterable[Function] = ()) -> None:
        self.functions: dict[str, Function] = {fn.name: fn for fn in functions}

    def __iter__(self) -> Iterator[Function]:
        return iter(self.functions.values())
