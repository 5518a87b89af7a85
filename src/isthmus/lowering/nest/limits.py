"""How far the innermost loop runs without masks: limits from comparisons of affine indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.ir.core import Value
from isthmus.ir.types import ScalarType, element_type, shape_of
from isthmus.lowering.nest.accumulate import identity_of
from isthmus.lowering.nest.affine import Form, Poly, Term
from isthmus.lowering.nest.lazy import is_block
from isthmus.lowering.nest.maps import IndexMap, identity_map, operand_map
from isthmus.lowering.nest.roots import AtomicRoot, Nest, ReduceRoot, StoreRoot

if TYPE_CHECKING:
    from isthmus.lowering.nest.loops import NestEmitter

__all__ = ["Limits"]


class Limits:
    """How many leading iterations of the loop over `dimension` are fast, and how many live.

    fast: all masks that can be proven hold before it; live: from there on all masks with a
    provable conjunct are off. Both are None where there is nothing to prove. The facts are left
    in the plan: `known` terms hold in the fast part, masks in `off` are off in the dead part.
    """

    def __init__(self, nest_emitter: NestEmitter, nest: Nest, dimension: int) -> None:
        self.emitter = nest_emitter
        self.nest = nest
        self.dimension = dimension
        self.fast: Value | None = None
        self.live: Value | None = None

    def find(self) -> bool:
        """Compute the limits at the insertion point; whether there are any."""
        emitter = self.emitter
        builder = emitter.levels[-1].builder
        proven: dict[object, Term] = {}
        off: set[object] = set()
        for mask, map_ in self._masks():
            terms = emitter.forms.mask_terms(mask, map_, emitter.shape)
            provable = [term for term in terms if self._is_provable(term)]
            if not provable:
                continue
            if len(provable) == len(terms):
                proven.update((term.key(), term) for term in terms)
            if (mask, map_) in off:
                continue
            off.add((mask, map_))
            count = self._count(provable, largest_lane=False)
            self.live = (
                count if self.live is None else builder.emit("arith.maxsi", self.live, count)
            )
        emitter.plan.known = set(proven)
        emitter.plan.off = off
        if proven:
            self.fast = self._count(list(proven.values()))
        return self.live is not None

    def is_idle_when_dead(self) -> bool:
        """Whether iterations with all masks in `off` change nothing."""
        off = self.emitter.plan.off
        for root in self.nest.roots:
            if isinstance(root, StoreRoot):
                if len(root.inputs) < 3 or (root.inputs[2], root.map) not in off:
                    return False
            elif isinstance(root, ReduceRoot):
                kind = root.op.attrs["kind"]
                if kind == "region" or root.axis is None:
                    return False
                value = self._constant_when_dead(root.inputs[0], root.map)
                element = element_type(root.inputs[0].type)
                assert isinstance(element, ScalarType), "named kinds combine numbers"
                if value is None or value != identity_of(kind, element):
                    return False
            else:
                return False
        return True

    def _constant_when_dead(self, value: Value, map_: IndexMap) -> float | None:
        """The number that a value is wherever the masks in `off` are off, if it is one."""
        op = value.defining_op
        if op is None or (is_block(value) and self.emitter.is_stored(value) is not None):
            return None
        name = op.name
        if name == "arith.constant":
            return op.attrs["value"]
        operand = op.operands[0] if op.operands else None
        if name == "tile.load":
            if len(op.operands) < 2 or (op.operands[1], map_) not in self.emitter.plan.off:
                return None
            return 0 if len(op.operands) < 3 else self._constant_when_dead(op.operands[2], map_)
        if name == "tile.splat":
            return self._constant_when_dead(op.operands[0], ())
        if name in ("arith.extf", "tile.broadcast", "tile.expand_dims"):
            assert operand is not None, f"{name} has an operand"
            return self._constant_when_dead(operand, operand_map(op, 0, map_))
        if name == "arith.select" and (operand, map_) in self.emitter.plan.off:
            return self._constant_when_dead(op.operands[2], map_)
        if name == "arith.mulf":
            left, right = (self._constant_when_dead(o, map_) for o in op.operands)
            if left is not None and right is not None:
                return left * right
        return None

    def _masks(self) -> list[tuple[Value, tuple[int, ...]]]:
        emitter = self.emitter
        found = []
        inner = frozenset((self.dimension,))
        for load, map_ in emitter.plan.loads:
            if len(load.operands) > 1 and emitter.dimensions(load.result, map_) & inner:
                found.append((load.operands[1], map_))
        for root in self.nest.roots:
            if isinstance(root, StoreRoot) and len(root.inputs) > 2:
                found.append((root.inputs[2], root.map))
            if isinstance(root, AtomicRoot) and root.op.name == "tile.atomic_rmw":
                found.extend((mask, identity_map(shape_of(mask.type))) for mask in root.inputs[2:])
        return found

    def _is_provable(self, term: Term) -> bool:
        emitter = self.emitter
        blocked = {self.dimension}
        if emitter.vector is not None and emitter.lanes > 1:
            blocked.add(emitter.vector)
        if term.form is None:
            assert term.value is not None, "a term is a form or a value"
            return not emitter.dimensions(term.value, term.map) & blocked
        stride = term.form.strides.get(self.dimension)
        if stride is not None and (stride.value is None or stride.value > 0):
            return False
        lane_stride = term.form.strides.get(emitter.vector) if emitter.vector is not None else None
        if lane_stride is not None and lane_stride.value is None:
            return False
        return not any(emitter.dimensions(*key) & blocked for key in term.form.opaque)

    def _count(self, terms: list[Term], largest_lane: bool = True) -> Value:
        """Leading iterations in which all terms hold, in [0, extent]."""
        emitter = self.emitter
        builder = emitter.levels[-1].builder
        number = len(emitter.levels) - 1
        zero, extent = builder.i64(0), builder.i64(emitter.shape[self.dimension])
        limit = extent
        conditions: list[Value] = []
        for term in terms:
            if term.form is None:
                assert term.value is not None, "a term is a form or a value"
                conditions.append(emitter.value(term.value, term.map))
                continue
            rest = self._rest(term.form, number, largest_lane)
            stride = term.form.strides.get(self.dimension)
            if stride is None:
                conditions.append(builder.emit("arith.cmpi", rest, zero, predicate="sge"))
                continue
            step = stride.value
            assert step is not None, "checked by _is_provable"
            count = builder.emit("arith.addi", rest, builder.i64(-step))
            if step != -1:
                count = builder.emit("arith.maxsi", count, zero)
                count = builder.emit("arith.divsi", count, builder.i64(-step))
            limit = builder.emit("arith.minsi", limit, count)
        limit = builder.emit("arith.maxsi", limit, zero)
        for condition in conditions:
            limit = builder.emit("arith.select", condition, limit, zero)
        return limit

    def _rest(self, form: Form, number: int, largest_lane: bool) -> Value:
        """The form without the loop's own dimension, at its worst (or best) lane."""
        emitter = self.emitter
        base = form.base
        vector = emitter.vector
        if vector is not None and vector != self.dimension and emitter.lanes > 1:
            stride = form.strides.get(vector)
            if stride is not None:
                assert stride.value is not None, "checked by _is_provable"
                reach = stride.value * (emitter.lanes - 1)
                base = base + Poly.constant(min(0, reach) if largest_lane else max(0, reach))
        plain = Form(base, form.strides, form.opaque)
        return emitter.scalar_form(plain, number, without=(self.dimension,))
