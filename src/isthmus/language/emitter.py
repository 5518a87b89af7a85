"""What the operators of the language mean: promotion, casts, broadcasting, arithmetic.

The `Emitter` turns operations on language values into IR. Scalars stay scalars until they meet
a block, so that `pid * BLOCK + tl.arange(0, BLOCK)` is one splat and one addition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from isthmus.core.errors import InternalError, KernelError
from isthmus.core.location import Location
from isthmus.ir.builder import Builder
from isthmus.ir.core import Region, Value
from isthmus.ir.types import TileType, Type
from isthmus.language.diagnostics import MISTAKES
from isthmus.language.types import (
    dtype,
    float32,
    int1,
    int8,
    int32,
    int64,
    literal_dtype,
    pointer_type,
    promote,
    promote_literal,
    uint8,
    uint64,
)
from isthmus.language.values import Tensor, unwrap

__all__ = ["MAX_BLOCK_ELEMENTS", "Emitter", "describe", "wrap"]

#: Elements that one block may have.
MAX_BLOCK_ELEMENTS = 1 << 20

#: operator -> operation for signed integers, unsigned integers, floats.
_ARITHMETIC = {
    "+": ("arith.addi", "arith.addi", "arith.addf"),
    "-": ("arith.subi", "arith.subi", "arith.subf"),
    "*": ("arith.muli", "arith.muli", "arith.mulf"),
    "//": ("arith.divsi", "arith.divui", None),
    "%": ("arith.remsi", "arith.remui", "arith.remf"),
    "&": ("arith.andi", "arith.andi", None),
    "|": ("arith.ori", "arith.ori", None),
    "^": ("arith.xori", "arith.xori", None),
    "<<": ("arith.shli", "arith.shli", None),
    ">>": ("arith.shrsi", "arith.shrui", None),
    "minimum": ("arith.minsi", "arith.minui", "arith.minnumf"),
    "maximum": ("arith.maxsi", "arith.maxui", "arith.maxnumf"),
    "minimum, NaN kept": ("arith.minsi", "arith.minui", "arith.minimumf"),
    "maximum, NaN kept": ("arith.maxsi", "arith.maxui", "arith.maximumf"),
}
_PREDICATES = {
    "==": ("eq", "eq", "oeq"),
    "!=": ("ne", "ne", "une"),
    "<": ("slt", "ult", "olt"),
    "<=": ("sle", "ule", "ole"),
    ">": ("sgt", "ugt", "ogt"),
    ">=": ("sge", "uge", "oge"),
}
_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


class Emitter:
    """Builds IR for operations on language values, at the place of the syntax node in hand."""

    def __init__(self, builder: Builder, options: dict[str, Any]) -> None:
        self.builder = builder
        self.allow_any_block_size = bool(options.get("allow_any_block_size"))
        self.debug = bool(options.get("debug"))
        self.target = options.get("target")
        #: Calls a helper kernel or builtin; the front end fills it in.
        self.call: Callable[..., Any] = _no_calls
        self._constants: list[dict[tuple[Type, Any], Value]] = [{}]

    # Diagnostics

    def location(self) -> Location | None:
        return self.builder.location

    def fail(self, code: str, message: str, hint: str | None = None) -> NoReturn:
        """Raise the KernelError for what is being built."""
        raise KernelError(
            message, location=self.location(), hint=hint or MISTAKES[code].hint, code=code
        )

    # Constants and IR values

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """A region that uses nothing from outside, constants included."""
        saved, self._constants = self._constants, [{}]
        try:
            yield
        finally:
            self._constants = saved

    @contextmanager
    def region(self, region: Region) -> Iterator[None]:
        """Build inside `region`; constants made there are not used after it."""
        self._constants.append({})
        try:
            with self.builder.at(region):
                yield
        finally:
            self._constants.pop()

    def constant_value(self, number: float, type_: Type) -> Value:
        """One IR constant per number, type and region."""
        key = (type_, number if number == number and number != 0 else repr(number))
        for known in self._constants:
            if key in known:
                return known[key]
        value = self.builder.constant(number, type_)
        self._constants[-1][key] = value
        return value

    def value(self, tensor: Tensor) -> Value:
        """The IR value of a block or scalar."""
        if tensor.value is not None:
            return tensor.value
        assert tensor.constant is not None, "a tensor has an IR value or a number"
        return self.constant_value(tensor.constant, tensor.ir_type)

    def literal(self, number: float, to: Any) -> Tensor:
        """A number as a scalar of dtype `to`, refused where an integer does not fit."""
        if isinstance(to, pointer_type):
            self.fail("K303", f"the number {number!r} does not convert to {to}")
        if to.is_int():
            if number != number or number in (float("inf"), float("-inf")):
                self.fail("K302", f"{number} has no value in {to}", "use a float dtype")
            if isinstance(number, float) and number != int(number):
                self.fail(
                    "K302", f"{number} is not a whole number, as {to} needs",
                    "use a float dtype, or int() to truncate",
                )  # fmt: skip
            whole = int(number)
            low, high = to.limits
            if not low <= whole <= high:
                if whole < 0 and to.is_int_unsigned():
                    self.fail(
                        "K302", f"the negative number {whole} meets {to}",
                        "cast one side: x.to(tl.int64)",
                    )  # fmt: skip
                self.fail(
                    "K302", f"{whole} does not fit {to}, which holds {low} to {high}",
                    "cast the other operand to a wider dtype: x.to(tl.int64)",
                )  # fmt: skip
            if whole > 1 and whole >> (to.primitive_bitwidth - 1):
                whole -= 1 << to.primitive_bitwidth  # IR integers carry no sign
            return Tensor(None, to, (), whole)
        return Tensor(None, to, (), float(number))

    def tensor(self, value: Any) -> Tensor:
        """A run-time value from itself or from a number, which takes its own dtype."""
        value = unwrap(value)
        if isinstance(value, Tensor):
            return value
        if not isinstance(value, (bool, int, float)):
            self.fail(
                "K309", f"expected a number or a block, got {describe(value)}",
                "only numbers and values made by tl functions take part here",
            )  # fmt: skip
        own = literal_dtype(value)
        if own is None:
            self.fail("K302", f"{value} does not fit 64 bits")
        return self.literal(value, own)

    def make(self, name: str, *operands: Tensor, like: Tensor, **attrs: Any) -> Tensor:
        """One operation whose result has the dtype and shape of `like`."""
        values = [self.value(operand) for operand in operands]
        return Tensor(self.builder.emit(name, *values, **attrs), like.dtype, like.shape)

    # Shapes

    def block_shape(self, sizes: Sequence[Any], what: str = "a block") -> tuple[int, ...]:
        """The shape of a new block, checked: compile-time, positive, powers of two, not huge."""
        shape: list[int] = []
        total = 1
        for size in sizes:
            number = self.static_int(size, f"the size of {what}")
            if number < 1:
                self.fail("K401", f"the size of {what} is {number}; it must be at least 1")
            if number & (number - 1) and not self.allow_any_block_size:
                self.fail(
                    "K401", f"the size of {what} is {number}, which is not a power of two",
                    f"round up to {1 << number.bit_length()} and mask the rest",
                )  # fmt: skip
            shape.append(number)
            total *= number
        if total > MAX_BLOCK_ELEMENTS:
            self.fail(
                "K402", f"{what} of shape {shape} has {total} elements; the most is "
                f"{MAX_BLOCK_ELEMENTS}", "use smaller blocks and a loop",
            )  # fmt: skip
        return tuple(shape)

    def static_int(self, value: Any, what: str) -> int:
        """A compile-time whole number."""
        value = unwrap(value)
        if isinstance(value, Tensor):
            self.fail(
                "K204", f"{what} must be known at compile time; here it is {describe(value)}, "
                "known at run time only",
                "make it a tl.constexpr parameter, or annotate the local: `N: tl.constexpr = ...`",
            )  # fmt: skip
        if not isinstance(value, int):
            self.fail("K204", f"{what} must be a whole number, got {describe(value)}")
        return int(value)

    def axis(self, axis: Any, rank: int) -> int:
        """A dimension number within a rank; negative ones count from the end."""
        number = self.static_int(axis, "the axis")
        if not -rank <= number < rank:
            self.fail("K404", f"axis {number} is outside the {rank} dimensions of the block")
        return number % rank

    def splat(self, scalar: Tensor, shape: tuple[int, ...]) -> Tensor:
        if not shape:
            return scalar
        type_ = TileType(shape, scalar.dtype.ir)
        if scalar.constant is not None:
            return Tensor(self.constant_value(scalar.constant, type_), scalar.dtype, shape)
        value = self.builder.emit("tile.splat", self.value(scalar), type=type_)
        return Tensor(value, scalar.dtype, shape)

    def expand_dims(self, block: Tensor, axis: int) -> Tensor:
        shape = (*block.shape[:axis], 1, *block.shape[axis:])
        if not block.shape:
            return self.splat(block, shape)
        value = self.builder.emit("tile.expand_dims", self.value(block), axis=axis)
        return Tensor(value, block.dtype, shape)

    def broadcast_to(self, block: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Repeat along dimensions of size 1; missing dimensions are added in front."""
        if block.shape == shape:
            return block
        if not block.shape:
            return self.splat(block, shape)
        while len(block.shape) < len(shape):
            block = self.expand_dims(block, 0)
        if block.shape == shape:
            return block
        if len(block.shape) != len(shape) or any(
            mine not in (1, wanted) for mine, wanted in zip(block.shape, shape, strict=True)
        ):
            self.fail(
                "K403", f"a block of shape {list(block.shape)} does not grow to {list(shape)}",
                "only dimensions of size 1 are repeated; add them with x[:, None]",
            )  # fmt: skip
        type_ = TileType(shape, block.dtype.ir)
        value = self.builder.emit("tile.broadcast", self.value(block), type=type_)
        return Tensor(value, block.dtype, shape)

    def common_shape(self, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        result = shapes[0]
        for shape in shapes[1:]:
            if shape == result or not shape:
                continue
            rank = max(len(shape), len(result))
            left, right = (1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + shape
            if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
                self.fail(
                    "K403", f"shapes {list(result)} and {list(shape)} do not fit each other",
                    "sizes must be equal or 1; add dimensions with x[:, None] or x[None, :]",
                )  # fmt: skip
            result = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
        return result

    def broadcast(self, *tensors: Tensor) -> list[Tensor]:
        shape = self.common_shape(*(tensor.shape for tensor in tensors))
        return [self.broadcast_to(tensor, shape) for tensor in tensors]

    # Casts

    def cast(self, tensor: Tensor, to: Any, rounding: str | None = None) -> Tensor:
        """Convert values. Floats to integers truncate and saturate; floats narrow to even."""
        source = tensor.dtype
        if source == to:
            return tensor
        if isinstance(source, pointer_type) or isinstance(to, pointer_type):
            return self._cast_pointer(tensor, to)
        if to.is_bool():
            return self.compare("!=", tensor, self.literal(0, source))
        if tensor.constant is not None and not (source.is_floating() and to.is_int()):
            return self._cast_constant(tensor, to)
        type_ = TileType(tensor.shape, to.ir) if tensor.shape else to.ir
        attrs: dict[str, Any] = {}
        if source.is_floating():
            if to.is_int():
                name = "arith.fptosi" if to.is_int_signed() else "arith.fptoui"
            elif source.primitive_bitwidth < to.primitive_bitwidth:
                name = "arith.extf"
            else:
                name = "arith.truncf"
                if rounding == "rtz":
                    attrs["rounding"] = "rtz"
        elif to.is_floating():
            name = "arith.sitofp" if source.is_int_signed() else "arith.uitofp"
        elif source.primitive_bitwidth == to.primitive_bitwidth:
            return Tensor(tensor.value, to, tensor.shape, tensor.constant)
        elif source.primitive_bitwidth > to.primitive_bitwidth:
            name = "arith.trunci"
        else:
            name = "arith.extsi" if source.is_int_signed() else "arith.extui"
        value = self.builder.emit(name, self.value(tensor), type=type_, **attrs)
        return Tensor(value, to, tensor.shape)

    def _cast_constant(self, tensor: Tensor, to: dtype) -> Tensor:
        number: Any = tensor.constant
        source = tensor.dtype
        if source.is_floating():
            if source.primitive_bitwidth > to.primitive_bitwidth or source.primitive_bitwidth < 32:
                return self._cast_run_time(tensor, to)
            return Tensor(None, to, (), number)
        if not source.is_int_signed():
            number %= 1 << source.primitive_bitwidth
        if to.is_floating():
            if abs(number) >> (to.fp_mantissa_width + 1):
                return self._cast_run_time(tensor, to)
            return Tensor(None, to, (), float(number))
        return Tensor(None, to, (), wrap(number, to))

    def _cast_run_time(self, tensor: Tensor, to: dtype) -> Tensor:
        return self.cast(Tensor(self.value(tensor), tensor.dtype), to)

    def _cast_pointer(self, tensor: Tensor, to: Any) -> Tensor:
        source = tensor.dtype
        if isinstance(source, pointer_type) and not isinstance(to, pointer_type):
            if to.is_bool():
                address = self.cast(tensor, int64)
                return self.compare("!=", address, self.literal(0, int64))
            if not to.is_int() or to.primitive_bitwidth != 64:
                self.fail("K303", f"{source} converts to 64-bit integers only, not to {to}")
        elif not isinstance(source, pointer_type):
            if not source.is_int():
                self.fail("K303", f"{source} does not convert to {to}", "pointers are integers")
            tensor = self.cast(tensor, int64)
        type_ = TileType(tensor.shape, to.ir) if tensor.shape else to.ir
        if tensor.ir_type is type_:
            return Tensor(tensor.value, to, tensor.shape, tensor.constant)
        value = self.builder.emit("ptr.cast", self.value(tensor), type=type_)
        return Tensor(value, to, tensor.shape)

    def bitcast(self, tensor: Tensor, to: Any) -> Tensor:
        """The same bits as another dtype of the same width."""
        if isinstance(tensor.dtype, pointer_type) or isinstance(to, pointer_type):
            return self.cast(tensor, to)
        if tensor.dtype.primitive_bitwidth != to.primitive_bitwidth:
            self.fail(
                "K303", f"a bitcast keeps the width; {tensor.dtype} has "
                f"{tensor.dtype.primitive_bitwidth} bits and {to} {to.primitive_bitwidth}",
                "x.to(dtype) converts values",
            )  # fmt: skip
        if tensor.dtype.ir is to.ir:
            return Tensor(tensor.value, to, tensor.shape, tensor.constant)
        type_ = TileType(tensor.shape, to.ir) if tensor.shape else to.ir
        value = self.builder.emit("arith.bitcast", self.value(tensor), type=type_)
        return Tensor(value, to, tensor.shape)

    def truth(self, value: Any) -> Tensor:
        """A run-time truth value: what is not zero."""
        return self.cast(self.tensor(value), int1)

    # Binary operators

    def unify(self, left: Any, right: Any, *, division: bool = False) -> tuple[Tensor, Tensor]:
        """Two operands in one dtype (not yet of one shape); numbers are weak."""
        if _is_pointer(left) or _is_pointer(right):
            if not _is_pointer(left) or not _is_pointer(right) or left.dtype != right.dtype:
                self.fail(
                    "K301", f"{describe(left)} and {describe(right)} do not combine",
                    "pointers take + and - with integers, and comparisons",
                )  # fmt: skip
            return left, right
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            left = self.tensor(left)
        if isinstance(left, Tensor) and isinstance(right, Tensor):
            common = promote(left.dtype, right.dtype, division=division)
        elif isinstance(left, Tensor):
            common = promote_literal(self.tensor(right).dtype, left.dtype, division=division)
        else:
            common = promote_literal(self.tensor(left).dtype, right.dtype, division=division)
        if common is None:
            self.fail(
                "K308" if division else "K301",
                f"{describe(left)} and {describe(right)} do not combine"
                + (" in a division: their signs differ" if division else ""),
                "cast one side to the dtype of the other",
            )
        a, b = (
            self.cast(side, common) if isinstance(side, Tensor) else self.literal(side, common)
            for side in (left, right)
        )
        return a, b

    def binary(self, operator: str, left: Any, right: Any) -> Tensor:
        """left OPERATOR right, at least one of them a run-time value."""
        left, right = unwrap(left), unwrap(right)
        if _is_pointer(left) or _is_pointer(right):
            return self._pointer_arithmetic(operator, left, right)
        if operator == "/":
            return self.divide(left, right)
        signed_shift = not isinstance(left, Tensor) or left.dtype.is_int_signed()
        a, b = self.unify(left, right, division=operator in ("%", "//"))
        element = a.dtype
        signed, unsigned, floating = _ARITHMETIC[operator]
        if element.is_floating():
            name = floating
        elif operator == ">>":
            name = signed if signed_shift else unsigned
        else:
            name = signed if element.is_int_signed() else unsigned
        if name is None:
            self.fail(
                "K301", f"{operator} needs integers, got {describe(left)} and {describe(right)}",
                "for floats write tl.floor(x / y)" if operator == "//"
                else "for the bits of a float write x.to(tl.int32, bitcast=True)",
            )  # fmt: skip
        known = a.constant is not None and b.constant is not None and element.is_int()
        if known and operator in _FOLD:
            number = _FOLD[operator](a.constant, b.constant)
            return Tensor(None, element, (), wrap(number, element))
        a, b = self.broadcast(a, b)
        return self.make(name, a, b, like=a)

    def divide(self, left: Any, right: Any) -> Tensor:
        """True division: integers divide in f32, and so do f16 and bf16."""
        a, b = self.unify(left, right, division=True)
        if a.dtype.is_int():
            a, b = self.cast(a, float32), self.cast(b, float32)
        a, b = self.broadcast(a, b)
        return self.make("arith.divf", a, b, like=a)

    def _pointer_arithmetic(self, operator: str, left: Any, right: Any) -> Tensor:
        if operator == "+" and _is_pointer(right) and not _is_pointer(left):
            left, right = right, left
        offset = self.tensor(right)
        if operator not in ("+", "-") or _is_pointer(offset) or not offset.dtype.is_int():
            self.fail(
                "K301", f"{operator} does not take {describe(left)} and {describe(right)}",
                "pointers take + and - with integers, and comparisons",
            )  # fmt: skip
        if offset.dtype.is_int_unsigned() and offset.dtype.primitive_bitwidth < 64:
            offset = self.cast(offset, int64)
        if operator == "-":
            offset = self.negate(offset)
        if offset.constant == 0:
            return left
        pointer, offset = self.broadcast(left, offset)
        return self.make("ptr.add", pointer, offset, like=pointer)

    def compare(self, operator: str, left: Any, right: Any) -> Tensor:
        """left OPERATOR right as truth values; comparisons with NaN are false, but for !=."""
        left, right = unwrap(left), unwrap(right)
        if _is_pointer(left) or _is_pointer(right):
            a, b = (
                self.cast(side, uint64) if _is_pointer(side) else self.literal(side, uint64)
                for side in (left, right)
            )
        else:
            a, b = self.unify(left, right)
        a, b = self.broadcast(a, b)
        signed, unsigned, floating = _PREDICATES[operator]
        if a.dtype.is_floating():
            name, predicate = "arith.cmpf", floating
        else:
            name, predicate = "arith.cmpi", signed if a.dtype.is_int_signed() else unsigned
        value = self.builder.emit(name, self.value(a), self.value(b), predicate=predicate)
        return Tensor(value, int1, a.shape)

    def select(self, condition: Any, on_true: Any, on_false: Any) -> Tensor:
        """One of two values, lane by lane."""
        chooser = self.truth(condition)
        a, b = self.unify(unwrap(on_true), unwrap(on_false))
        shape = self.common_shape(chooser.shape, a.shape, b.shape)
        a, b = self.broadcast_to(a, shape), self.broadcast_to(b, shape)
        if chooser.shape:
            chooser = self.broadcast_to(chooser, shape)
        return self.make("arith.select", chooser, a, b, like=a)

    # Unary operators

    def negate(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor.dtype, pointer_type):
            self.fail("K301", f"- does not take {tensor.dtype}")
        if tensor.constant is not None and tensor.dtype.is_int():
            return Tensor(None, tensor.dtype, (), wrap(-tensor.constant, tensor.dtype))
        if tensor.dtype.is_floating():
            if tensor.constant is not None:
                return Tensor(None, tensor.dtype, (), -tensor.constant)
            return self.make("arith.negf", tensor, like=tensor)
        zero = self.splat(self.literal(0, tensor.dtype), tensor.shape)
        return self.make("arith.subi", zero, tensor, like=tensor)

    def invert(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor.dtype, pointer_type) or tensor.dtype.is_floating():
            self.fail("K301", f"~ needs integers or truth values, got {tensor.dtype}")
        ones = Tensor(None, tensor.dtype, (), 1 if tensor.dtype.is_bool() else -1)
        return self.make("arith.xori", tensor, self.splat(ones, tensor.shape), like=tensor)

    def logical_not(self, value: Any) -> Tensor:
        return self.invert(self.truth(value))

    # Memory spaces of truth values

    def to_memory(self, tensor: Tensor, element: dtype) -> Tensor:
        """A value as it lies in memory: truth values as bytes."""
        if element.is_bool():
            stored = self.cast(self.cast(tensor, int1), uint8)
            return Tensor(stored.value, int8, stored.shape, stored.constant)
        return self.cast(tensor, element)

    def induction_type(self, bounds: Sequence[Tensor]) -> dtype:
        """The dtype of a loop variable: that of its bounds combined."""
        result: dtype = int32 if bounds[0].dtype.is_bool() else bounds[0].dtype
        for bound in bounds[1:]:
            result = promote(result, bound.dtype) or result
        return result


def _no_calls(*_arguments: Any) -> Any:
    raise InternalError("an emitter without a front end cannot call helpers")


def wrap(number: float, to: dtype) -> int:
    """`number` as the IR holds it in the width of `to`: reduced modulo 2**bits, signed."""
    bits = to.primitive_bitwidth
    whole = int(number) & ((1 << bits) - 1)
    return whole - (1 << bits) if bits > 1 and whole >> (bits - 1) else whole


def describe(value: Any) -> str:
    """A value in a message: run-time values by their type, numbers by value."""
    if isinstance(value, Tensor):
        if value.shape:
            return f"a block {list(value.shape)} of {value.dtype}"
        return f"a scalar of {value.dtype}"
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    if isinstance(value, (dtype, pointer_type)):
        return f"the dtype {value}"
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return f"{type(value).__name__} {name}" if isinstance(name, str) else repr(value)


def _is_pointer(value: Any) -> bool:
    return isinstance(value, Tensor) and isinstance(value.dtype, pointer_type)
