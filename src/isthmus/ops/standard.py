"""The operator standard: what an operator is, and the register of all of them.

An operator is a record: signature, shape and dtype rule, float64 reference, tolerance, the
behaviour at NaN and empty tensors, cost, and its kernels in the kernel language. Conformance
tests, documentation, capture and the executor all read the record; there is no second list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from isthmus.core.dtypes import DType
from isthmus.core.errors import InternalError, ProgramError

if TYPE_CHECKING:
    import numpy as np

    from isthmus.core.target import TargetDescription

__all__ = [
    "OPERATORS", "REQUIRED", "Cost", "Launch", "Operator", "Plan", "Slot", "TensorSpec",
    "Tolerance", "View", "complete_attrs", "complete_inputs", "contiguous_strides", "operator",
    "register",
]  # fmt: skip

Attrs = Mapping[str, Any]


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype: what a graph knows of a value."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.size_bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class View:
    """How a kernel sees a tensor: shape, dtype, strides in elements from its first element."""

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]

    @classmethod
    def contiguous(cls, shape: Sequence[int], dtype: DType) -> View:
        return cls(tuple(shape), dtype, contiguous_strides(shape))

    @property
    def is_contiguous(self) -> bool:
        expected = contiguous_strides(self.shape)
        return all(
            stride == want or size <= 1
            for size, stride, want in zip(self.shape, self.strides, expected, strict=True)
        )

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor argument of a launch: kind is "input", "output" or "workspace".

    dtype: what the kernel's pointer points to; None: the dtype of the tensor itself (a workspace,
    being bytes, always names one).
    """

    kind: str
    index: int
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch.

    kernel: an `isthmus.jit` kernel.
    args: for each parameter by name a Slot, a number, or (for constexpr parameters) any value.
    grid: programs along x, y, z.
    """

    kernel: Any
    args: Mapping[str, Any]
    grid: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches that compute one operator, in order, and the workspaces (bytes) they need."""

    launches: tuple[Launch, ...]
    workspaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """Arithmetic and memory traffic of one application."""

    flops: int
    bytes_moved: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed error against the float64 reference: |x - ref| <= absolute + relative * |ref|.

    `reason` says where the numbers come from.
    """

    relative: float
    absolute: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of the standard.

    name: its name in programs.
    inputs: names; a trailing "?" marks an optional one (absent inputs are left out from the
        right, or passed as None), "*" a variadic tail.
    attrs: attribute name -> default (`REQUIRED` where there is none).
    infer: (input specs, attrs) -> output specs; raises ShapeError or DTypeError.
    reference: (input arrays, attrs) -> output arrays, computed in float64 (integers exactly).
    plan: (input views, output views, attrs, target) -> Plan; None for views and constants,
        which the executor resolves without a kernel.
    pointwise: for element-wise operators, a jit helper over the inputs' blocks (and the attrs
        named in `pointwise_attrs` as constexpr keywords) that gives the output block; kernels
        for any set of fused element-wise operators are generated from these.
    tolerance: dtype name -> Tolerance.
    gradient: where its gradient lives, in words ("layer_norm_backward", "by capture").
    nan, empty: behaviour at NaN and at empty tensors, in words; conformance tests hold it to them.
    cost: (input specs, output specs, attrs) -> Cost.
    inplace: output index -> input indices whose storage that output may reuse.
    random: draws random numbers from the program's key.
    strided_inputs: indices of inputs whose views may have any strides (0 too); None: all. The
        executor gives every other input, and every output, in row-major order.
    """

    name: str
    doc: str
    inputs: tuple[str, ...]
    infer: Callable[[Sequence[TensorSpec | None], Attrs], list[TensorSpec]]
    reference: Callable[[Sequence[np.ndarray | None], Attrs], list[np.ndarray]]
    cost: Callable[[Sequence[TensorSpec | None], Sequence[TensorSpec], Attrs], Cost]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    plan: (
        Callable[[Sequence[View | None], Sequence[View], Attrs, TargetDescription], Plan] | None
    ) = None
    pointwise: Any = None
    pointwise_attrs: tuple[str, ...] = ()
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)
    gradient: str = "by capture"
    nan: str = "NaN in, NaN out, element by element"
    empty: str = "empty in, empty out"
    inplace: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    random: bool = False
    strided_inputs: tuple[int, ...] | None = ()

    @property
    def is_pointwise(self) -> bool:
        return self.pointwise is not None


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


#: Marks an attribute without a default.
REQUIRED = _Required()

OPERATORS: dict[str, Operator] = {}


def complete_attrs(op: Operator, attrs: Attrs) -> dict[str, Any]:
    """`attrs` with the defaults filled in. Raises ProgramError for unknown or missing names."""
    unknown = [name for name in attrs if name not in op.attrs]
    if unknown:
        raise ProgramError(
            f"{op.name} has no attribute {unknown[0]!r}; it has {', '.join(op.attrs) or 'none'}"
        )
    complete = {**op.attrs, **attrs}
    missing = [name for name, value in complete.items() if value is REQUIRED]
    if missing:
        raise ProgramError(f"{op.name} needs the attribute {missing[0]!r}")
    return complete


def complete_inputs(op: Operator, inputs: Sequence[Any]) -> list[Any]:
    """`inputs` with None for optional ones left out. Raises ProgramError on a wrong count."""
    names = op.inputs
    variadic = bool(names) and names[-1].endswith("*")
    complete = list(inputs)
    if not variadic:
        complete += [None] * (len(names) - len(complete))
    if not variadic and len(complete) > len(names):
        raise ProgramError(f"{op.name} takes {len(names)} inputs, got {len(inputs)}")
    for index, name in enumerate(names):
        needed = not name.endswith(("?", "*"))
        if needed and (index >= len(complete) or complete[index] is None):
            raise ProgramError(f"{op.name} needs its input {name!r}")
    return complete


def register(op: Operator) -> Operator:
    """Add one operator to the standard.

    The record's functions see complete inputs and attributes from here on: absent optional
    inputs are None and attributes left out have their defaults.
    """
    if op.name in OPERATORS:
        raise InternalError(f"operator {op.name} is registered twice")

    def infer(specs: Sequence[TensorSpec | None], attrs: Attrs) -> list[TensorSpec]:
        return op.infer(complete_inputs(op, specs), complete_attrs(op, attrs))

    def reference(arrays: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        return op.reference(complete_inputs(op, arrays), complete_attrs(op, attrs))

    def cost(
        specs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec], attrs: Attrs
    ) -> Cost:
        return op.cost(complete_inputs(op, specs), outputs, complete_attrs(op, attrs))

    def plan(
        views: Sequence[View | None],
        outputs: Sequence[View],
        attrs: Attrs,
        target: TargetDescription,
    ) -> Plan:
        assert op.plan is not None, f"{op.name} has no plan"
        return op.plan(complete_inputs(op, views), outputs, complete_attrs(op, attrs), target)

    complete = replace(
        op, infer=infer, reference=reference, cost=cost, plan=plan if op.plan else None
    )
    OPERATORS[op.name] = complete
    return complete


def operator(name: str) -> Operator:
    """The operator called `name`. Raises ProgramError when the standard has none."""
    try:
        return OPERATORS[name]
    except KeyError:
        raise ProgramError(
            f"operator {name!r} is not in the operator standard",
            hint="`isthmus inspect --operators` lists the operators",
        ) from None
