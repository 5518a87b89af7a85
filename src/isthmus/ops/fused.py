"""Kernels of fused element-wise operators: source text in the kernel language, made on demand.

A group is a list of element-wise applications over inputs that broadcast to one shape. Its kernel
loads each input once, calls the operators' helpers (`ops/pointwise.py`) on blocks, and stores the
outputs; f16 and bf16 are computed in f32. A group after a matrix product becomes an epilogue: a
helper that `matmul_kernel` calls on its finished block.

    group = Group((Step("add", (Input(0), Input(1))), Step("gelu", (Result(0),))), outputs=(1,))
    print(kernel_text(group, ...))
    plan = plan_group(group, input_views, output_views, target)

The text has a place in `linecache`, so that diagnostics and `isthmus inspect` can show it.
"""

from __future__ import annotations

import hashlib
import linecache
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.dtypes import DType
from isthmus.core.errors import InternalError
from isthmus.jit.decorator import jit
from isthmus.ops import pointwise
from isthmus.ops.rules import ACCUMULATE, round_to
from isthmus.ops.schedule import ceil_div, collapse, divide, language_type, next_power_of_2
from isthmus.ops.standard import (
    Cost,
    Launch,
    Plan,
    Slot,
    TensorSpec,
    View,
    complete_attrs,
    operator,
)

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__ = [
    "Group", "Input", "Literal", "Operand", "Result", "Step", "epilogue_access",
    "epilogue_function", "group_cost", "group_of", "kernel_text", "plan_group", "plan_pointwise",
]  # fmt: skip

#: Elements that a program works on where there are enough of them.
ELEMENTS = 32768
#: Fewest elements worth a program of their own.
FEWEST = 2048
#: Longest line of a block of rows and columns.
MAX_COLUMNS = 4096
#: Side of a square block where an input is walked across its memory.
ACROSS = 64


@dataclass(frozen=True, slots=True)
class Input:
    """Tensor number `index` of the group's inputs."""

    index: int


@dataclass(frozen=True, slots=True)
class Result:
    """What step number `index` gave."""

    index: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A number known while compiling."""

    value: float | int | bool
    dtype: DType


Operand = Input | Result | Literal


@dataclass(frozen=True, slots=True)
class Step:
    """One application of an element-wise operator; attrs as pairs of name and value."""

    op: str
    operands: tuple[Operand, ...]
    attrs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Element-wise applications in order; outputs: the steps whose results are kept.

    An output that names an input instead of a step stores that input as it is (epilogues).
    """

    steps: tuple[Step, ...]
    outputs: tuple[Operand, ...]

    @property
    def name(self) -> str:
        names = [step.op for step in self.steps]
        if len(names) > 5:
            names = [*names[:4], f"{len(names) - 4}_more"]
        return "_".join(names)

    @property
    def input_count(self) -> int:
        operands = [operand for step in self.steps for operand in step.operands]
        indices = [o.index for o in (*operands, *self.outputs) if isinstance(o, Input)]
        return max(indices, default=-1) + 1


def group_of(op: str, count: int, attrs: Mapping[str, Any]) -> Group:
    """A single operator as a group."""
    step = Step(op, tuple(Input(index) for index in range(count)), frozen_attrs(op, attrs))
    return Group((step,), (Result(0),))


