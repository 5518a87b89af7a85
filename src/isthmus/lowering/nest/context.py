"""What all parts of one lowering share: scalars so far, blocks so far, analyses, scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.core.errors import InternalError, KernelError
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Operation, Region, Value
from isthmus.ir.types import I64
from isthmus.lowering.nest.affine import FormAnalysis, Poly
from isthmus.lowering.nest.aliases import Aliases
from isthmus.lowering.nest.lazy import Costs, is_block, is_lazy
from isthmus.lowering.nest.memory import Block, Scratch

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription
    from isthmus.lowering.nest.control import Control

__all__ = ["Context"]


class Context:
    """State of lowering one function.

    env: scalars of the tile program -> values of the nest program;
    blocks: block values that lie in scratch, or will when their item has run.
    """

    def __init__(
        self,
        function: Function,
        target: TargetDescription,
        scratch: Value,
        entry: Builder,
        control: type[Control],
    ) -> None:
        self.function = function
        self.target = target
        #: Builds what runs once per call, ahead of the loop over programs.
        self.entry = entry
        self.forms = FormAnalysis()
        self.aliases = Aliases(function, self.forms)
        self.env: dict[Value, Value] = {}
        self.blocks: dict[Value, Block] = {}
        self.costs = Costs(self.blocks, self.forms.inductions)
        self.scratch = Scratch(scratch)
        #: (operation, axis) -> program index or grid size.
        self.grid: dict[tuple[str, int], Value] = {}
        self.ignored: set[str] = set()
        self.notes: dict[str, int] = {"nests": 0, "products": 0}
        self.control = control(self)
        self._positions = {op: number for number, op in enumerate(function.walk())}
        self._last_use: dict[Value, int] = {}

    # Positions -------------------------------------------------------------------------------

    def position(self, op: Operation) -> int:
        """The place of an operation in program order."""
        return self._positions[op]

    def position_of_value(self, value: Value) -> int:
        """The place of the operation that defines a value; region arguments come first."""
        op = value.defining_op
        if op is not None:
            return self._positions[op]
        holder = value.owner.owner if isinstance(value.owner, Region) else None
        return self._positions[holder] if isinstance(holder, Operation) else -1

    def last_use(self, value: Value) -> int:
        """The place of the last operation, in the region of `value`, that needs it.

        Lazy users count where they are used themselves.
        """
        found = self._last_use.get(value)
        if found is None:
            self._last_use[value] = -1
            owner = value.owner
            home = owner if isinstance(owner, Region) else owner.parent
            found = -1
            for user, _ in value.uses:
                op: Operation = user
                while op.parent is not home:
                    holder = op.parent.owner if op.parent is not None else None
                    assert isinstance(holder, Operation), "a user lies within the value's region"
                    op = holder
                found = max(found, self._positions[op])
                if op is user and is_lazy(op):
                    for result in op.results:
                        found = max(found, self.last_use(result))
            self._last_use[value] = found
        return found

    # Scalars ---------------------------------------------------------------------------------

    def scalar(self, value: Value) -> Value:
        """The nest value of a scalar of the tile program."""
        found = self.env.get(value)
        if found is None:
            raise self.missing(value)
        return found

    def poly(self, builder: Builder, poly: Poly) -> Value:
        """Emit a polynomial of scalars as i64."""
        total: Value | None = None
        constant = poly.terms.get((), 0)
        for key, factor in poly.terms.items():
            if not key:
                continue
            product: Value | None = None
            for number in key:
                symbol = self.scalar(self.forms.symbols[number])
                if symbol.type is not I64:
                    symbol = builder.emit("arith.extsi", symbol, type=I64)
                product = symbol if product is None else builder.emit("arith.muli", product, symbol)
            assert product is not None, "a monomial has factors"
            if factor != 1:
                product = builder.emit("arith.muli", product, builder.i64(factor))
            total = product if total is None else builder.emit("arith.addi", total, product)
        if total is None:
            return builder.i64(constant)
        return builder.emit("arith.addi", total, builder.i64(constant)) if constant else total

    # Errors ----------------------------------------------------------------------------------

    def unsupported(self, op: Operation) -> KernelError:
        return KernelError(
            f"{op.name} has no lowering to loop nests",
            location=op.location,
            hint="see the table of operations in docs/ir.md for what every target supports",
            code="K300",
        )

    def missing(self, value: Value) -> InternalError:
        op = value.defining_op
        kind = "block" if is_block(value) else "scalar"
        return InternalError(
            f"{kind} {value!r} of {op.name if op is not None else 'a region'} was not computed "
            f"before its use in {self.function.name}",
            stage="lowering",
        )
