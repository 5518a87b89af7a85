"""Affine analysis: an index or pointer block as base + sum of stride * index.

A `Form` is root + base + sum(stride_d * i_d) + sum(coefficient * opaque term), in i64. Bases,
strides and coefficients are polynomials over scalars of the tile program. An opaque term is an
integer block that is not affine itself (loaded indices, remainders); where it does not vary along
the vectorised dimension, accesses still are contiguous there.

Index arithmetic on blocks is taken not to wrap, as signed arithmetic in C; scalars keep their
exact meaning, since they enter as symbols.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from isthmus.ir.core import Operation, Value
from isthmus.ir.types import I32, I64, PointerType, element_type, is_integer, is_pointer, shape_of
from isthmus.lowering.nest.maps import IndexMap, is_fixed, is_unit_reshape, operand_map

__all__ = ["Form", "FormAnalysis", "Opaque", "Poly", "Term"]

Opaque = tuple[Value, IndexMap]


class Poly:
    """A polynomial with integer coefficients over numbered scalars; immutable."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[tuple[int, ...], int]) -> None:
        self.terms = {key: value for key, value in sorted(terms.items()) if value != 0}
        self._hash: int | None = None

    @staticmethod
    def constant(value: int) -> Poly:
        return Poly({(): value})

    @property
    def value(self) -> int | None:
        """The number, when the polynomial is constant."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for key, value in other.terms.items():
            terms[key] = terms.get(key, 0) + value
        return Poly(terms)

    def __neg__(self) -> Poly:
        return Poly({key: -value for key, value in self.terms.items()})

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)

    def __mul__(self, other: Poly) -> Poly:
        terms: dict[tuple[int, ...], int] = {}
        for left, left_value in self.terms.items():
            for right, right_value in other.terms.items():
                key = tuple(sorted(left + right))
                terms[key] = terms.get(key, 0) + left_value * right_value
        return Poly(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __repr__(self) -> str:
        return f"Poly({self.terms})"


ZERO = Poly({})
ONE = Poly.constant(1)


@dataclass(slots=True)
class Form:
    """root + base + sum(strides[d] * i_d) + sum(opaque[term] * term).

    root: for pointers a scalar pointer, or an opaque block of pointers; None for integers.
    """

    base: Poly = field(default_factory=lambda: ZERO)
    strides: dict[int, Poly] = field(default_factory=dict)
    opaque: dict[Opaque, Poly] = field(default_factory=dict)
    root: Value | Opaque | None = None

    def key(self) -> tuple[object, ...]:
        """Equal keys mean equal forms."""
        return (
            self.root,
            self.base,
            frozenset(self.strides.items()),
            frozenset(self.opaque.items()),
        )

    def plus(self, other: Form, sign: int = 1) -> Form:
        scale = Poly.constant(sign)
        strides, opaque = dict(self.strides), dict(self.opaque)
        for mine, theirs in ((strides, other.strides), (opaque, other.opaque)):
            for key, value in theirs.items():
                total = mine.get(key, ZERO) + scale * value  # type: ignore[call-overload]
                if total:
                    mine[key] = total  # type: ignore[index]
                else:
                    mine.pop(key, None)  # type: ignore[call-overload]
        root = self.root
        if sign > 0 and root is None:
            root = other.root
        elif sign < 0 and other.root is not None:
            root = None if root == other.root else self.root
        return Form(self.base + scale * other.base, strides, opaque, root)

    def times(self, factor: Poly) -> Form:
        if not factor:
            return Form()
        return Form(
            self.base * factor,
            {key: value * factor for key, value in self.strides.items()},
            {key: value * factor for key, value in self.opaque.items()},
        )

    @property
    def is_uniform(self) -> bool:
        """Whether it is the same for every index."""
        return not self.strides and not self.opaque and not isinstance(self.root, tuple)

    @property
    def is_affine(self) -> bool:
        return not self.opaque and not isinstance(self.root, tuple)

    def opaque_terms(self) -> Iterable[Opaque]:
        yield from self.opaque
        if isinstance(self.root, tuple):
            yield self.root

    def smallest(self, shape: tuple[int, ...]) -> int | None:
        """The least value over a nest of `shape`, where it is known."""
        total = self.base.value
        if total is None or self.opaque or self.root is not None:
            return None
        for dimension, stride in self.strides.items():
            step = stride.value
            if step is None:
                return None
            total += min(0, step * (shape[dimension] - 1))
        return total


@dataclass(slots=True)
class Term:
    """One conjunct of a mask: `form` >= 0, or else an opaque or scalar truth value."""

    form: Form | None
    value: Value | None = None
    map: IndexMap = ()

    def key(self) -> tuple[object, ...]:
        return (self.value, self.map) if self.form is None else self.form.key()


_SIGNED = {"slt": (1, -1), "sle": (1, 0), "sgt": (-1, -1), "sge": (-1, 0)}


class FormAnalysis:
    """Forms of index and pointer blocks, remembered per value and map.

    `inductions` holds loop-carried blocks that are an initial block plus a scalar offset
    (see `carried_pointers`): value -> (initial block, offset scalar).
    """

    def __init__(self) -> None:
        self.inductions: dict[Value, tuple[Value, Value]] = {}
        self.symbols: list[Value] = []
        self._numbers: dict[Value, int] = {}
        self._forms: dict[Opaque, Form] = {}

    def forget(self) -> None:
        """Drop all forms: `inductions` has changed."""
        self._forms.clear()

    # Scalars ---------------------------------------------------------------------------------

    def poly(self, scalar: Value) -> Poly:
        """A scalar integer as a polynomial: a number or a symbol."""
        op = scalar.defining_op
        while op is not None and op.name == "arith.extsi":
            scalar = op.operands[0]
            op = scalar.defining_op
        if op is not None and op.name == "arith.constant":
            return Poly.constant(int(op.attrs["value"]))
        number = self._numbers.get(scalar)
        if number is None:
            number = self._numbers[scalar] = len(self.symbols)
            self.symbols.append(scalar)
        return Poly({(number,): 1})

    def scalar_form(self, scalar: Value) -> Form:
        """A scalar integer or pointer; chains of ptr.add are taken apart."""
        if not is_pointer(scalar.type):
            return Form(self.poly(scalar))
        base = ZERO
        op = scalar.defining_op
        while op is not None and op.name == "ptr.add":
            base = base + self.poly(op.operands[1])
            scalar = op.operands[0]
            op = scalar.defining_op
        return Form(base, root=scalar)

    # Blocks ----------------------------------------------------------------------------------

    def form(self, value: Value, map_: IndexMap) -> Form:
        """The form of an integer or pointer value under an index map."""
        if not shape_of(value.type):
            return self.scalar_form(value)
        key = (value, map_)
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = self._derive(value, map_)
        return found

    def _derive(self, value: Value, map_: IndexMap) -> Form:
        induction = self.inductions.get(value)
        if induction is not None:
            initial, offset = induction
            return self.form(initial, map_).plus(Form(self.poly(offset)))
        op = value.defining_op
        element = element_type(value.type)
        if op is not None and (element in (I32, I64) or isinstance(element, PointerType)):
            found = self._derive_op(op, map_)
            if found is not None:
                return found
        return self._opaque(value, map_)

    @staticmethod
    def _opaque(value: Value, map_: IndexMap) -> Form:
        if is_pointer(value.type):
            return Form(root=(value, map_))
        return Form(opaque={(value, map_): ONE})

    def _derive_op(self, op: Operation, map_: IndexMap) -> Form | None:
        name = op.name
        if name == "tile.arange":
            start = Poly.constant(op.attrs["start"])
            if is_fixed(map_[0]):
                return Form(start + Poly.constant(-1 - map_[0]))
            return Form(start, {map_[0]: ONE})
        if name == "arith.constant":
            return Form(Poly.constant(int(op.attrs["value"])))
        if name == "tile.splat":
            return self.scalar_form(op.operands[0])
        if name in ("tile.broadcast", "tile.expand_dims", "tile.trans") or (
            name == "tile.reshape" and is_unit_reshape(op)
        ):
            return self.form(op.operands[0], operand_map(op, 0, map_))
        if name == "arith.extsi":
            if element_type(op.operands[0].type) is not I32:
                return None
            return self.form(op.operands[0], map_)
        if name in ("arith.addi", "arith.subi", "ptr.add"):
            lhs, rhs = (self.form(operand, map_) for operand in op.operands)
            if isinstance(rhs.root, tuple):
                return None
            return lhs.plus(rhs, -1 if name == "arith.subi" else 1)
        if name == "arith.muli":
            lhs, rhs = (self.form(operand, map_) for operand in op.operands)
            if rhs.is_uniform:
                return lhs.times(rhs.base)
            return rhs.times(lhs.base) if lhs.is_uniform else None
        if name == "arith.shli":
            lhs, rhs = (self.form(operand, map_) for operand in op.operands)
            amount = rhs.base.value if rhs.is_uniform else None
            if amount is None or not 0 <= amount < 31:
                return None
            return lhs.times(Poly.constant(1 << amount))
        return None

    # Masks -----------------------------------------------------------------------------------

    def compare_term(self, op: Operation, map_: IndexMap) -> Form | None:
        """The form that is >= 0 exactly where a signed integer comparison holds."""
        signs = _SIGNED.get(op.attrs["predicate"])
        if signs is None or not is_integer(op.operands[0].type):
            return None
        if element_type(op.operands[0].type) not in (I32, I64):
            return None
        lhs, rhs = (self.form(operand, map_) for operand in op.operands)
        sign, slack = signs
        difference = rhs.plus(lhs, -1) if sign > 0 else lhs.plus(rhs, -1)
        return Form(difference.base + Poly.constant(slack), difference.strides, difference.opaque)

    def mask_terms(self, mask: Value, map_: IndexMap, shape: tuple[int, ...]) -> list[Term]:
        """The conjuncts of a mask; those that always hold are dropped."""
        op = mask.defining_op
        if op is None:
            return [Term(None, mask, map_)]
        name = op.name
        if name == "arith.constant" and op.attrs["value"]:
            return []
        if name == "arith.andi":
            return [
                term for operand in op.operands for term in self.mask_terms(operand, map_, shape)
            ]
        if name == "tile.splat":
            return self.mask_terms(op.operands[0], (), shape)
        if name in ("tile.broadcast", "tile.expand_dims", "tile.trans") or (
            name == "tile.reshape" and is_unit_reshape(op)
        ):
            return self.mask_terms(op.operands[0], operand_map(op, 0, map_), shape)
        if name == "arith.cmpi" and shape_of(mask.type):
            form = self.compare_term(op, map_)
            if form is not None:
                least = form.smallest(shape)
                return [] if least is not None and least >= 0 else [Term(form)]
        return [Term(None, mask, map_)]
