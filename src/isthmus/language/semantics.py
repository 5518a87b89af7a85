"""The meaning of the language's operations: promotion, broadcasting, casts, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.core.errors import KernelError
from isthmus.ir.builder import Builder
from isthmus.ir.core import Value
from isthmus.ir.types import I1, TileType, Type
from isthmus.language.types import (
    bfloat16,
    dtype,
    float16,
    float32,
    float64,
    int1,
    int8,
    int32,
    int64,
    pointer_type,
    promote,
    uint8,
    uint32,
    uint64,
)
from isthmus.language.values import Tensor, unwrap

__all__ = ["Semantics"]

_ARITHMETIC = {
    "+": ("addi", "addi", "addf"), "-": ("subi", "subi", "subf"), "*": ("muli", "muli", "mulf"),
    "//": ("divsi", "divui", None), "%": ("remsi", "remui", "remf"),
    "min": ("minsi", "minui", "minnumf"), "max": ("maxsi", "maxui", "maxnumf"),
}  # fmt: skip
_BITWISE = {"&": "andi", "|": "ori", "^": "xori"}
_COMPARE = {
    "==": ("eq", "eq", "oeq"), "!=": ("ne", "ne", "une"), "<": ("slt", "ult", "olt"),
    "<=": ("sle", "ule", "ole"), ">": ("sgt", "ugt", "ogt"), ">=": ("sge", "uge", "oge"),
}  # fmt: skip


class Semantics:
    """Builds IR for operations on language values.

    `fail(message, hint, code)` raises a KernelError at the place being built; the front end
    keeps `builder.location` up to date.
    """

    def __init__(self, builder: Builder, *, allow_any_block_size: bool = False) -> None:
        self.builder = builder
        self.allow_any_block_size = allow_any_block_size

    def fail(self, message: str, hint: str | None = None, code: str = "K200") -> KernelError:
        return KernelError(message, location=self.builder.location, hint=hint, code=code)

    # Types and constants

    def ir_type(self, element: dtype | pointer_type, shape: Sequence[int]) -> Type:
        return TileType(tuple(shape), element.ir) if shape else element.ir

    def tensor(self, handle: Value, element: dtype | pointer_type, shape: Sequence[int]) -> Tensor:
        return Tensor(handle, element, tuple(shape))

    def emit(self, name: str, *operands: Tensor, like: Tensor, **attrs: Any) -> Tensor:
        """One element-wise operation whose result has the dtype and shape of `like`."""
        handle = self.builder.emit(name, *(operand.handle for operand in operands), **attrs)
        return Tensor(handle, like.dtype, like.shape)

    def constant(self, value: Any, element: dtype, shape: Sequence[int] = ()) -> Tensor:
        """A constant; raises where an integer does not fit the dtype."""
        value = unwrap(value)
        if element.is_int():
            number = int(value)
            bits = element.primitive_bitwidth
            low, high = (
                (-(1 << bits - 1), (1 << bits - 1) - 1) if element.is_int_signed()
                else (0, (1 << bits) - 1)
            )  # fmt: skip
            if not low <= number <= high:
                raise self.fail(
                    f"{number} does not fit {element}, which holds {low} to {high}",
                    hint="use a wider dtype, or cast the other operand",
                    code="K201",
                )
            if number >= 1 << (bits - 1) and bits > 1:
                number -= 1 << bits
            value = number
        handle = self.builder.constant(value, self.ir_type(element, shape))
        return Tensor(handle, element, tuple(shape))

    def literal_type(self, value: Any) -> dtype:
        """The dtype of a Python number by itself."""
        if isinstance(value, bool):
            return int1
        if isinstance(value, int):
            if -(2**31) <= value < 2**31:
                return int32
            if 2**31 <= value < 2**32:
                return uint32
            if -(2**63) <= value < 2**63:
                return int64
            if 2**63 <= value < 2**64:
                return uint64
            raise self.fail(f"{value} does not fit 64 bits", code="K201")
        if isinstance(value, float):
            smallest, largest = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127
            size = abs(value)
            if size == 0.0 or size != size or size == float("inf") or smallest <= size <= largest:
                return float32
            return float64
        raise self.fail(
            f"expected a number or a block, got {type(value).__name__} {value!r}",
            hint="only numbers and values of the language take part in arithmetic",
            code="K202",
        )

    def to_tensor(self, value: Any) -> Tensor:
        """A run-time value from a run-time value or a number."""
        value = unwrap(value)
        if isinstance(value, Tensor):
            return value
        return self.constant(value, self.literal_type(value))

    def scalar_i32(self, value: Any) -> Tensor:
        tensor = self.to_tensor(value)
        return self.cast(tensor, int32) if tensor.dtype is not int32 else tensor

    # Shapes

    def broadcast_to(self, value: Tensor, shape: Sequence[int]) -> Tensor:
        """Grow to `shape`: scalars fill, dimensions of size 1 repeat, leading ones are added."""
        shape = tuple(shape)
        if value.shape == shape:
            return value
        if not value.shape:
            handle = self.builder.splat(value.handle, TileType(shape, value.handle.type))
            return Tensor(handle, value.dtype, shape)
        while len(value.shape) < len(shape):
            value = self.expand_dims(value, 0)
        if len(value.shape) > len(shape) or any(
            have not in (1, want) for have, want in zip(value.shape, shape, strict=True)
        ):
            raise self.fail(
                f"shape {list(value.shape)} does not broadcast to {list(shape)}",
                hint="dimensions must be equal or 1; add them with x[:, None] or x[None, :]",
                code="K203",
            )
        if value.shape == shape:
            return value
        handle = self.builder.emit(
            "tile.broadcast", value.handle, type=self.ir_type(value.dtype, shape)
        )
        return Tensor(handle, value.dtype, shape)

    def expand_dims(self, value: Tensor, axis: int) -> Tensor:
        shape = list(value.shape)
        if not shape:
            return self.broadcast_to(value, (1,))
        axis = axis + len(shape) + 1 if axis < 0 else axis
        if not 0 <= axis <= len(shape):
            raise self.fail(f"axis {axis} is outside 0..{len(shape)}", code="K203")
        shape.insert(axis, 1)
        handle = self.builder.emit("tile.expand_dims", value.handle, axis=axis)
        return Tensor(handle, value.dtype, tuple(shape))

    def common_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        result = []
        for sizes in zip(*padded, strict=True):
            size = max(sizes)
            if any(each not in (1, size) for each in sizes):
                raise self.fail(
                    f"shapes {' and '.join(str(list(s)) for s in shapes)} do not fit together",
                    hint="dimensions must be equal or 1; add them with x[:, None] or x[None, :]",
                    code="K203",
                )
            result.append(size)
        return tuple(result)

    def broadcast(self, *values: Tensor) -> list[Tensor]:
        shape = self.common_shape([value.shape for value in values])
        return [self.broadcast_to(value, shape) for value in values]

    # Casts

    def cast(self, value: Tensor, to: dtype | pointer_type, rounding: str | None = None) -> Tensor:
        """Convert values; floats to integers truncate and saturate, NaN gives 0."""
        source = value.dtype
        if source == to:
            return value
        kind = self.ir_type(to, value.shape)
        make = self.builder.emit
        if isinstance(source, pointer_type) or isinstance(to, pointer_type):
            if isinstance(to, dtype) and to.is_bool():
                address = Tensor(
                    make("ptr.cast", value.handle, type=self.ir_type(int64, value.shape)),
                    int64, value.shape,
                )  # fmt: skip
                return self.compare("!=", address, self.constant(0, int64, value.shape))
            return Tensor(make("ptr.cast", value.handle, type=kind), to, value.shape)
        assert isinstance(to, dtype), f"cast to {to}"
        if source.is_floating() and to.is_floating():
            if source.primitive_bitwidth < to.primitive_bitwidth:
                return Tensor(make("arith.extf", value.handle, type=kind), to, value.shape)
            if source.primitive_bitwidth == to.primitive_bitwidth:  # f16 and bf16, or the f8 kinds
                return self.cast(self.cast(value, float32), to, rounding)
            attrs = {"rounding": "rtz"} if rounding == "rtz" else {}
            return Tensor(make("arith.truncf", value.handle, type=kind, **attrs), to, value.shape)
        if to.is_bool():
            zero = self.constant(0, source, value.shape)
            return self.compare("!=", value, zero)
        if source.is_floating():
            name = "arith.fptosi" if to.is_int_signed() else "arith.fptoui"
            return Tensor(make(name, value.handle, type=kind), to, value.shape)
        if to.is_floating():
            name = "arith.sitofp" if source.is_int_signed() else "arith.uitofp"
            return Tensor(make(name, value.handle, type=kind), to, value.shape)
        before, after = source.primitive_bitwidth, to.primitive_bitwidth
        if before == after:
            return Tensor(value.handle, to, value.shape)
        if before > after:
            name = "arith.trunci"
        else:
            name = "arith.extsi" if source.is_int_signed() else "arith.extui"
        return Tensor(make(name, value.handle, type=kind), to, value.shape)

    def bitcast(self, value: Tensor, to: dtype | pointer_type) -> Tensor:
        if value.dtype.primitive_bitwidth != to.primitive_bitwidth:
            raise self.fail(
                f"a bitcast keeps the width, got {value.dtype} to {to}",
                hint="use x.to(dtype) to convert values",
                code="K204",
            )
        kind = self.ir_type(to, value.shape)
        if kind is value.handle.type:
            return Tensor(value.handle, to, value.shape)
        pointers = isinstance(value.dtype, pointer_type) or isinstance(to, pointer_type)
        name = "ptr.cast" if pointers else "arith.bitcast"
        return Tensor(self.builder.emit(name, value.handle, type=kind), to, value.shape)

    # Binary operations

    def _operand_types(
        self, left: Any, right: Any, operator: str
    ) -> tuple[Tensor, Tensor, dtype]:
        """Both operands in their common dtype (not yet of one shape). Literals are weak."""
        left, right = unwrap(left), unwrap(right)
        division = operator in ("/", "%", "//")
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            left = self.to_tensor(left)
        for literal, other in ((left, right), (right, left)):
            if isinstance(literal, Tensor):
                continue
            assert isinstance(other, Tensor), "one operand is a run-time value"
            own = self.literal_type(literal)
            element = other.dtype
            if isinstance(element, pointer_type):
                raise self.fail(f"{operator} does not take a pointer and {literal!r}", code="K205")
            if element.is_bool() and not own.is_bool():
                common = own
            elif own.is_floating() and not element.is_floating():
                common = float32
            else:
                common = element
            if division and operator == "/" and common in (float16, bfloat16):
                common = float32
            constant = self.constant(literal, common)
            other = self.cast(other, common)
            return (constant, other, common) if literal is left else (other, constant, common)
        for side in (left, right):
            if isinstance(side.dtype, pointer_type):
                raise self.fail(
                    f"{operator} does not take {left.dtype} and {right.dtype}",
                    hint="pointers take + and - with integers, and comparisons",
                    code="K205",
                )
        common = promote(left.dtype, right.dtype, division=operator == "/")
        return self.cast(left, common), self.cast(right, common), common

    def binary(self, operator: str, left: Any, right: Any) -> Tensor:
        """left OPERATOR right for + - * / // % & | ^ << >> min max."""
        left, right = unwrap(left), unwrap(right)
        for value in (left, right):
            if isinstance(value, Tensor) and isinstance(value.dtype, pointer_type):
                return self.pointer_arithmetic(operator, left, right)
        a, b, common = self._operand_types(left, right, operator)
        if operator == "/":
            if not common.is_floating():
                common = float32
                a, b = self.cast(a, common), self.cast(b, common)
            a, b = self.broadcast(a, b)
            return self.emit("arith.divf", a, b, like=a)
        if operator in ("<<", ">>") or operator in _BITWISE:
            if common.is_floating():
                raise self.fail(
                    f"{operator} needs integers, got {common}",
                    hint="cast with x.to(dtype), or x.to(dtype, bitcast=True) for the bits",
                    code="K206",
                )
            a, b = self.broadcast(a, b)
            if operator in _BITWISE:
                return self.emit(f"arith.{_BITWISE[operator]}", a, b, like=a)
            if common.is_bool():
                a, b = self.cast(a, int32), self.cast(b, int32)
            right_shift = "shrsi" if common.is_int_signed() else "shrui"
            return self.emit(f"arith.{'shli' if operator == '<<' else right_shift}", a, b, like=a)
        if common.is_bool() and operator in ("+", "-", "*", "//", "%"):
            common = int32
            a, b = self.cast(a, common), self.cast(b, common)
        a, b = self.broadcast(a, b)
        signed, unsigned, floating = _ARITHMETIC[operator]
        name = floating if common.is_floating() else signed if common.is_int_signed() else unsigned
        if name is None:
            raise self.fail(
                f"{operator} needs integers, got {common}",
                hint="use tl.floor(x / y) for floats",
                code="K206",
            )
        return self.emit(f"arith.{name}", a, b, like=a)

    def pointer_arithmetic(self, operator: str, left: Any, right: Any) -> Tensor:
        left, right = self.to_tensor(left), self.to_tensor(right)
        if operator == "+" and isinstance(right.dtype, pointer_type):
            left, right = right, left
        good = isinstance(left.dtype, pointer_type) and isinstance(right.dtype, dtype)
        if operator not in ("+", "-") or not good or not right.dtype.is_int():
            raise self.fail(
                f"{operator} does not take {left.dtype} and {right.dtype}",
                hint="pointers take + and - with integers, and comparisons",
                code="K205",
            )
        if right.dtype.is_bool() or right.dtype.is_int_unsigned():
            right = self.cast(right, int64)
        if operator == "-":
            zero = self.constant(0, right.dtype, right.shape)  # type: ignore[arg-type]
            right = self.emit("arith.subi", zero, right, like=right)
        left, right = self.broadcast(left, right)
        return self.emit("ptr.add", left, right, like=left)

    def compare(self, operator: str, left: Any, right: Any) -> Tensor:
        left, right = unwrap(left), unwrap(right)
        pointers = [
            v for v in (left, right) if isinstance(v, Tensor) and isinstance(v.dtype, pointer_type)
        ]
        if pointers:
            a, b = (
                self.cast(v, int64) if isinstance(v, Tensor) else self.constant(v, int64)
                for v in (left, right)
            )
            common: dtype = uint64
        else:
            a, b, common = self._operand_types(left, right, operator)
        a, b = self.broadcast(a, b)
        signed, unsigned, floating = _COMPARE[operator]
        if common.is_floating():
            name, predicate = "arith.cmpf", floating
        else:
            name, predicate = "arith.cmpi", signed if common.is_int_signed() else unsigned
        handle = self.builder.emit(name, a.handle, b.handle, predicate=predicate)
        return Tensor(handle, int1, a.shape)

    def negate(self, value: Tensor) -> Tensor:
        if isinstance(value.dtype, pointer_type):
            raise self.fail("a pointer has no negative", code="K205")
        if value.dtype.is_floating():
            return self.emit("arith.negf", value, like=value)
        if value.dtype.is_bool():
            value = self.cast(value, int32)
        zero = self.constant(0, value.dtype, value.shape)
        return self.emit("arith.subi", zero, value, like=value)

    def invert(self, value: Tensor) -> Tensor:
        if not isinstance(value.dtype, dtype) or value.dtype.is_floating():
            raise self.fail(f"~ needs integers, got {value.dtype}", code="K206")
        ones = self.builder.constant(-1 if not value.dtype.is_bool() else 1, value.handle.type)
        return self.emit("arith.xori", value, Tensor(ones, value.dtype, value.shape), like=value)

    def logical_not(self, value: Tensor) -> Tensor:
        return self.invert(self.truth(value))

    def truth(self, value: Any) -> Tensor:
        """A run-time truth value from anything."""
        tensor = self.to_tensor(value)
        return self.cast(tensor, int1)

    def select(self, condition: Any, on_true: Any, on_false: Any) -> Tensor:
        condition = self.truth(condition)
        on_true, on_false = unwrap(on_true), unwrap(on_false)
        pointers = [
            v for v in (on_true, on_false)
            if isinstance(v, Tensor) and isinstance(v.dtype, pointer_type)
        ]  # fmt: skip
        if pointers:
            a, b = self.to_tensor(on_true), self.to_tensor(on_false)
        else:
            a, b, _ = self._operand_types(on_true, on_false, "where")
        shape = self.common_shape([condition.shape, a.shape, b.shape])
        a, b = self.broadcast_to(a, shape), self.broadcast_to(b, shape)
        if condition.shape:
            condition = self.broadcast_to(condition, shape)
        return self.emit("arith.select", condition, a, b, like=a)

    # Memory

    def _mask(self, mask: Any, shape: tuple[int, ...]) -> Tensor | None:
        mask = unwrap(mask)
        if mask is None:
            return None
        tensor = self.to_tensor(mask)
        if not isinstance(tensor.dtype, dtype) or not tensor.dtype.is_int():
            raise self.fail(
                f"a mask is made of truth values, got {tensor.dtype}",
                hint="compare: mask = offsets < n",
                code="K207",
            )
        return self.broadcast_to(self.cast(tensor, int1), shape)

    def load(self, pointer: Tensor, mask: Any, other: Any, **hints: Any) -> Tensor:
        if not isinstance(pointer, Tensor) or not isinstance(pointer.dtype, pointer_type):
            raise self.fail(
                f"tl.load takes pointers, got {getattr(pointer, 'dtype', type(pointer).__name__)}",
                hint="pass the kernel a pointer and add offsets to it",
                code="K208",
            )
        other = unwrap(other)
        if other is not None and unwrap(mask) is None:
            raise self.fail(
                "tl.load has a fill value (other) but no mask",
                hint="give mask=, or leave other out",
                code="K209",
            )
        shape = pointer.shape
        mask_tensor = unwrap(mask)
        if isinstance(mask_tensor, Tensor) and mask_tensor.shape and mask_tensor.shape != shape:
            shape = self.common_shape([shape, mask_tensor.shape])
            pointer = self.broadcast_to(pointer, shape)
        operands = [pointer.handle]
        mask_value = self._mask(mask, shape)
        element = pointer.dtype.element_ty
        memory = int8 if element.is_bool() else element
        if mask_value is not None:
            operands.append(mask_value.handle)
            if other is not None:
                fill = (
                    self.constant(other, memory, shape) if not isinstance(other, Tensor)
                    else self.broadcast_to(self.cast(other, memory), shape)
                )  # fmt: skip
                operands.append(fill.handle)
        loaded = Tensor(self.builder.emit("tile.load", *operands, **hints), memory, shape)
        return self.cast(loaded, int1) if element.is_bool() else loaded

    def store(self, pointer: Tensor, value: Any, mask: Any, **hints: Any) -> None:
        if not isinstance(pointer, Tensor) or not isinstance(pointer.dtype, pointer_type):
            raise self.fail(
                f"tl.store takes pointers, got {getattr(pointer, 'dtype', type(pointer).__name__)}",
                hint="pass the kernel a pointer and add offsets to it",
                code="K208",
            )
        tensor = self.to_tensor(value)
        element = pointer.dtype.element_ty
        if element.is_bool():
            tensor = self.cast(self.cast(tensor, int1), uint8)
            tensor = Tensor(tensor.handle, int8, tensor.shape)
        else:
            tensor = self.cast(tensor, element)
        if tensor.shape and not pointer.shape:
            raise self.fail(
                f"a block of shape {list(tensor.shape)} does not fit one pointer",
                hint="add a block of offsets to the pointer",
                code="K203",
            )
        tensor = self.broadcast_to(tensor, pointer.shape)
        operands = [pointer.handle, tensor.handle]
        mask_value = self._mask(mask, pointer.shape)
        if mask_value is not None:
            operands.append(mask_value.handle)
        self.builder.create("tile.store", *operands, **hints)

    def check_block_size(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A block shape of positive powers of two (any size where the option allows it)."""
        sizes = []
        for size in shape:
            number = unwrap(size)
            if not isinstance(number, int) or isinstance(number, bool):
                raise self.fail(
                    f"a block size is a compile-time integer, got {number!r}",
                    hint="annotate the parameter with tl.constexpr",
                    code="K210",
                )
            if number < 1 or (number & (number - 1) and not self.allow_any_block_size):
                raise self.fail(
                    f"block size {number} is not a power of two",
                    hint="round up with triton-style next_power_of_2 and mask the rest",
                    code="K211",
                )
            sizes.append(number)
        return tuple(sizes)

    def truth_type(self, shape: Sequence[int]) -> Type:
        return TileType(tuple(shape), I1) if shape else I1
