"""Which memory accesses of one program may touch the same bytes."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.ir.core import Function, Operation, Region, Value
from isthmus.ir.types import is_pointer, shape_of
from isthmus.lowering.nest.affine import Form, FormAnalysis
from isthmus.lowering.nest.maps import IndexMap, identity_map, nest_shape

__all__ = ["Access", "Aliases", "READS", "WRITES", "accesses_in", "written_arguments"]

WRITES = ("tile.store", "tile.atomic_rmw", "tile.atomic_cas")
READS = ("tile.load", *WRITES)


@dataclass(slots=True)
class Access:
    """One access of memory: the operation and what its pointers may point into.

    arguments: numbers of the pointer arguments of the kernel; None: anything.
    """

    op: Operation
    writes: bool
    arguments: frozenset[int] | None


class Aliases:
    """Answers "may these two accesses overlap" from pointer roots and argument facts.

    Argument facts: "noalias" where no other argument overlaps this one; "same_as" with the
    number of an earlier argument that starts at the same address.
    """

    def __init__(self, function: Function, forms: FormAnalysis) -> None:
        self.forms = forms
        self._numbers = {arg: number for number, arg in enumerate(function.args)}
        self._facts = function.arg_attrs
        self._accesses: dict[Operation, Access] = {}
        self._written: set[int] | None = set()
        for access in accesses_in(function.walk(), self):
            if access.writes and self._written is not None:
                if access.arguments is None:
                    self._written = None
                else:
                    self._written.update(map(self._class, access.arguments))

    def _class(self, argument: int) -> int:
        return self._facts[argument].get("same_as", argument)

    def access(self, op: Operation) -> Access:
        found = self._accesses.get(op)
        if found is None:
            arguments = self._roots(op.operands[0], set())
            found = self._accesses[op] = Access(op, op.name in WRITES, arguments)
        return found

    def is_invariant(self, op: Operation) -> bool:
        """Whether nothing in the kernel writes what a load reads."""
        arguments = self.access(op).arguments
        if arguments is None or self._written is None:
            return False
        for argument in arguments:
            if self._class(argument) in self._written:
                return False
            if not self._facts[argument].get("noalias") and self._written:
                return False
        return True

    def may_overlap(self, one: Access, other: Access) -> bool:
        """Whether two accesses, at any indices, may touch the same bytes."""
        if one.arguments is None or other.arguments is None:
            return True
        return any(self._arguments_overlap(a, b) for a in one.arguments for b in other.arguments)

    def _arguments_overlap(self, one: int, other: int) -> bool:
        if self._class(one) == self._class(other):
            return True
        return not (self._facts[one].get("noalias") or self._facts[other].get("noalias"))

    def same_start(self, one: Access, other: Access) -> bool:
        """Whether both go through one argument, or arguments with one address."""
        roots = {self._class(a) for access in (one, other) for a in access.arguments or (-1, -2)}
        return len(roots) == 1

    def same_elements(
        self, load: Operation, load_map: IndexMap, store: Operation, shape: tuple[int, ...]
    ) -> bool:
        """Whether, in a nest of `shape`, each iteration loads exactly what it alone stores."""
        if not self.same_start(self.access(load), self.access(store)):
            return False
        pointer = store.operands[0]
        mine = self.forms.form(load.operands[0], load_map)
        theirs = self.forms.form(pointer, identity_map(shape_of(pointer.type)))
        return (
            mine.is_affine
            and set(mine.strides) == set(range(len(shape)))
            and self._relative(mine) == self._relative(theirs)
        )

    def are_disjoint(self, one: Operation, other: Operation) -> bool:
        """Whether two accesses through one argument provably touch different elements."""
        first, second = self.access(one), self.access(other)
        if not self.same_start(first, second):
            return False
        forms = [
            self.forms.form(op.operands[0], identity_map(shape_of(op.operands[0].type)))
            for op in (one, other)
        ]
        if not all(form.is_affine for form in forms):
            return False
        distance = (forms[1].base - forms[0].base).value
        if distance is None:
            return False
        spans = []
        for op, form in zip((one, other), forms, strict=True):
            low = high = 0
            shape = nest_shape(shape_of(op.operands[0].type))
            for dimension, stride in form.strides.items():
                if stride.value is None:
                    return False
                reach = stride.value * (shape[dimension] - 1)
                low, high = low + min(0, reach), high + max(0, reach)
            spans.append((low, high))
        return distance + spans[1][0] > spans[0][1] or distance + spans[1][1] < spans[0][0]

    def _relative(self, form: Form) -> tuple[object, ...]:
        """The key of a form with its root replaced by the class of its argument."""
        assert isinstance(form.root, Value), "an affine pointer form has a scalar root"
        number = self._numbers.get(form.root)
        root = form.root if number is None else self._class(number)
        return (root, *form.key()[1:])

    def _roots(self, pointer: Value, seen: set[Value]) -> frozenset[int] | None:
        """The pointer arguments that `pointer` may come from; None when unknown."""
        if pointer in self._numbers:
            return frozenset((self._numbers[pointer],))
        if pointer in seen:
            return frozenset()
        seen.add(pointer)
        sources = _pointer_sources(pointer)
        if sources is None:
            return None
        found: frozenset[int] = frozenset()
        for source in sources:
            roots = self._roots(source, seen)
            if roots is None:
                return None
            found |= roots
        return found


_FORWARDING = frozenset(
    ("ptr.add", "tile.splat", "tile.broadcast", "tile.expand_dims", "tile.trans", "tile.reshape",
     "tile.cat", "tile.join", "tile.split", "arith.select", "tile.gather")
)  # fmt: skip


def _pointer_sources(pointer: Value) -> list[Value] | None:
    """The pointers that `pointer` may be one of, or moved from."""
    owner = pointer.owner
    if isinstance(owner, Region):
        op = owner.owner
        if isinstance(op, Operation) and op.name == "scf.for" and pointer.index > 0:
            return [op.operands[2 + pointer.index], owner.terminator.operands[pointer.index - 1]]
        return None
    if owner.name in _FORWARDING:
        return [operand for operand in owner.operands if is_pointer(operand.type)]
    if owner.name == "ptr.cast" and is_pointer(owner.operands[0].type):
        return [owner.operands[0]]
    if owner.name == "scf.for":
        body = owner.regions[0]
        return [owner.operands[3 + pointer.index], body.terminator.operands[pointer.index]]
    if owner.name == "scf.if":
        return [region.terminator.operands[pointer.index] for region in owner.regions]
    return None


def written_arguments(function: Function) -> frozenset[int]:
    """Numbers of the pointer arguments that a kernel stores through."""
    aliases = Aliases(function, FormAnalysis())
    written: frozenset[int] = frozenset()
    for access in accesses_in(function.walk(), aliases):
        if access.writes and access.arguments is not None:
            written |= access.arguments
    return written


def accesses_in(operations: object, aliases: Aliases) -> list[Access]:
    """All memory accesses among operations."""
    return [aliases.access(op) for op in operations if op.name in READS]  # type: ignore[attr-defined]
