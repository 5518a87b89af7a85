"""Shape of one nest: which dimension runs along the lanes, the loop order, the vector widths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.ir.core import Operation, Value
from isthmus.ir.types import ScalarType, element_type, is_float, is_integer
from isthmus.lowering.nest.affine import ONE, Form
from isthmus.lowering.nest.lazy import is_block, is_lazy
from isthmus.lowering.nest.maps import IndexMap, operand_map
from isthmus.lowering.nest.roots import MaterialiseRoot, Nest, ReduceRoot, ScanRoot, StoreRoot

if TYPE_CHECKING:
    from isthmus.lowering.nest.expressions import Expressions

__all__ = ["NestShape"]

#: What an access that is not contiguous costs against the gain of one that is.
_SCATTERED = 4
#: Operations per element up to which the fast part uses four, or two, vectors at a time.
_LIGHT, _MEDIUM = 12, 40


class NestShape:
    """Decisions about a nest, made before anything is emitted.

    vector: the vectorised dimension, or None; order: dimensions from the outermost loop in;
    base: lanes of one vector register; width: lanes handled together in the fast part;
    loads: lazy loads with their maps; known: mask terms proven for the fast part; off: masks
    that are off in the dead part.
    """

    def __init__(self, expressions: Expressions, nest: Nest) -> None:
        self.expressions = expressions
        self.nest = nest
        self.loads: list[tuple[Operation, IndexMap]] = []
        self.known: set[object] = set()
        self.off: set[object] = set()
        self._accesses: list[Form] = []
        self._bits = 0
        self._collect()
        self.vector = self._choose_vector()
        self.order = self._loop_order()
        self.base, self.width = self._widths()

    def _collect(self) -> None:
        expressions = self.expressions
        seen: set[tuple[Value, IndexMap]] = set()
        stack: list[tuple[Value, IndexMap]] = []
        for root in self.nest.roots:
            stack.extend((value, root.map) for value in root.inputs if is_block(value))
            if isinstance(root, StoreRoot):
                self._accesses.append(expressions.forms.form(root.inputs[0], root.map))
                self._see(root.inputs[1])
            elif isinstance(root, MaterialiseRoot):
                self._accesses.append(expressions.block_form(root.strides, root.map))
                self._see(root.inputs[0])
            else:
                for value in root.inputs:
                    self._see(value)
        while stack:
            value, map_ = stack.pop()
            if (value, map_) in seen or not is_block(value):
                continue
            seen.add((value, map_))
            block = expressions.is_stored(value)
            if block is not None:
                self._accesses.append(expressions.block_form(block.strides, map_))
                self._see(value)
                continue
            if value in expressions.forms.inductions:
                stack.append((expressions.forms.inductions[value][0], map_))
                continue
            op = value.defining_op
            if op is None or not is_lazy(op):
                raise expressions.context.missing(value)
            start = 0
            if op.name == "tile.load":
                form = expressions.forms.form(op.operands[0], map_)
                self.loads.append((op, map_))
                self._accesses.append(form)
                self._see(value)
                stack.extend(form.opaque_terms())
                start = 1
            for position in range(start, len(op.operands)):
                operand = op.operands[position]
                stack.append((operand, operand_map(op, position, map_, value.index)))

    def _see(self, value: Value) -> None:
        element = element_type(value.type)
        if isinstance(element, ScalarType) and (is_float(element) or is_integer(element)):
            self._bits = max(self._bits, element.bits)

    def _choose_vector(self) -> int | None:
        nest = self.nest
        if nest.is_sequential or not nest.shape:
            return None
        scores: list[tuple[int, int]] = []
        for dimension, extent in enumerate(nest.shape):
            if nest.is_scan and dimension == nest.axis:
                continue
            score = 0
            for form in self._accesses:
                score += self._score(form, dimension)
            if extent < self.expressions.context.target.lanes(32):
                score -= _SCATTERED // 2
            scores.append((score, dimension))
        if not scores:
            return None
        best_score, best = max(scores)
        if nest.is_scan and best_score < -_SCATTERED * len(self._accesses):
            return None
        return best

    def _score(self, form: Form, dimension: int) -> int:
        opaque = any(self.expressions.dimensions(*key) & {dimension} for key in form.opaque_terms())
        stride = form.strides.get(dimension)
        if opaque:
            return -_SCATTERED
        if stride is None:
            return 0
        return 1 if stride == ONE else -_SCATTERED

    def _loop_order(self) -> list[int]:
        nest = self.nest
        last = [d for d in (self.vector, nest.axis) if d is not None]
        if len(last) == 2 and last[0] == last[1]:
            last = last[:1]
        return [d for d in range(len(nest.shape)) if d not in last] + last

    def _widths(self) -> tuple[int, int]:
        if self.vector is None:
            return 1, 1
        context = self.expressions.context
        extent = self.nest.shape[self.vector]
        cost = sum(
            context.costs.of(value)
            for root in self.nest.roots
            for value in (root.inputs[1:2] if isinstance(root, StoreRoot) else root.inputs)
        )
        bits = self._bits
        if cost > len(self.nest.roots) * 4:
            bits = max(bits, 32)
        base = context.target.lanes(max(8, min(64, bits)))
        reduces = any(isinstance(root, ReduceRoot | ScanRoot) for root in self.nest.roots)
        unroll = 1
        if cost <= _LIGHT:
            unroll = 4 if reduces else 2
        elif cost <= _MEDIUM and reduces:
            unroll = 2
        if extent <= base:
            return extent, extent
        while unroll > 1 and base * unroll > extent:
            unroll //= 2
        return base, base * unroll
