"""Choices, casts, hints, assertions and loop ranges."""

from __future__ import annotations

from enum import Enum
from typing import Any

from isthmus.language.blocks import as_dtype
from isthmus.language.emitter import Emitter, describe
from isthmus.language.types import int1
from isthmus.language.values import Builtin, Tensor, builtin, unwrap

__all__ = [
    "PropagateNan", "add", "assume", "cast", "cdiv", "clamp", "debug_barrier", "device_assert",
    "device_print", "dot_scaled", "inline_asm_elementwise", "max_constancy", "max_contiguous",
    "maximum", "minimum", "mul", "multiple_of", "range_", "sigmoid", "static_assert",
    "static_print", "static_range", "sub", "to", "to_tensor", "where",
]  # fmt: skip


class PropagateNan(Enum):
    """What minimum and maximum do with NaN: NONE lets numbers win, ALL keeps NaN."""

    NONE = 0
    ALL = 0xFFFF


def _plain(name: str, operator: str) -> Builtin:
    def build(emitter: Emitter, x: Any, y: Any, sanitize_overflow: Any = True) -> Tensor:
        return emitter.binary(operator, emitter.tensor(x) if _both_numbers(x, y) else x, y)

    build.__doc__ = f"x {operator} y, wrapping."
    return Builtin(name, build)


def _both_numbers(x: Any, y: Any) -> bool:
    return not isinstance(x, Tensor) and not isinstance(y, Tensor)


add = _plain("add", "+")
sub = _plain("sub", "-")
mul = _plain("mul", "*")


def extreme(emitter: Emitter, name: str, x: Any, y: Any, propagate_nan: Any) -> Tensor:
    """minimum or maximum of two values."""
    keep = unwrap(propagate_nan)
    if keep not in (None, *PropagateNan):
        emitter.fail("K107", f"propagate_nan is {describe(keep)}; it must be a tl.PropagateNan")
    operator = f"{name}, NaN kept" if keep is PropagateNan.ALL else name
    return emitter.binary(operator, emitter.tensor(x) if _both_numbers(x, y) else x, y)


