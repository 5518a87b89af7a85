"""Runs tile IR on NumPy arrays: slow, plain, and checked; what compiled code is compared with.

Programs run one after the other, x fastest. Values are arrays of the tile's shape (0-d for
scalars), element-wise operations go by `isthmus.ir.reference`, pointers by `isthmus.ir.memory`.
Sums of a dot are kept in f64 and rounded once; reductions combine from index 0 up. Compiled code
may take another order.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence

import numpy as np

from isthmus.core.errors import InternalError, KernelError
from isthmus.ir.core import Function, Operation, Region, Value
from isthmus.ir.floats import narrow
from isthmus.ir.memory import BadAccess, Memory
from isthmus.ir.numpy_types import numpy_dtype
from isthmus.ir.reference import REFERENCE, constant, evaluate
from isthmus.ir.types import (
    I32,
    I64,
    PointerType,
    ScalarType,
    Type,
    element_type,
    is_float,
    shape_of,
)

__all__ = ["run"]

Array = np.ndarray
#: tile.atomic_rmw kind -> the operation that combines; "xchg" keeps the new value.
_ATOMIC = {
    "add": "arith.addi", "fadd": "arith.addf", "maxs": "arith.maxsi", "mins": "arith.minsi",
    "maxu": "arith.maxui", "minu": "arith.minui", "and": "arith.andi", "or": "arith.ori",
    "xor": "arith.xori",
}  # fmt: skip


def run(
    function: Function,
    args: Sequence[np.ndarray | float],
    grid: tuple[int, int, int] = (1, 1, 1),
    *,
    write: Callable[[str], object] | None = None,
) -> None:
    """Run every program of `grid`; arrays change in place.

    args: one per parameter: a contiguous array for a pointer, else a number.
    write: takes what tile.print prints; by default standard output.
    Raises: KernelError for an access outside an argument or a failed tile.assert; it names the
        kernel, the program, the operation's place and the element. ShapeError for an array that
        is not contiguous.
    """
    if len(args) != len(function.args):
        raise InternalError(f"@{function.name} takes {len(function.args)} arguments: {len(args)}")
    memory = Memory()
    values: dict[Value, Array] = {}
    for number, (parameter, arg) in enumerate(zip(function.args, args, strict=True)):
        name = f"argument {parameter.hint or number}"
        if isinstance(parameter.type, PointerType):
            values[parameter] = np.asarray(memory.add(np.asarray(arg), name), np.int64)
        else:
            values[parameter] = constant(float(arg) if is_float(parameter.type) else int(arg),
                                         _scalar(parameter.type))  # fmt: skip
    for z, y, x in itertools.product(*(range(extent) for extent in reversed(grid))):
        program = _Program(function, memory, (x, y, z), grid, write or sys.stdout.write)
        program.values = dict(values)
        program.region(function.body)


def _scalar(type_: Type) -> ScalarType:
    """The element as a number; a pointer is its address."""
    element = element_type(type_)
    return element if isinstance(element, ScalarType) else I64


class _Program:
    """One program of the grid."""

    def __init__(
        self,
        function: Function,
        memory: Memory,
        ids: tuple[int, int, int],
        grid: tuple[int, int, int],
        write: Callable[[str], object],
    ) -> None:
        self.function = function
        self.memory = memory
        self.ids = ids
        self.grid = grid
        self.write = write
        self.values: dict[Value, Array] = {}

    def fail(self, op: Operation, message: str) -> KernelError:
        return KernelError(
            f"kernel {self.function.name}, program {self.ids}: {op.name}: {message}",
            location=op.location,
            code="K300",
        )

    def region(self, region: Region, args: Sequence[Array] = ()) -> list[Array]:
        """Run the operations; what the terminator is given."""
        self.values.update(zip(region.args, args, strict=False))
        for op in region.ops:
            operands = [self.values[operand] for operand in op.operands]
            if op.name in ("scf.yield", "scf.condition", "func.return"):
                return operands
            results = self.operation(op, operands)
            for value, result in zip(op.results, results, strict=True):
                self.values[value] = np.asarray(result)
        return []

    def operation(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        if op.name in REFERENCE:
            return [evaluate(op.name, operands, _scalar(op.result.type), op.attrs)]
        rule = _RULES.get(op.name)
        if rule is None:
            raise InternalError(f"the interpreter does not know {op.name}")
        try:
            return rule(self, op, operands)
        except BadAccess as bad:
            verb = {"tile.load": "reads", "tile.store": "writes"}.get(op.name, "updates")
            raise self.fail(op, f"it {verb} {bad}") from bad

    # Control flow ----------------------------------------------------------------------------

    def for_loop(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        lower, upper, step = (int(bound) for bound in operands[:3])
        carried = operands[3:]
        if step <= 0:
            raise self.fail(op, f"the step is {step}; it must be above 0")
        for index in range(lower, upper, step):
            start = constant(index, _scalar(op.operands[0].type))
            carried = self.region(op.regions[0], [start, *carried])
        return carried

    def while_loop(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        while True:
            condition, *forwarded = self.region(op.regions[0], operands)
            if not condition:
                return forwarded
            operands = self.region(op.regions[1], forwarded)

    def branch(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        return self.region(op.regions[0 if operands[0] else 1])

    # Memory ----------------------------------------------------------------------------------

    def load(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        pointers, (mask, other) = operands[0], (*operands[1:], None, None)[:2]
        element = _scalar(op.result.type)
        if mask is None:
            return [self.memory.read(pointers, element)]
        result = np.zeros(pointers.shape, numpy_dtype(element)) if other is None else other.copy()
        result[mask] = self.memory.read(pointers[mask], element)
        return [result]

    def store(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        pointers, values, *rest = operands
        mask = rest[0] if rest else np.ones(pointers.shape, bool)
        self.memory.write(pointers[mask], values[mask], _scalar(op.operands[1].type))
        return []

    def atomic_rmw(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        pointers, values, *rest = operands
        element, combine = _scalar(op.result.type), _ATOMIC.get(op.attrs["kind"])
        mask = rest[0] if rest else np.ones(pointers.shape, bool)
        old = np.zeros_like(values)
        for lane in zip(*np.nonzero(np.atleast_1d(mask)), strict=True):
            lane = lane if pointers.ndim else ()
            address, value = np.asarray(pointers[lane]), np.asarray(values[lane])
            before = self.memory.read(address, element)
            after = value if combine is None else evaluate(combine, [before, value], element)
            self.memory.write(address, after, element)
            old[lane] = before
        return [old]

    def atomic_cas(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        pointers, compare, values = operands
        element = _scalar(op.result.type)
        old = np.zeros_like(values)
        for lane in np.ndindex(pointers.shape):
            address = np.asarray(pointers[lane])
            old[lane] = self.memory.read(address, element)
            if old[lane].tobytes() == compare[lane].tobytes():
                self.memory.write(address, np.asarray(values[lane]), element)
        return [old]

    # Combining -------------------------------------------------------------------------------

    def combine(self, op: Operation, left: list[Array], right: list[Array]) -> list[Array]:
        """Combine slices of equal shape, all lanes at once where the region has no branches."""
        if op.attrs["kind"] != "region":
            element = _scalar(op.results[0].type)
            return [evaluate(f"arith.{op.attrs['kind']}", [left[0], right[0]], element)]
        region, shape = op.regions[0], left[0].shape
        if not any(inner.regions for inner in region.ops):
            yielded = self.region(region, [*left, *right])
            return [np.broadcast_to(part, shape) for part in yielded]
        results = [np.empty_like(part) for part in left]
        for lane in np.ndindex(shape):
            scalars = [np.asarray(part[lane]) for part in (*left, *right)]
            for result, part in zip(results, self.region(region, scalars), strict=True):
                result[lane] = part
        return results

    def reduce(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        slices = [_slices(operand, op.attrs["axis"]) for operand in operands]
        running = [parts[0] for parts in slices]
        for index in range(1, len(slices[0])):
            running = self.combine(op, running, [parts[index] for parts in slices])
        return running

    def scan(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        axis = op.attrs["axis"]
        slices = [_slices(operand, axis) for operand in operands]
        places = range(len(slices[0]))
        order = list(reversed(places) if op.attrs.get("reverse") else places)
        running = [parts[order[0]] for parts in slices]
        results = [running]
        for index in order[1:]:
            running = self.combine(op, running, [parts[index] for parts in slices])
            results.append(running)
        if op.attrs.get("reverse"):
            results.reverse()
        return [np.stack(parts, axis) for parts in zip(*results, strict=True)]

    # The rest --------------------------------------------------------------------------------

    def gather(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        source, index = operands
        axis, extent = op.attrs["axis"], source.shape[op.attrs["axis"]]
        bad = (index < 0) | (index >= extent)
        if bad.any():
            raise self.fail(op, f"index {int(index[bad][0])} along an axis of {extent} elements")
        return [np.take_along_axis(source, index.astype(np.int64), axis)]

    def check(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        condition, *mask = operands
        if not np.all(condition | ~mask[0] if mask else condition):
            raise self.fail(op, op.attrs["message"])
        return []

    def print(self, op: Operation, operands: list[Array]) -> Sequence[Array]:
        texts = (str(operand.tolist()) for operand in operands)
        self.write(f"pid {self.ids} {op.attrs['prefix']}{' '.join(texts)}\n")
        return []


def _slices(values: Array, axis: int) -> list[Array]:
    return [np.asarray(part) for part in np.moveaxis(values, axis, 0)]


def _constant(_p: _Program, op: Operation, _x: list[Array]) -> Sequence[Array]:
    type_ = op.result.type
    return [np.full(shape_of(type_), constant(op.attrs["value"], _scalar(type_)))]


def _arange(_p: _Program, op: Operation, _x: list[Array]) -> Sequence[Array]:
    return [np.arange(op.attrs["start"], op.attrs["end"], dtype=np.int32)]


def _pointer_add(_p: _Program, op: Operation, x: list[Array]) -> Sequence[Array]:
    pointer = element_type(op.result.type)
    assert isinstance(pointer, PointerType), "ptr.add gives pointers"
    return [x[0] + x[1].astype(np.int64) * pointer.pointee.size_bytes]


def _dot(_p: _Program, op: Operation, x: list[Array]) -> Sequence[Array]:
    element = _scalar(op.result.type)
    if element.kind == "int":
        return [np.matmul(x[0].astype(np.int32), x[1].astype(np.int32)) + x[2]]
    lhs, rhs, acc = (part.astype(np.float64) for part in x)
    with np.errstate(all="ignore"):
        return [narrow(np.matmul(lhs, rhs) + acc, element)]


def _histogram(_p: _Program, op: Operation, x: list[Array]) -> Sequence[Array]:
    values, bins = evaluate("arith.extui", [x[0]], I64), op.attrs["bins"]
    counted = (values >= 0) & (values < bins) & (x[1] if len(x) > 1 else True)
    return [np.bincount(values[counted], minlength=bins).astype(np.int32)]


Rule = Callable[[_Program, Operation, list[Array]], Sequence[Array]]
_RULES: dict[str, Rule] = {
    "scf.for": _Program.for_loop,
    "scf.while": _Program.while_loop,
    "scf.if": _Program.branch,
    "arith.constant": _constant,
    "ptr.add": _pointer_add,
    "ptr.cast": lambda _p, _op, x: x,
    "tile.program_id": lambda p, op, _x: [constant(p.ids[op.attrs["axis"]], I32)],
    "tile.num_programs": lambda p, op, _x: [constant(p.grid[op.attrs["axis"]], I32)],
    "tile.arange": _arange,
    "tile.splat": lambda _p, op, x: [np.broadcast_to(x[0], shape_of(op.result.type))],
    "tile.broadcast": lambda _p, op, x: [np.broadcast_to(x[0], shape_of(op.result.type))],
    "tile.expand_dims": lambda _p, op, x: [np.expand_dims(x[0], op.attrs["axis"])],
    "tile.reshape": lambda _p, op, x: [np.reshape(x[0], shape_of(op.result.type))],
    "tile.trans": lambda _p, op, x: [np.transpose(x[0], op.attrs["order"])],
    "tile.cat": lambda _p, _op, x: [np.concatenate(x)],
    "tile.join": lambda _p, _op, x: [np.stack(x, axis=-1)],
    "tile.split": lambda _p, _op, x: [x[0][..., 0], x[0][..., 1]],
    "tile.load": _Program.load,
    "tile.store": _Program.store,
    "tile.atomic_rmw": _Program.atomic_rmw,
    "tile.atomic_cas": _Program.atomic_cas,
    "tile.reduce": _Program.reduce,
    "tile.scan": _Program.scan,
    "tile.dot": _dot,
    "tile.gather": _Program.gather,
    "tile.histogram": _histogram,
    "tile.assert": _Program.check,
    "tile.print": _Program.print,
    "tile.barrier": lambda _p, _op, _x: [],
}
