"""How far the innermost loop runs without masks: limits from comparisons of affine indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.ir.core import Value
from isthmus.ir.types import shape_of
from isthmus.lowering.nest.affine import Form, Poly, Term
from isthmus.lowering.nest.maps import identity_map
from isthmus.lowering.nest.roots import AtomicRoot, Nest, StoreRoot

if TYPE_CHECKING:
    from isthmus.lowering.nest.loops import NestEmitter

__all__ = ["Limits"]


class Limits:
    """Limits of the loop over `dimension` at `depth`, computed just outside it."""

    def __init__(self, nest_emitter: NestEmitter, nest: Nest, dimension: int, depth: int) -> None:
        self.emitter = nest_emitter
        self.nest = nest
        self.dimension = dimension
        self.depth = depth

    def find(self) -> Value | None:
        """The number of leading iterations in which provable masks hold; None: no such masks.

        The terms that hold there are left in the plan's `known`.
        """
        emitter = self.emitter
        terms: dict[object, Term] = {}
        for mask, map_ in self._masks():
            conjuncts = emitter.forms.mask_terms(mask, map_, emitter.shape)
            if conjuncts and all(self._is_provable(term) for term in conjuncts):
                terms.update((term.key(), term) for term in conjuncts)
        emitter.plan.known = set(terms)
        return self._count(list(terms.values())) if terms else None

    def live(self) -> Value | None:
        """The number of leading iterations after which every store is masked off."""
        emitter = self.emitter
        builder = emitter.levels[-1].builder
        total: Value | None = None
        for root in self.nest.roots:
            assert isinstance(root, StoreRoot), "only nests of stores can stop early"
            if len(root.inputs) < 3:
                return None
            terms = emitter.forms.mask_terms(root.inputs[2], root.map, emitter.shape)
            terms = [term for term in terms if self._is_provable(term)]
            if not terms:
                return None
            count = self._count(terms, largest_lane=False)
            total = count if total is None else builder.emit("arith.maxsi", total, count)
        return total

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
