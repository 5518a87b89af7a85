"""`arith` and the cheap `math` operations as LLVM instructions, with their exact meaning.

`ARITHMETIC[name](emitter, type of the first operand, operand names, operation)` writes the
instructions and gives the name of the result. Operands of reductions come without an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.ir.core import Operation
from isthmus.ir.types import ScalarType, Type, element_type, shape_of
from isthmus.targets.llvm import helpers, numbers
from isthmus.targets.llvm.text import STORAGE_FLOATS, mangled, shaped

if TYPE_CHECKING:
    from isthmus.targets.llvm.emit import FunctionEmitter

__all__ = ["ARITHMETIC"]

Write = Callable[..., str]
ARITHMETIC: dict[str, Write] = {}


def _lanes(type_: Type) -> int:
    shape = shape_of(type_)
    return shape[0] if shape else 0


def _scalar(type_: Type) -> ScalarType:
    element = element_type(type_)
    assert isinstance(element, ScalarType), f"{type_} is no number"
    return element


def _const(value: int, element: str, lanes: int) -> str:
    return f"splat ({element} {value})" if lanes else str(value)


def _known(op: Operation | None, position: int) -> Any:
    """The value of a constant operand, else None."""
    if op is None:
        return None
    made_by = op.operands[position].defining_op
    if made_by is not None and made_by.name == "vector.splat":
        made_by = made_by.operands[0].defining_op
    if made_by is None or made_by.name != "arith.constant":
        return None
    return made_by.attrs["value"]


def _register(name: str) -> Callable[[Write], Write]:
    def add(write: Write) -> Write:
        ARITHMETIC[name] = write
        return write

    return add


# --- integers --------------------------------------------------------------------------------


def _plain(word: str) -> Write:
    def write(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Any = None) -> str:
        return e.let(f"{word} {e.type(type_)} {v[0]}, {v[1]}")

    return write


def _intrinsic(name: str, tail: str = "") -> Write:
    def write(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Any = None) -> str:
        text, lanes = e.type(type_), _lanes(type_)
        element = e.type(element_type(type_))
        arguments = ", ".join(f"{text} {value}" for value in v)
        return e.let(f"call {text} @llvm.{name}.{mangled(element, lanes)}({arguments}{tail})")

    return write


for _name, _word in (
    ("addi", "add"), ("subi", "sub"), ("muli", "mul"),
    ("andi", "and"), ("ori", "or"), ("xori", "xor"),
):  # fmt: skip
    ARITHMETIC[f"arith.{_name}"] = _plain(_word)
for _name, _word in (("minsi", "smin"), ("maxsi", "smax"), ("minui", "umin"), ("maxui", "umax")):
    ARITHMETIC[f"arith.{_name}"] = _intrinsic(_word)
ARITHMETIC["math.absi"] = _intrinsic("abs", ", i1 false")


def _division(word: str) -> Write:
    signed, remainder = word[0] == "s", word[1:] == "rem"

    def write(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Any = None) -> str:
        text, lanes, scalar = e.type(type_), _lanes(type_), _scalar(type_)
        element = e.type(scalar)
        bits = f"<{lanes} x i1>" if lanes else "i1"
        known = _known(op, 1)
        if known is not None and known != 0 and (known != -1 or not signed):
            return e.let(f"{word} {text} {v[0]}, {v[1]}")
        zero, one = _const(0, element, lanes), _const(1, element, lanes)
        is_zero = unsafe = e.let(f"icmp eq {text} {v[1]}, {zero}")
        if signed:
            smallest = _const(-(1 << (scalar.bits - 1)), element, lanes)
            minus_one = e.let(f"icmp eq {text} {v[1]}, {_const(-1, element, lanes)}")
            at_edge = e.let(f"icmp eq {text} {v[0]}, {smallest}")
            wraps = e.let(f"and {bits} {minus_one}, {at_edge}")
            unsafe = e.let(f"or {bits} {is_zero}, {wraps}")
        divisor = e.let(f"select {bits} {unsafe}, {text} {one}, {text} {v[1]}")
        result = e.let(f"{word} {text} {v[0]}, {divisor}")
        by_zero = v[0] if remainder else zero
        return e.let(f"select {bits} {is_zero}, {text} {by_zero}, {text} {result}")

    return write


for _name, _word in (("divsi", "sdiv"), ("divui", "udiv"), ("remsi", "srem"), ("remui", "urem")):
    ARITHMETIC[f"arith.{_name}"] = _division(_word)


@_register("arith.mulhui")
def _mulhui(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Any = None) -> str:
    text, lanes, width = e.type(type_), _lanes(type_), _scalar(type_).bits
    wide = shaped(f"i{2 * width}", lanes)
    a = e.let(f"zext {text} {v[0]} to {wide}")
    b = e.let(f"zext {text} {v[1]} to {wide}")
    product = e.let(f"mul nuw {wide} {a}, {b}")
    high = e.let(f"lshr {wide} {product}, {_const(width, f'i{2 * width}', lanes)}")
    return e.let(f"trunc {wide} {high} to {text}")


def _shift(word: str) -> Write:
    def write(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Any = None) -> str:
        text, lanes, width = e.type(type_), _lanes(type_), _scalar(type_).bits
        element = e.type(element_type(type_))
        known = _known(op, 1)
        if known is not None and 0 <= known < width:
            return e.let(f"{word} {text} {v[0]}, {v[1]}")
        if word == "ashr":
            limit = _const(width - 1, element, lanes)
            amount = _intrinsic("umin")(e, type_, [v[1], limit])
            return e.let(f"ashr {text} {v[0]}, {amount}")
        bits = f"<{lanes} x i1>" if lanes else "i1"
        fits = e.let(f"icmp ult {text} {v[1]}, {_const(width, element, lanes)}")
        shifted = e.let(f"{word} {text} {v[0]}, {v[1]}")
        zero = _const(0, element, lanes)
        return e.let(f"select {bits} {fits}, {text} {shifted}, {text} {zero}")

    return write


for _name, _word in (("shli", "shl"), ("shrsi", "ashr"), ("shrui", "lshr")):
    ARITHMETIC[f"arith.{_name}"] = _shift(_word)


@_register("arith.cmpi")
def _cmpi(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Operation) -> str:
    return e.let(f"icmp {op.attrs['predicate']} {e.type(type_)} {v[0]}, {v[1]}")


@_register("arith.select")
def _select(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Operation) -> str:
    text = e.type(op.result.type)
    return e.let(f"select {e.type(type_)} {v[0]}, {text} {v[1]}, {text} {v[2]}")


# --- floats ----------------------------------------------------------------------------------


def _computed(write: Write) -> Write:
    """Apply `write` to narrow floats in f32, rounding the result once."""

    def wrapper(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Any = None) -> str:
        scalar, lanes = _scalar(type_), _lanes(type_)
        if scalar.name not in STORAGE_FLOATS:
            return write(e, scalar.name, lanes, v, op)
        wide = [numbers.widen(e, scalar.name, value, lanes) for value in v]
        return numbers.narrow(e, scalar.name, write(e, "f32", lanes, wide, op), lanes)

    return wrapper


_TEXT = {"f32": "float", "f64": "double"}


def _float_plain(word: str) -> Write:
    def write(e: FunctionEmitter, name: str, lanes: int, v: Sequence[str], _op: Any) -> str:
        return e.let(f"{word} {shaped(_TEXT[name], lanes)} {v[0]}, {v[1]}")

    return _computed(write)


def _float_intrinsic(intrinsic: str) -> Write:
    def write(e: FunctionEmitter, name: str, lanes: int, v: Sequence[str], _op: Any) -> str:
        element = _TEXT[name]
        text = shaped(element, lanes)
        arguments = ", ".join(f"{text} {value}" for value in v)
        return e.let(f"call {text} @llvm.{intrinsic}.{mangled(element, lanes)}({arguments})")

    return _computed(write)


for _name, _word in (("addf", "fadd"), ("subf", "fsub"), ("mulf", "fmul"), ("divf", "fdiv")):
    ARITHMETIC[f"arith.{_name}"] = _float_plain(_word)
for _name, _word in (
    ("math.floor", "floor"),
    ("math.ceil", "ceil"), ("math.trunc", "trunc"), ("math.roundeven", "roundeven"),
    ("math.sqrt", "sqrt"),
):  # fmt: skip
    ARITHMETIC[_name] = _float_intrinsic(_word)
ARITHMETIC["arith.minnumf"] = _computed(
    lambda e, name, lanes, v, _op: numbers.number_minimum(e, v[0], v[1], _TEXT[name], lanes)
)
ARITHMETIC["arith.maxnumf"] = _computed(
    lambda e, name, lanes, v, _op: numbers.number_maximum(e, v[0], v[1], _TEXT[name], lanes)
)
ARITHMETIC["arith.minimumf"] = _computed(
    lambda e, name, lanes, v, _op: numbers.minimum(e, v[0], v[1], _TEXT[name], lanes)
)
ARITHMETIC["arith.maximumf"] = _computed(
    lambda e, name, lanes, v, _op: numbers.maximum(e, v[0], v[1], _TEXT[name], lanes)
)


def _sign_bit(word: str) -> Write:
    """Flip (xor) or clear (and) the sign, NaN too."""

    def write(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Any = None) -> str:
        scalar, lanes = _scalar(type_), _lanes(type_)
        text = e.type(type_)
        if scalar.name not in STORAGE_FLOATS:
            if word == "xor":
                return e.let(f"fneg {text} {v[0]}")
            return e.let(
                f"call {text} @llvm.fabs.{mangled(_TEXT[scalar.name], lanes)}({text} {v[0]})"
            )
        mask = -(1 << (scalar.bits - 1)) if word == "xor" else (1 << (scalar.bits - 1)) - 1
        return e.let(f"{word} {text} {v[0]}, {_const(mask, f'i{scalar.bits}', lanes)}")

    return write


ARITHMETIC["arith.negf"] = _sign_bit("xor")
ARITHMETIC["math.absf"] = _sign_bit("and")


def _fma_f64(e: FunctionEmitter, name: str, lanes: int, v: Sequence[str], op: Any) -> str:
    if e.target.fma:
        text = shaped(_TEXT[name], lanes)
        arguments = ", ".join(f"{text} {value}" for value in v)
        return e.let(f"call {text} @llvm.fma.{mangled(_TEXT[name], lanes)}({arguments})")
    if name == "f32":
        return numbers.fma_without_hardware(e, v[0], v[1], v[2], lanes)
    helper = e.helper("isthmus.fma.f64", helpers.fma_function)
    return _each_lane(e, helper, "double", lanes, v)


@_register("arith.fma")
def _fma(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Any = None) -> str:
    scalar, lanes = _scalar(type_), _lanes(type_)
    if scalar.name not in STORAGE_FLOATS:
        return _fma_f64(e, scalar.name, lanes, v, op)
    # The product of narrow floats is exact in f64 and so, nearly always, is the sum.
    wide = [
        _float_cast(e, "f32", "f64", numbers.widen(e, scalar.name, value, lanes), lanes)
        for value in v
    ]
    text = shaped("double", lanes)
    product = e.let(f"fmul {text} {wide[0]}, {wide[1]}")
    total = e.let(f"fadd {text} {product}, {wide[2]}")
    return _float_cast(e, "f64", scalar.name, total, lanes)


def _each_lane(e: FunctionEmitter, helper: str, element: str, lanes: int, v: Sequence[str]) -> str:
    """Call a scalar helper for every lane."""
    if not lanes:
        return e.let(f"call {element} {helper}({', '.join(f'{element} {x}' for x in v)})")
    text = shaped(element, lanes)
    result = "poison"
    for lane in range(lanes):
        parts = [e.let(f"extractelement {text} {value}, i64 {lane}") for value in v]
        one = e.let(f"call {element} {helper}({', '.join(f'{element} {x}' for x in parts)})")
        result = e.let(f"insertelement {text} {result}, {element} {one}, i64 {lane}")
    return result


@_register("arith.remf")
@_computed
def _remf(e: FunctionEmitter, name: str, lanes: int, v: Sequence[str], _op: Any) -> str:
    helper = e.helper("isthmus.fmod.f64", helpers.fmod_function)
    if name == "f64":
        return _each_lane(e, helper, "double", lanes, v)
    wide = [_float_cast(e, "f32", "f64", value, lanes) for value in v]
    return _float_cast(e, "f64", "f32", _each_lane(e, helper, "double", lanes, wide), lanes)


@_register("arith.cmpf")
def _cmpf(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Operation) -> str:
    scalar, lanes = _scalar(type_), _lanes(type_)
    text, values = e.type(type_), list(v)
    if scalar.name in STORAGE_FLOATS:
        values = [numbers.widen(e, scalar.name, value, lanes) for value in v]
        text = shaped("float", lanes)
    return e.let(f"fcmp {op.attrs['predicate']} {text} {values[0]}, {values[1]}")


# --- conversions -----------------------------------------------------------------------------


def _integer_cast(word: str) -> Write:
    def write(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Operation) -> str:
        return e.let(f"{word} {e.type(type_)} {v[0]} to {e.type(op.result.type)}")

    return write


for _name, _word in (("extsi", "sext"), ("extui", "zext"), ("trunci", "trunc")):
    ARITHMETIC[f"arith.{_name}"] = _integer_cast(_word)


def _float_cast(
    e: FunctionEmitter, source: str, target: str, value: str, lanes: int, toward_zero: bool = False
) -> str:
    """Any float to any other, correctly rounded."""
    if source == target:
        return value
    single, double = shaped("float", lanes), shaped("double", lanes)
    if source in STORAGE_FLOATS:
        value, source = numbers.widen(e, source, value, lanes), "f32"
    if target == "f64":
        return e.let(f"fpext {single} {value} to {double}")
    if source == "f64":
        if target == "f32" and not toward_zero:
            return e.let(f"fptrunc {double} {value} to {single}")
        value = (
            numbers.narrow_to_zero(e, value, lanes)
            if target == "f32"
            else numbers.narrow_odd(e, value, lanes)
        )
    if target == "f32":
        return value
    return numbers.narrow(e, target, value, lanes, toward_zero)


@_register("arith.extf")
@_register("arith.truncf")
def _cast_float(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Operation) -> str:
    toward_zero = (op.attrs.get("rounding") or "rtne") not in ("rtne", "nearest_even")
    source, target = _scalar(type_).name, _scalar(op.result.type).name
    return _float_cast(e, source, target, v[0], _lanes(type_), toward_zero)


def _from_integer(word: str) -> Write:
    def write(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Operation) -> str:
        lanes, target = _lanes(type_), _scalar(op.result.type).name
        through = target
        if target in STORAGE_FLOATS:
            through = "f32" if _scalar(type_).bits <= 16 else "f64"
        text = shaped(_TEXT[through], lanes)
        return _float_cast(
            e, through, target, e.let(f"{word} {e.type(type_)} {v[0]} to {text}"), lanes
        )

    return write


ARITHMETIC["arith.sitofp"] = _from_integer("sitofp")
ARITHMETIC["arith.uitofp"] = _from_integer("uitofp")


def _to_integer(word: str) -> Write:
    def write(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Operation) -> str:
        lanes, source, value = _lanes(type_), _scalar(type_).name, v[0]
        if source in STORAGE_FLOATS:
            source, value = "f32", numbers.widen(e, source, value, lanes)
        result = e.type(op.result.type)
        names = f"{mangled(e.type(element_type(op.result.type)), lanes)}"
        names += f".{mangled(_TEXT[source], lanes)}"
        text = shaped(_TEXT[source], lanes)
        return e.let(f"call {result} @llvm.{word}.sat.{names}({text} {value})")

    return write


ARITHMETIC["arith.fptosi"] = _to_integer("fptosi")
ARITHMETIC["arith.fptoui"] = _to_integer("fptoui")


@_register("arith.bitcast")
def _bitcast(e: FunctionEmitter, type_: Type, v: Sequence[str], op: Operation) -> str:
    source, target = e.type(type_), e.type(op.result.type)
    if source == target:
        return v[0]
    if "ptr" in source or "ptr" in target:
        return e.let(f"{'ptrtoint' if 'ptr' in source else 'inttoptr'} {source} {v[0]} to {target}")
    return e.let(f"bitcast {source} {v[0]} to {target}")