@builtin
def minimum(emitter: Emitter, x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """The smaller value; NaN loses, or wins with propagate_nan=tl.PropagateNan.ALL."""
    return extreme(emitter, "minimum", x, y, propagate_nan)


@builtin
def maximum(emitter: Emitter, x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Tensor:
    """The larger value; NaN loses, or wins with propagate_nan=tl.PropagateNan.ALL."""
    return extreme(emitter, "maximum", x, y, propagate_nan)


@builtin
def clamp(
    emitter: Emitter, x: Any, min: Any, max: Any,  # noqa: A002
    propagate_nan: Any = PropagateNan.NONE,
) -> Tensor:  # fmt: skip
    """x kept within min and max; NaN becomes min, or stays with propagate_nan=ALL."""
    block = emitter.tensor(x)
    low, high = unwrap(min), unwrap(max)
    wide = [side for side in (low, high) if isinstance(side, Tensor)]
    for side in wide:
        block, _ = emitter.unify(block, side)
    lifted = extreme(emitter, "maximum", block, low, propagate_nan)
    return extreme(emitter, "minimum", lifted, high, propagate_nan)


@builtin
def where(emitter: Emitter, condition: Any, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y, lane by lane; both are computed."""
    x, y = unwrap(x), unwrap(y)
    return emitter.select(condition, emitter.tensor(x) if _both_numbers(x, y) else x, y)


@builtin
def cast(
    emitter: Emitter, input: Any, dtype: Any, fp_downcast_rounding: Any = None,  # noqa: A002
    bitcast: Any = False,
) -> Tensor:  # fmt: skip
    """Another dtype: values converted, or the same bits with bitcast=True."""
    block, element = emitter.tensor(input), as_dtype(emitter, dtype)
    if unwrap(bitcast):
        return emitter.bitcast(block, element)
    rounding = unwrap(fp_downcast_rounding)
    if rounding not in (None, "rtne", "rtz"):
        emitter.fail("K303", f"fp_downcast_rounding is {rounding!r}; it must be 'rtne' or 'rtz'")
    if block.dtype == element:
        return block
    if rounding is not None and not (
        block.dtype.is_floating()
        and element.is_floating()
        and block.dtype.primitive_bitwidth > element.primitive_bitwidth
    ):
        emitter.fail(
            "K303", f"fp_downcast_rounding goes with a narrower float; this is {block.dtype} to "
            f"{element}", "leave it out",
        )  # fmt: skip
    return emitter.cast(block, element, rounding)


to = Builtin("to", cast.build)


@builtin
def to_tensor(emitter: Emitter, x: Any) -> Tensor:
    """A number as a run-time scalar."""
    return emitter.tensor(x)


@builtin
def cdiv(emitter: Emitter, x: Any, div: Any) -> Any:
    """x / div rounded up, for x >= 0."""
    x, div = unwrap(x), unwrap(div)
    if _both_numbers(x, div):
        return -(-x // div)
    less = div - 1 if not isinstance(div, Tensor) else emitter.binary("-", div, 1)
    return emitter.binary("//", emitter.binary("+", x, less), div)


@builtin
def sigmoid(emitter: Emitter, x: Any) -> Tensor:
    """1 / (1 + exp(-x)) in f32 or f64."""
    block = emitter.tensor(x)
    if not block.dtype.is_floating() or block.dtype.primitive_bitwidth < 32:
        emitter.fail(
            "K307", f"tl.sigmoid takes fp32 or fp64, got {describe(block)}",
            "convert first: x.to(tl.float32)",
        )  # fmt: skip
    return emitter.make("math.sigmoid", block, like=block)


# Hints


def _hint(name: str) -> Builtin:
    def build(emitter: Emitter, input: Any, values: Any = None) -> Any:  # noqa: A002
        return input

    build.__doc__ = f"{name}: a promise about values, accepted and not needed."
    return Builtin(name, build)


multiple_of = _hint("multiple_of")
max_contiguous = _hint("max_contiguous")
max_constancy = _hint("max_constancy")


@builtin
def assume(emitter: Emitter, cond: Any) -> None:
    """A promise that a condition holds, accepted and not needed."""


@builtin
def debug_barrier(emitter: Emitter) -> None:
    """Order the memory accesses of this program."""
    emitter.builder.create("tile.barrier")


# Assertions and output


@builtin
def static_assert(emitter: Emitter, cond: Any, msg: Any = "") -> None:
    """Refuse to build the kernel unless a compile-time condition holds."""
    condition = unwrap(cond)
    if isinstance(condition, Tensor):
        emitter.fail(
            "K204", "tl.static_assert needs a compile-time condition",
            "for run-time conditions write tl.device_assert",
        )  # fmt: skip
    if not condition:
        text = f": {unwrap(msg)}" if unwrap(msg) else ""
        emitter.fail("K206", f"static assertion failed{text}")


@builtin
def static_print(
    emitter: Emitter, *values: Any, sep: Any = " ", end: Any = "\n", file: Any = None,
    flush: Any = False,
) -> None:  # fmt: skip
    """Print while the kernel is built."""
    print(*map(unwrap, values), sep=unwrap(sep), end=unwrap(end))  # noqa: T201


@builtin
def device_assert(emitter: Emitter, cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Stop the program with a message where a condition is false; only in debug builds."""
    if not emitter.debug:
        return
    condition = emitter.cast(emitter.tensor(cond), int1)
    operands = [condition]
    if unwrap(mask) is not None:
        lanes = emitter.truth(mask)
        operands = emitter.broadcast(condition, lanes)
    emitter.builder.create("tile.assert", *map(emitter.value, operands), message=str(unwrap(msg)))


@builtin
def device_print(emitter: Emitter, prefix: Any, *args: Any, hex: Any = False) -> None:  # noqa: A002
    """Print a prefix and values, for every program."""
    values = [emitter.value(emitter.tensor(value)) for value in args]
    emitter.builder.create("tile.print", *values, prefix=str(unwrap(prefix)))


# Loops: the front end reads these when it meets `for`


@builtin
def range_(emitter: Emitter, *bounds: Any, **hints: Any) -> None:
    """A run-time loop; its hints (num_stages, ...) are accepted."""
    emitter.fail("K102", "tl.range stands in a for statement", "for i in tl.range(n): ...")


@builtin
def static_range(emitter: Emitter, *bounds: Any) -> None:
    """A loop that is unrolled while the kernel is built."""
    emitter.fail("K102", "tl.static_range stands in a for statement")


# What is refused on purpose


@builtin
def inline_asm_elementwise(emitter: Emitter, *_arguments: Any, **_keywords: Any) -> None:
    """Not available: assembly ties a kernel to one machine."""
    emitter.fail(
        "K108", "inline assembly runs on one machine only",
        "write it in the language: casts for cvt, tl.exp2 for ex2.approx, tl.math.tanh for "
        "tanh.approx, tl.fma for fma.rn",
    )  # fmt: skip


@builtin
def dot_scaled(emitter: Emitter, *_arguments: Any, **_keywords: Any) -> None:
    """Not available."""
    emitter.fail(
        "K108", "tl.dot_scaled (micro-scaled formats) is not available",
        "unpack and scale the operands to float16 or bfloat16, then tl.dot",
    )  # fmt: skip
