"""Checks that IR keeps its promises: every operation fits its table row, every operand is visible.

What is checked, for each function:

    operations    in an op table, with the operands, attributes and regions it names
    types         as the table's rules infer or allow them
    visibility    an operand is defined earlier in its region, or in a region around it
    terminators   a region ends with the one its owner needs, and nothing else ends a region
    structure     yielded values fit results and loop-carried values
    use lists     exactly the operands that exist; results and regions know their owners
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus.core.errors import InternalError
from isthmus.ir import dialects  # noqa: F401  (fills the op tables)
from isthmus.ir.core import Function, Module, Operation, Region, Value
from isthmus.ir.optable import OPS, OpDef, TypeMismatch
from isthmus.ir.printer import print_function
from isthmus.ir.types import I1, Type, element_type

__all__ = ["verify"]


class _Broken(Exception):  # noqa: N818  (a promise, broken)
    """A promise that `op` breaks; None stands for the function itself."""

    def __init__(self, op: Operation | None, message: str) -> None:
        super().__init__(message)
        self.op = op


def verify(program: Function | Module) -> None:
    """Check a function, or all functions of a module.

    Raises: InternalError that names the operation and what is wrong; `ir` is the function's text.
    """
    for function in program if isinstance(program, Module) else (program,):
        try:
            _Verifier().function(function)
        except _Broken as broken:
            where = f"@{function.name}"
            if broken.op is not None:
                where += f": {broken.op.name}"
                if broken.op.location is not None:
                    where += f" ({broken.op.location})"
            raise InternalError(
                f"{where}: {broken}", stage="verify", ir=print_function(function)
            ) from broken


class _Verifier:
    def __init__(self) -> None:
        self.reached: set[Operation] = set()
        self.values: list[Value] = []

    def function(self, function: Function) -> None:
        if len(function.arg_attrs) != len(function.args):
            count = len(function.arg_attrs)
            function.arg_attrs = [{} for _ in function.args]  # so that the function prints
            raise _Broken(None, f"{len(function.args)} arguments but {count} sets of facts")
        if function.body.owner is not function:
            raise _Broken(None, "the body does not know its function")
        self.region(function.body, None, set())
        _ends_with(function.body, None, "func.return")
        self.use_lists()

    def region(self, region: Region, owner: Operation | None, outer: set[Value]) -> None:
        visible = set(outer)
        self.define(region.args, region, owner, visible)
        for position, op in enumerate(region.ops):
            if op.parent is not region:
                raise _Broken(op, "its parent is not the region that holds it")
            if op in self.reached:
                raise _Broken(op, "it stands in two places")
            self.reached.add(op)
            definition = _known(op)
            for number, operand in enumerate(op.operands):
                if operand not in visible:
                    raise _Broken(op, f"operand {number} is not visible here")
            _check_types(op, definition)
            if definition.is_terminator and position != len(region.ops) - 1:
                raise _Broken(op, "it ends a region but other operations follow")
            for inner in op.regions:
                if inner.owner is not op:
                    raise _Broken(op, "a region does not know that it belongs to it")
                self.region(inner, op, visible)
            _check_structure(op)
            self.define(op.results, op, op, visible)

    def define(
        self,
        values: Sequence[Value],
        owner: Operation | Region,
        op: Operation | None,
        visible: set[Value],
    ) -> None:
        for index, value in enumerate(values):
            if value.owner is not owner or value.index != index:
                kind = "result" if isinstance(owner, Operation) else "region argument"
                raise _Broken(op, f"{kind} {index} does not know its owner and place")
        visible.update(values)
        self.values += values

    def use_lists(self) -> None:
        uses: dict[Value, set[tuple[Operation, int]]] = {value: set() for value in self.values}
        for op in self.reached:
            for position, operand in enumerate(op.operands):
                uses[operand].add((op, position))
        for value in self.values:
            listed = set(value.uses)
            if len(listed) != len(value.uses):
                raise _Broken(_op_of(value), "a use of one of its values is listed twice")
            for op, position in uses[value] - listed:
                raise _Broken(op, f"operand {position} does not list this use")
            for op, position in listed - uses[value]:
                raise _Broken(
                    _op_of(value),
                    f"it lists a use as operand {position} of {op.name}, which does not exist",
                )


def _op_of(value: Value) -> Operation | None:
    if isinstance(value.owner, Operation):
        return value.owner
    return value.owner.owner if isinstance(value.owner.owner, Operation) else None


def _known(op: Operation) -> OpDef:
    definition = OPS.get(op.name)
    if definition is None:
        raise _Broken(op, "no op table has this operation")
    count, least, most = len(op.operands), definition.min_operands, definition.max_operands
    if count < least or (most is not None and count > most):
        limit = "any number" if most is None else most
        wanted = least if least == most else f"{least} to {limit}"
        raise _Broken(op, f"expected {wanted} operands, got {count}")
    if len(op.regions) != definition.regions:
        raise _Broken(op, f"expected {definition.regions} regions, got {len(op.regions)}")
    kinds = {name.rstrip("?"): kind for name, kind in definition.attrs.items()}
    for name in definition.attrs:
        if not name.endswith("?") and name not in op.attrs:
            raise _Broken(op, f"attribute {name} is missing")
    for name, value in op.attrs.items():
        kind = kinds.get(name)
        if kind is None:
            raise _Broken(op, f"attribute {name} is not in its table row")
        if not isinstance(value, (tuple, list) if kind is tuple else kind):
            raise _Broken(op, f"attribute {name} must be {kind.__name__}, got {value!r}")
    return definition


def _check_types(op: Operation, definition: OpDef) -> None:
    operands = [operand.type for operand in op.operands]
    results = [result.type for result in op.results]
    try:
        if definition.infer is not None:
            expected = definition.infer(operands, op.attrs)
            if list(expected) != results:
                raise _Broken(op, f"expected results {_texts(expected)}, got {_texts(results)}")
        if definition.check is not None:
            definition.check(operands, results, op.attrs)
    except TypeMismatch as mismatch:
        raise _Broken(op, str(mismatch)) from mismatch
    if definition.is_terminator and results:
        raise _Broken(op, "it ends a region and has no results")
    if op.name == "arith.constant":
        _check_constant(op, results)


def _check_constant(op: Operation, results: Sequence[Type]) -> None:
    value = op.attrs["value"]
    if len(results) != 1:
        raise _Broken(op, f"expected one result, got {len(results)}")
    element = element_type(results[0])
    kind = float if getattr(element, "kind", "int") == "float" else int
    if not isinstance(value, kind):
        raise _Broken(op, f"a constant of {element} holds {kind.__name__}, got {value!r}")


def _texts(types: Iterable[Type]) -> str:
    return f"({', '.join(map(str, types))})"


def _ends_with(region: Region, op: Operation | None, name: str) -> Operation:
    """The terminator of `region`, which must be `name`."""
    found = region.ops[-1].name if region.ops else "nothing"
    if found != name:
        raise _Broken(op, f"a region must end with {name}, it ends with {found}")
    return region.ops[-1]


def _fit(op: Operation, what: str, values: Sequence[Value], expected: Sequence[Type]) -> None:
    got = [value.type for value in values]
    if got != list(expected):
        raise _Broken(op, f"{what}: expected {_texts(expected)}, got {_texts(got)}")


def _check_structure(op: Operation) -> None:
    """Region arguments and terminators against operands and results."""
    results = [result.type for result in op.results]
    if op.name == "scf.for":
        (body,) = op.regions
        _fit(op, "loop arguments", body.args, [op.operands[0].type, *results])
        _fit(op, "yielded values", _ends_with(body, op, "scf.yield").operands, results)
    elif op.name == "scf.while":
        before, body = op.regions
        initial = [operand.type for operand in op.operands]
        _fit(op, "arguments of the first region", before.args, initial)
        condition = _ends_with(before, op, "scf.condition")
        _fit(op, "the condition", condition.operands[:1], [I1])
        _fit(op, "forwarded values", condition.operands[1:], results)
        _fit(op, "arguments of the body", body.args, results)
        _fit(op, "yielded values", _ends_with(body, op, "scf.yield").operands, initial)
    elif op.name == "scf.if":
        for branch in op.regions:
            _fit(op, "arguments of a branch", branch.args, [])
            _fit(op, "yielded values", _ends_with(branch, op, "scf.yield").operands, results)
    elif op.name in ("tile.reduce", "tile.scan"):
        (combine,) = op.regions
        if op.attrs["kind"] != "region":
            if combine.ops or combine.args:
                raise _Broken(op, f"kind {op.attrs['kind']} leaves the region empty")
            return
        elements = [element_type(operand.type) for operand in op.operands]
        _fit(op, "arguments of the combination", combine.args, elements * 2)
        _fit(op, "yielded values", _ends_with(combine, op, "scf.yield").operands, elements)