def frozen_attrs(op: str, attrs: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The attributes that the helper of `op` takes, as pairs."""
    record = operator(op)
    complete = complete_attrs(record, attrs)
    return tuple((name, _plain(complete[name])) for name in record.pointwise_attrs)


def _plain(value: Any) -> Any:
    if isinstance(value, DType):
        return value.name
    return tuple(value) if isinstance(value, list) else value


# ---------------------------------------------------------------- dtypes and text


def step_dtypes(group: Group, inputs: Sequence[DType]) -> list[DType]:
    """The dtype of every step's result."""
    found: list[DType] = []
    for step in group.steps:
        specs = [TensorSpec((), _operand_dtype(o, inputs, found)) for o in step.operands]
        found.append(operator(step.op).infer(specs, dict(step.attrs))[0].dtype)
    return found


def _operand_dtype(operand: Operand, inputs: Sequence[DType], results: Sequence[DType]) -> DType:
    if isinstance(operand, Input):
        return inputs[operand.index]
    return results[operand.index] if isinstance(operand, Result) else operand.dtype


def _widened(dtype: DType) -> DType:
    """What values of `dtype` are computed in."""
    return ACCUMULATE.get(dtype.name, dtype)


def _literal_text(literal: Literal) -> str:
    """A typed scalar: `tl.full((), 0.5, tl.float32)`."""
    dtype = _widened(literal.dtype)
    if dtype.is_float:
        number = float(literal.value)
        if literal.dtype is not dtype:
            number = float(round_to(np.asarray(number, np.float64), literal.dtype))
        text = repr(number) if math.isfinite(number) else f'float("{number}")'
    else:
        text = repr(bool(literal.value) if dtype.name == "bool" else int(literal.value))
    return f"tl.full((), {text}, {_type_text(dtype)})"


def _type_text(dtype: DType) -> str:
    """The language's name of a dtype: "tl.float32"."""
    wanted = language_type(dtype)
    return next(f"tl.{name}" for name, value in vars(tl).items() if value is wanted)


class _Body:
    """The lines that compute a group, given the names that hold its inputs."""

    def __init__(self, group: Group, dtypes: Sequence[DType], names: Sequence[str]) -> None:
        self.group = group
        self.names = list(names)
        self.results = step_dtypes(group, dtypes)
        self.lines: list[str] = []
        for index, step in enumerate(group.steps):
            arguments = [self.value(operand) for operand in step.operands]
            keywords = [f"{name}={value!r}" for name, value in step.attrs]
            call = f"pointwise.{step.op}({', '.join([*arguments, *keywords])})"
            dtype = self.results[index]
            if step.op == "cast" and _widened(dtype) is not dtype:
                call += f".to({_type_text(_widened(dtype))})"  # rounded, computed wide
            self.lines.append(f"v{index} = {call}")

    def value(self, operand: Operand) -> str:
        if isinstance(operand, Input):
            return self.names[operand.index]
        return f"v{operand.index}" if isinstance(operand, Result) else _literal_text(operand)


def _loaded(pointer: str, mask: str | None, dtype: DType) -> str:
    call = f"tl.load({pointer}, mask={mask})" if mask else f"tl.load({pointer})"
    wide = _widened(dtype)
    return call if wide is dtype else f"{call}.to({_type_text(wide)})"


def _store(pointer: str, value: str, mask: str | None) -> str:
    return f"tl.store({pointer}, {value}, mask={mask})" if mask else f"tl.store({pointer}, {value})"


_MODULE = __name__


@cache
def _function(name: str, text: str) -> Any:
    """The jit function that `text` defines, its source kept where tracebacks look for it."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    file = f"<isthmus fused {name} {digest}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"tl": tl, "pointwise": pointwise, "__name__": _MODULE}
    exec(compile(text, file, "exec"), scope)  # noqa: S102  (our own text, from operator names)
    return jit(scope[name])


# ---------------------------------------------------------------- kernels


@dataclass(frozen=True, slots=True)
class _Walk:
    """How a kernel walks its iteration space.

    sizes: merged dimensions, outermost first. strides: one tuple per tensor (inputs, outputs).
    blocks: block of each of the last two dimensions. outer: outer places per program.
    """

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    blocks: tuple[int, ...]
    outer: int = 1

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def outer_count(self) -> int:
        return math.prod(self.sizes[:-2])

    @property
    def grid(self) -> tuple[int, int, int]:
        if not self.sizes:
            return (1, 1, 1)
        walked = zip(self.sizes[-2:], self.blocks, strict=True)
        along = [ceil_div(size, block) for size, block in walked]
        return (along[-1], along[0] if self.rank > 1 else 1, ceil_div(self.outer_count, self.outer))


def _broadcast_strides(view: View, shape: Sequence[int]) -> list[int]:
    """Strides of `view` walked over `shape`: 0 where it repeats."""
    own = [0 if size == 1 else step for size, step in zip(view.shape, view.strides, strict=True)]
    return [0] * (len(shape) - len(own)) + own


def _walk(inputs: Sequence[View], outputs: Sequence[View], target: TargetDescription) -> _Walk:
    """Merge dimensions and choose blocks."""
    shape = outputs[0].shape
    tensors = [_broadcast_strides(view, shape) for view in (*inputs, *outputs)]
    sizes, merged = collapse(shape, tensors)
    strides = tuple(tuple(steps) for steps in merged)
    if not sizes:
        return _Walk((), strides, ())
    exact = target.any_block_size
    total = math.prod(sizes)
    wanted = max(FEWEST, min(ELEMENTS, ceil_div(total, 4 * target.cores)))

    def fit(size: int, limit: int, multiple: int) -> int:
        if exact:
            return _even_block(size, max(limit, 1), multiple)
        return min(next_power_of_2(size), 1 << (max(limit, 1).bit_length() - 1))

    lanes = target.lanes(32)
    if len(sizes) == 1:
        return _Walk(tuple(sizes), strides, (fit(sizes[0], wanted, 4 * lanes),))
    rows, columns = sizes[-2:]
    across = any(0 < abs(steps[-2]) < abs(steps[-1]) for steps in strides)
    block_columns = fit(columns, ACROSS if across else MAX_COLUMNS, lanes)
    block_rows = fit(rows, ACROSS if across else max(1, wanted // block_columns), 1)
    outer = 1
    if block_rows >= rows and block_columns >= columns:
        outer = max(1, min(wanted // (rows * columns), math.prod(sizes[:-2])))
    return _Walk(tuple(sizes), strides, (block_rows, block_columns), outer)


def _even_block(size: int, limit: int, multiple: int) -> int:
    """A block of at most `limit` that divides `size` where there is a large one; else an even
    split."""
    if size <= limit:
        return size
    for block in range(limit - limit % multiple, limit // 2, -multiple):
        if size % block == 0:
            return block
    return divide(size, limit, multiple)


def _dimension_text(stride: int, index: str, symbol: str) -> str | None:
    if stride == 0:
        return None
    return index if stride == 1 else f"{index} * {symbol}"


class _KernelText:
    """The source of one kernel; constexpr parameters and their values on the side."""

    def __init__(self, group: Group, dtypes: Sequence[DType], walk: _Walk) -> None:
        self.group = group
        self.walk = walk
        self.meta: dict[str, int] = {}
        count = len(dtypes)
        self.pointers = [
            *(f"x{index}_ptr" for index in range(count)),
            *(f"out{index}_ptr" for index in range(len(group.outputs))),
        ]
        body = _Body(group, dtypes, [f"x{index}" for index in range(count)])
        lines: list[str] = []
        self._index_lines(lines)
        inner: list[str] = []
        bases = self._base_lines(inner)
        for index, dtype in enumerate(dtypes):
            pointer, mask = self._pointer(index, bases)
            inner.append(f"x{index} = {_loaded(pointer, mask, dtype)}")
        inner += body.lines
        for index, operand in enumerate(group.outputs):
            pointer, mask = self._pointer(count + index, bases, full=True)
            inner.append(_store(pointer, body.value(operand), mask))
        if walk.outer > 1:
            lines.append("for outer in range(first, min(first + OUTER, OUTER_COUNT)):")
            lines += [f"    {line}" for line in inner]
        else:
            lines += inner
        self.name = f"fused_{group.name}" if len(group.steps) > 1 else f"{group.name}_kernel"
        meta = [f"{name}: tl.constexpr" for name in self.meta]
        parameters = [*_wrapped(self.pointers), *_wrapped(meta)]
        head = f"def {self.name}(\n" + "".join(f"    {line},\n" for line in parameters)
        self.text = head + "):\n" + "".join(f"    {line}\n" for line in lines)

    def _constant(self, name: str, value: int) -> str:
        self.meta[name] = value
        return name

    def _masked(self, axis: int) -> bool:
        """Whether the block of the last-but-`axis` dimension does not divide it."""
        return self.walk.sizes[-1 - axis] % self.walk.blocks[-1 - axis] != 0

    def _index_lines(self, lines: list[str]) -> None:
        walk = self.walk
        self.masks: dict[str, str | None] = {}
        if not walk.rank:
            return
        if walk.rank == 1:
            self._constant("BLOCK", walk.blocks[0])
            lines.append("places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
            if self._masked(0):
                self._constant("SIZE", walk.sizes[0])
                lines.append("mask = places < SIZE")
            return
        self._constant("BLOCK_R", walk.blocks[0])
        self._constant("BLOCK_C", walk.blocks[1])
        lines.append(
            "rows = (tl.program_id(1).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R))[:, None]"
        )
        lines.append(
            "columns = (tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]"
        )
        if self._masked(1):
            self._constant("ROWS", walk.sizes[-2])
            lines.append("row_mask = rows < ROWS")
        if self._masked(0):
            self._constant("COLUMNS", walk.sizes[-1])
            lines.append("column_mask = columns < COLUMNS")
        if self._masked(0) and self._masked(1):
            lines.append("mask = row_mask & column_mask")
        if walk.rank > 2:
            if walk.outer > 1:
                self._constant("OUTER", walk.outer)
                self._constant("OUTER_COUNT", walk.outer_count)
                lines.append("first = tl.program_id(2).to(tl.int64) * OUTER")
            else:
                lines.append("outer = tl.program_id(2).to(tl.int64)")

    def _base_lines(self, lines: list[str]) -> list[str | None]:
        """Where each tensor starts for one outer place."""
        walk = self.walk
        if walk.rank <= 2:
            return [None] * len(walk.strides)
        axes = walk.rank - 2
        parts: list[str] = []
        for axis in range(axes):
            inner = [f"SIZE_{later}" for later in range(axis + 1, axes)]
            divisor = " * ".join(inner) if len(inner) < 2 else f"({' * '.join(inner)})"
            text = f"outer // {divisor}" if inner else "outer"
            if axis:
                text += f" % {self._constant(f'SIZE_{axis}', walk.sizes[axis])}"
            parts.append(text)
        for axis, text in enumerate(parts):
            lines.append(f"place_{axis} = {text}")
        found: list[str | None] = []
        for tensor, strides in enumerate(walk.strides):
            terms = []
            for axis in range(axes):
                symbol = f"{self._short(tensor)}_{axis}"
                term = _dimension_text(strides[axis], f"place_{axis}", symbol)
                if term and strides[axis] != 1:
                    self._constant(symbol, strides[axis])
                if term:
                    terms.append(term)
            found.append(" + ".join(terms) or None)
        return found

    def _short(self, tensor: int) -> str:
        return self.pointers[tensor].removesuffix("_ptr").upper()

    def _pointer(
        self, tensor: int, bases: Sequence[str | None], *, full: bool = False
    ) -> tuple[str, str | None]:
        """The pointer block of a tensor and its mask."""
        walk = self.walk
        strides = walk.strides[tensor]
        terms = [self.pointers[tensor]]
        base = bases[tensor]
        if base:
            terms.append(base)
        if walk.rank == 1:
            term = self._term(tensor, strides[0], "places", "STRIDE")
            if term:
                terms.append(term)
            return " + ".join(terms), "mask" if term and self._masked(0) else None
        if walk.rank == 0:
            return terms[0], None
        row = self._term(tensor, strides[-2], "rows", "ROW")
        column = self._term(tensor, strides[-1], "columns", "COLUMN")
        terms += [term for term in (row, column) if term]
        rows_masked = bool(row) and self._masked(1)
        columns_masked = bool(column) and self._masked(0)
        mask = (
            "mask" if rows_masked and columns_masked
            else "row_mask" if rows_masked else "column_mask" if columns_masked else None
        )  # fmt: skip
        return " + ".join(terms), mask

    def _term(self, tensor: int, stride: int, index: str, kind: str) -> str | None:
        symbol = f"{self._short(tensor)}_{kind}"
        text = _dimension_text(stride, index, symbol)
        if text and stride != 1:
            self._constant(symbol, stride)
        return text


def _wrapped(names: Sequence[str], each: int = 5) -> list[str]:
    """Names joined by commas, a few on a line."""
    return [", ".join(names[place : place + each]) for place in range(0, len(names), each)]


def kernel_text(
    group: Group, inputs: Sequence[View], outputs: Sequence[View], target: TargetDescription
) -> str:
    """The source of the kernel that `plan_group` launches."""
    return _made(group, inputs, outputs, target).text


def _made(
    group: Group, inputs: Sequence[View], outputs: Sequence[View], target: TargetDescription
) -> _KernelText:
    walk = _walk(inputs, outputs, target)
    return _KernelText(group, [view.dtype for view in inputs], walk)


def plan_group(
    group: Group, inputs: Sequence[View], outputs: Sequence[View], target: TargetDescription
) -> Plan:
    """One launch that computes the group. All outputs have one shape, in row-major order."""
    if any(view.shape != outputs[0].shape for view in outputs):
        raise InternalError(f"outputs of the group {group.name} differ in shape")
    if outputs[0].size == 0:
        return Plan(())
    made = _made(group, inputs, outputs, target)
    args: dict[str, Any] = {}
    for index in range(len(inputs)):
        args[f"x{index}_ptr"] = Slot("input", index)
    for index in range(len(outputs)):
        args[f"out{index}_ptr"] = Slot("output", index)
    args.update(made.meta)
    return Plan((Launch(_function(made.name, made.text), args, made.walk.grid),))


def plan_pointwise(
    op: str, inputs: Sequence[View], outputs: Sequence[View], attrs: Mapping[str, Any],
    target: TargetDescription,
) -> Plan:  # fmt: skip
    """The plan of a single element-wise operator."""
    return plan_group(group_of(op, len(inputs), attrs), inputs, outputs, target)


def group_cost(group: Group, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Cost:
    """Arithmetic of all steps; every input read once and every output written once."""
    dtypes = step_dtypes(group, [spec.dtype for spec in inputs])
    shape = outputs[0].shape if outputs else ()
    flops = 0
    for step, dtype in zip(group.steps, dtypes, strict=True):
        spec = TensorSpec(shape, dtype)
        cost = operator(step.op).cost([spec] * len(step.operands), [spec], dict(step.attrs))
        flops += cost.flops
    return Cost(flops, sum(spec.size_bytes for spec in (*inputs, *outputs)))


# ---------------------------------------------------------------- epilogues of products

#: How an epilogue reads an input: the element's own place, its column, its row, or one number.
_ACCESS = {"full": "offsets", "row": "columns", "column": "rows", "scalar": None}


def epilogue_access(view: View, shape: Sequence[int]) -> str | None:
    """How an epilogue over `shape` [.., M, N] can read `view`; None: not at all."""
    strides = _broadcast_strides(view, shape)
    walked = [(size, step) for size, step in zip(shape, strides, strict=True) if size > 1]
    if not any(step for _, step in walked):
        return "scalar"
    if View(tuple(shape), view.dtype, tuple(strides)).is_contiguous:
        return "full"
    if strides[-1] == 1 and not any(strides[:-1]):
        return "row"
    return None


def epilogue_function(
    group: Group, dtypes: Sequence[DType], access: Sequence[str], stored: Sequence[int]
) -> Callable[..., Any]:
    """A helper for the EPILOGUE hook of `matmul_kernel`.

    Input 0 of the group is the product; inputs 1 on are read through the extra pointers in
    order, `access` saying how. Output 0 of the group is given back; `stored` lists the outputs
    that the helper itself stores, through the extra pointers after those of the inputs.
    """
    lines: list[str] = []
    names = ["acc"]
    for index, (dtype, how) in enumerate(zip(dtypes[1:], access, strict=True)):
        place = _ACCESS[how]
        mask = "mask" if how != "scalar" else None
        pointer = f"extra{index}_ptr" + (f" + {place}" if place else "")
        lines.append(f"x{index + 1} = {_loaded(pointer, mask, dtype)}")
        names.append(f"x{index + 1}")
    body = _Body(group, dtypes, names)
    lines += body.lines
    for position, output in enumerate(stored):
        pointer = f"extra{len(access) + position}_ptr + offsets"
        lines.append(_store(pointer, body.value(group.outputs[output]), "mask"))
    lines.append(f"return {body.value(group.outputs[0])}")
    name = f"epilogue_{group.name}"
    parameters = "acc, offsets, rows, columns, mask, extra0_ptr, extra1_ptr, extra2_ptr, extra3_ptr"
    text = f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in lines)
    return _function(name, text)
