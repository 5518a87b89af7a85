"""Nest functions printed as LLVM IR.

One pass over the operations, one or a few instructions for each; no analysis and no cleverness
beyond operations whose exact meaning (see `ir/dialects/arith.py`) LLVM does not have. There are
no fast-math flags, and only `arith.fma` fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isthmus.core.errors import InternalError
from isthmus.core.target import TargetDescription
from isthmus.ir.core import Function, Operation, Region, Value
from isthmus.ir.types import PointerType, ScalarType, Type, VectorType, element_type, shape_of
from isthmus.targets.llvm import helpers
from isthmus.targets.llvm.arithmetic import ARITHMETIC
from isthmus.targets.llvm.text import constant_text, llvm_type, mangled, shaped

__all__ = ["FunctionEmitter", "emit_module"]

_PARAMETERS = ("noalias readonly", "noalias readonly", "", "", "noalias")


def emit_module(functions: Sequence[Function], target: TargetDescription) -> str:
    """LLVM IR text of a module with `functions`, for `target`."""
    shared = _Module(target)
    bodies = [FunctionEmitter(fn, shared).emit() for fn in functions]
    lines = [f'target triple = "{target.triple}"', ""]
    lines += bodies
    lines += shared.helpers.values()
    lines += sorted(shared.declarations)
    width = target.vector_bits
    lines.append(
        'attributes #0 = { nounwind "no-builtins" '
        f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}'
    )
    lines += shared.metadata
    return "\n".join(lines) + "\n"


class _Module:
    """What the functions of one module share."""

    def __init__(self, target: TargetDescription) -> None:
        self.target = target
        self.helpers: dict[str, str] = {}
        self.declarations: set[str] = set()
        self.metadata: list[str] = ["!0 = !{}", "!1 = !{i32 1}"]

    def loop_metadata(self, unroll: int | None) -> str:
        number = len(self.metadata)
        hint = (
            '!"llvm.loop.unroll.disable"'
            if unroll is None or unroll == 1
            else f'!"llvm.loop.unroll.count", i32 {unroll}'
        )
        self.metadata.append(f"!{number} = distinct !{{!{number}, !{number + 1}}}")
        self.metadata.append(f"!{number + 1} = !{{{hint}}}")
        return f", !llvm.loop !{number}"


class FunctionEmitter:
    """Prints one function. `let` and `line` append instructions; `value` names an operand."""

    def __init__(self, function: Function, module: _Module) -> None:
        self.function = function
        self.module = module
        self.target = module.target
        self.native = module.target.native
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.names: dict[Value, str] = {}
        self.types: dict[Type, str] = {}
        self.counter = 0
        self.block = "entry"

    # --- writing -------------------------------------------------------------------------

    def fresh(self, prefix: str = "v") -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def let(self, text: str) -> str:
        """Append an instruction and name its result."""
        self.counter += 1
        name = f"%v{self.counter}"
        self.lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def start_block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def type(self, type_: Type) -> str:
        text = self.types.get(type_)
        if text is None:
            text = self.types[type_] = llvm_type(type_)
        return text

    def value(self, value: Value) -> str:
        return self.names[value]

    def typed(self, value: Value) -> str:
        return f"{self.type(value.type)} {self.names[value]}"

    def helper(self, name: str, text: Callable[[str], str]) -> str:
        """Make sure that the module has helper function `name`; gives `@name`."""
        if name not in self.module.helpers:
            self.module.helpers[name] = text(name)
        return f"@{name}"

    def emit(self) -> str:
        function = self.function
        params = []
        kernel_abi = len(function.args) == len(_PARAMETERS)
        for position, arg in enumerate(function.args):
            name = f"%a{position}"
            self.names[arg] = name
            attributes = _PARAMETERS[position] if kernel_abi else ""
            if isinstance(arg.type, PointerType) and attributes:
                params.append(f"ptr {attributes} {name}")
            else:
                params.append(f"{self.type(arg.type)} {name}")
        self.region(function.body)
        head = f"define void @{function.name}({', '.join(params)}) #0 {{\nentry:"
        return "\n".join([head, *self.allocas, *self.lines, "}", ""])

    def region(self, region: Region) -> Operation:
        """Print all operations but the terminator, which is returned."""
        table = HANDLERS
        for op in region.ops:
            handler = table.get(op.name)
            if handler is None:
                raise InternalError(f"{op.name} has no LLVM form", stage="emit")
            handler(self, op)
        return region.ops[-1]


# --- control flow ----------------------------------------------------------------------------


def _constant_value(value: Value) -> Any:
    op = value.defining_op
    return op.attrs["value"] if op is not None and op.name == "arith.constant" else None


def _next_is_in_range(op: Operation) -> bool:
    """Whether counter + step cannot pass the largest number of its type."""
    lower, upper, step = op.operands[:3]
    if element_type(lower.type).bits >= 64:  # type: ignore[attr-defined]
        return True  # no machine counts that far
    step_value, upper_value = _constant_value(step), _constant_value(upper)
    if step_value == 1:
        return True
    return (
        step_value is not None
        and upper_value is not None
        and upper_value + step_value < 1 << (element_type(lower.type).bits - 1)  # type: ignore[attr-defined]
    )


def _for(e: FunctionEmitter, op: Operation) -> None:
    region = op.regions[0]
    lower, upper, step = op.operands[:3]
    initial = op.operands[3:]
    type_ = e.type(lower.type)
    lower_text, upper_text, step_text = e.value(lower), e.value(upper), e.value(step)
    number = e.fresh("")
    body, done = f"for{number}", f"done{number}"
    before = e.block
    entered = _constant_value(lower), _constant_value(upper)
    runs = None not in entered and entered[0] < entered[1]
    if runs:
        e.line(f"br label %{body}")
    else:
        guard = e.let(f"icmp slt {type_} {lower_text}, {upper_text}")
        e.line(f"br i1 {guard}, label %{body}, label %{done}")
    e.start_block(body)
    head = len(e.lines)
    counter = f"%i{number}"
    e.names[region.args[0]] = counter
    carried = [f"%c{number}.{position}" for position in range(len(initial))]
    for arg, name in zip(region.args[1:], carried, strict=True):
        e.names[arg] = name
    terminator = e.region(region)
    following = e.let(
        f"add{' nsw' if _next_is_in_range(op) else ''} {type_} {counter}, {step_text}"
    )
    if _next_is_in_range(op):
        again = e.let(f"icmp slt {type_} {following}, {upper_text}")
    else:
        rest = e.let(f"sub {type_} {upper_text}, {counter}")
        again = e.let(f"icmp ugt {type_} {rest}, {step_text}")
    latch = e.block
    hint = e.module.loop_metadata(op.attrs.get("unroll"))
    e.line(f"br i1 {again}, label %{body}, label %{done}{hint}")
    phis = [f"  {counter} = phi {type_} [ {lower_text}, %{before} ], [ {following}, %{latch} ]"]
    for name, first, after in zip(carried, initial, terminator.operands, strict=True):
        phis.append(
            f"  {name} = phi {e.type(first.type)} "
            f"[ {e.value(first)}, %{before} ], [ {e.value(after)}, %{latch} ]"
        )
    e.lines[head:head] = phis
    e.start_block(done)
    for result, first, after in zip(op.results, initial, terminator.operands, strict=True):
        sources = f"[ {e.value(after)}, %{latch} ]"
        if not runs:
            sources = f"[ {e.value(first)}, %{before} ], " + sources
        e.names[result] = e.let(f"phi {e.type(result.type)} {sources}")


def _while(e: FunctionEmitter, op: Operation) -> None:
    test, body = op.regions
    number = e.fresh("")
    head, inner, done = f"while{number}", f"do{number}", f"done{number}"
    before = e.block
    e.line(f"br label %{head}")
    e.start_block(head)
    position = len(e.lines)
    carried = [f"%w{number}.{index}" for index in range(len(op.operands))]
    for arg, name in zip(test.args, carried, strict=True):
        e.names[arg] = name
    condition = e.region(test)
    keep, *forwarded = condition.operands
    e.line(f"br i1 {e.value(keep)}, label %{inner}, label %{done}")
    e.start_block(inner)
    for arg, value in zip(body.args, forwarded, strict=True):
        e.names[arg] = e.value(value)
    terminator = e.region(body)
    latch = e.block
    e.line(f"br label %{head}")
    e.lines[position:position] = [
        f"  {name} = phi {e.type(first.type)} "
        f"[ {e.value(first)}, %{before} ], [ {e.value(after)}, %{latch} ]"
        for name, first, after in zip(carried, op.operands, terminator.operands, strict=True)
    ]
    e.start_block(done)
    for result, value in zip(op.results, forwarded, strict=True):
        e.names[result] = e.value(value)


def _if(e: FunctionEmitter, op: Operation) -> None:
    number = e.fresh("")
    labels = f"then{number}", f"else{number}"
    done = f"join{number}"
    e.line(f"br i1 {e.value(op.operands[0])}, label %{labels[0]}, label %{labels[1]}")
    ends: list[tuple[str, list[str]]] = []
    for label, region in zip(labels, op.regions, strict=True):
        e.start_block(label)
        yielded = [e.value(value) for value in e.region(region).operands] if region.ops else []
        ends.append((e.block, yielded))
        e.line(f"br label %{done}")
    e.start_block(done)
    for position, result in enumerate(op.results):
        sources = ", ".join(f"[ {values[position]}, %{block} ]" for block, values in ends)
        e.names[result] = e.let(f"phi {e.type(result.type)} {sources}")


# --- memory ----------------------------------------------------------------------------------


def _pointee(type_: Type) -> ScalarType:
    pointer = element_type(type_)
    assert isinstance(pointer, PointerType), f"{type_} is no pointer"
    return pointer.pointee


def _memory_type(e: FunctionEmitter, type_: Type) -> str:
    """How values of `type_` lie in memory: truth values as bytes."""
    text = e.type(type_)
    return text.replace("i1", "i8") if text in ("i1",) or text.endswith(" i1>") else text


def _alignment(op: Operation, type_: Type) -> int:
    element = element_type(type_)
    size = element.size_bytes if isinstance(element, ScalarType) else 8
    return op.attrs.get("align") or size


def _hints(op: Operation) -> str:
    hints = ", !invariant.load !0" if op.attrs.get("invariant") else ""
    return hints + (", !nontemporal !1" if op.attrs.get("nontemporal") else "")


def _to_memory(e: FunctionEmitter, value: Value) -> tuple[str, str]:
    """(memory type, operand) of a value to be stored."""
    type_, memory = e.type(value.type), _memory_type(e, value.type)
    text = e.value(value)
    if type_ != memory:
        text = e.let(f"zext {type_} {text} to {memory}")
    return memory, text


def _from_memory(e: FunctionEmitter, text: str, type_: Type) -> str:
    memory = _memory_type(e, type_)
    if memory == e.type(type_):
        return text
    return e.let(f"icmp ne {memory} {text}, {'zeroinitializer' if shape_of(type_) else '0'}")


def _load(e: FunctionEmitter, op: Operation) -> None:
    type_ = op.result.type
    loaded = e.let(
        f"load {_memory_type(e, type_)}, ptr {e.value(op.operands[0])}, "
        f"align {_alignment(op, type_)}{_hints(op)}"
    )
    e.names[op.result] = _from_memory(e, loaded, type_)


def _store(e: FunctionEmitter, op: Operation) -> None:
    memory, text = _to_memory(e, op.operands[0])
    e.line(
        f"store {memory} {text}, ptr {e.value(op.operands[1])}, "
        f"align {_alignment(op, op.operands[0].type)}{_hints(op)}"
    )


def _lane_type(memory: str) -> tuple[int, str]:
    lanes, element = memory[1:-1].split(" x ")
    return int(lanes), element


def _masked_load(e: FunctionEmitter, op: Operation) -> None:
    pointer, mask, _ = op.operands
    memory, other = _to_memory(e, op.operands[2])
    lanes, element = _lane_type(memory)
    loaded = e.let(
        f"call {memory} @llvm.masked.load.{mangled(element, lanes)}.p0("
        f"ptr align {_alignment(op, op.result.type)} {e.value(pointer)}, "
        f"{e.typed(mask)}, {memory} {other})"
    )
    e.names[op.result] = _from_memory(e, loaded, op.result.type)


def _masked_store(e: FunctionEmitter, op: Operation) -> None:
    value, pointer, mask = op.operands
    memory, text = _to_memory(e, value)
    lanes, element = _lane_type(memory)
    e.line(
        f"call void @llvm.masked.store.{mangled(element, lanes)}.p0({memory} {text}, "
        f"ptr align {_alignment(op, value.type)} {e.value(pointer)}, {e.typed(mask)})"
    )


def _gather(e: FunctionEmitter, op: Operation) -> None:
    pointers, mask, _ = op.operands
    memory, other = _to_memory(e, op.operands[2])
    lanes, element = _lane_type(memory)
    loaded = e.let(
        f"call {memory} @llvm.masked.gather.{mangled(element, lanes)}.v{lanes}p0("
        f"<{lanes} x ptr> align {_alignment(op, op.result.type)} {e.value(pointers)}, "
        f"{e.typed(mask)}, {memory} {other})"
    )
    e.names[op.result] = _from_memory(e, loaded, op.result.type)


def _scatter(e: FunctionEmitter, op: Operation) -> None:
    value, pointers, mask = op.operands
    memory, text = _to_memory(e, value)
    lanes, element = _lane_type(memory)
    e.line(
        f"call void @llvm.masked.scatter.{mangled(element, lanes)}.v{lanes}p0({memory} {text}, "
        f"<{lanes} x ptr> align {_alignment(op, value.type)} {e.value(pointers)}, {e.typed(mask)})"
    )


def _prefetch(e: FunctionEmitter, op: Operation) -> None:
    write, locality = int(op.attrs.get("write", False)), op.attrs.get("locality", 3)
    e.line(
        f"call void @llvm.prefetch.p0(ptr {e.value(op.operands[0])}, "
        f"i32 {write}, i32 {locality}, i32 1)"
    )


def _alloca(e: FunctionEmitter, op: Operation) -> None:
    pointee = _pointee(op.result.type)
    name = f"%{e.fresh('s')}"
    e.allocas.append(
        f"  {name} = alloca [{op.attrs['count']} x {_memory_type(e, pointee)}], "
        f"align {op.attrs.get('align') or 64}"
    )
    e.names[op.result] = name


def _ptr_add(e: FunctionEmitter, op: Operation) -> None:
    pointer, offset = op.operands
    element = _memory_type(e, _pointee(pointer.type))
    e.names[op.result] = e.let(f"getelementptr {element}, {e.typed(pointer)}, {e.typed(offset)}")


def _ptr_cast(e: FunctionEmitter, op: Operation) -> None:
    source, target = e.type(op.operands[0].type), e.type(op.result.type)
    text = e.value(op.operands[0])
    if source != target:
        word = "ptrtoint" if "ptr" in source else "inttoptr"
        text = e.let(f"{word} {source} {text} to {target}")
    e.names[op.result] = text


_ORDERINGS = {
    None: "acq_rel", "relaxed": "monotonic", "acquire": "acquire",
    "release": "release", "acq_rel": "acq_rel",
}  # fmt: skip
_ATOMICS = {
    "add": "add", "fadd": "fadd", "maxs": "max", "mins": "min", "maxu": "umax", "minu": "umin",
    "and": "and", "or": "or", "xor": "xor", "xchg": "xchg",
}  # fmt: skip


def _atomic_rmw(e: FunctionEmitter, op: Operation) -> None:
    pointer, value = op.operands
    scalar = value.type
    assert isinstance(scalar, ScalarType), "atomics act on one scalar"
    kind = op.attrs["kind"]
    if kind == "fadd" and scalar.bits < 32:
        name = e.helper(
            f"isthmus.fadd.{scalar.name}",
            lambda name: helpers.atomic_add_function(name, scalar.name, e.native),
        )
        type_ = e.type(scalar)
        e.names[op.result] = e.let(
            f"call {type_} {name}(ptr {e.value(pointer)}, {type_} {e.value(value)})"
        )
        return
    memory, text = _to_memory(e, value)
    old = e.let(
        f"atomicrmw {_ATOMICS[kind]} ptr {e.value(pointer)}, {memory} {text} "
        f"{_ORDERINGS[op.attrs.get('ordering')]}, align {_alignment(op, scalar)}"
    )
    e.names[op.result] = _from_memory(e, old, scalar)


def _atomic_cas(e: FunctionEmitter, op: Operation) -> None:
    pointer, compare, value = op.operands
    memory, compare_text = _to_memory(e, compare)
    _, value_text = _to_memory(e, value)
    integer = {"float": "i32", "double": "i64"}.get(memory, memory)
    if integer != memory:
        compare_text = e.let(f"bitcast {memory} {compare_text} to {integer}")
        value_text = e.let(f"bitcast {memory} {value_text} to {integer}")
    ordering = _ORDERINGS[op.attrs.get("ordering")]
    failure = "acquire" if ordering in ("acquire", "acq_rel") else "monotonic"
    pair = e.let(
        f"cmpxchg ptr {e.value(pointer)}, {integer} {compare_text}, {integer} {value_text} "
        f"{ordering} {failure}"
    )
    old = e.let(f"extractvalue {{ {integer}, i1 }} {pair}, 0")
    if integer != memory:
        old = e.let(f"bitcast {integer} {old} to {memory}")
    e.names[op.result] = _from_memory(e, old, value.type)


def _call(e: FunctionEmitter, op: Operation) -> None:
    callee = op.attrs["callee"]
    result = e.type(op.results[0].type) if op.results else "void"
    types = ", ".join(e.type(value.type) for value in op.operands)
    e.module.declarations.add(f"declare {result} @{callee}({types})")
    text = f"call {result} @{callee}({', '.join(map(e.typed, op.operands))})"
    if op.results:
        e.names[op.results[0]] = e.let(text)
    else:
        e.line(text)


# --- vectors ---------------------------------------------------------------------------------


def _constant(e: FunctionEmitter, op: Operation) -> None:
    e.names[op.result] = constant_text(op.result.type, op.attrs["value"])


def _splat(e: FunctionEmitter, op: Operation) -> None:
    scalar, type_ = op.operands[0], op.result.type
    assert isinstance(type_, VectorType), "a splat gives a vector"
    fixed = _constant_value(scalar)
    if fixed is not None:
        e.names[op.result] = constant_text(type_, fixed)
        return
    text = e.type(type_)
    first = e.let(f"insertelement {text} poison, {e.typed(scalar)}, i64 0")
    e.names[op.result] = e.let(
        f"shufflevector {text} {first}, {text} poison, <{type_.lanes} x i32> zeroinitializer"
    )


def _iota(e: FunctionEmitter, op: Operation) -> None:
    type_ = op.result.type
    assert isinstance(type_, VectorType), "an iota gives a vector"
    element = e.type(type_.element)
    lanes = ", ".join(f"{element} {lane}" for lane in range(type_.lanes))
    e.names[op.result] = f"<{lanes}>"


def _extract(e: FunctionEmitter, op: Operation) -> None:
    e.names[op.result] = e.let(f"extractelement {e.typed(op.operands[0])}, i64 {op.attrs['lane']}")


def _insert(e: FunctionEmitter, op: Operation) -> None:
    vector, scalar = op.operands
    e.names[op.result] = e.let(
        f"insertelement {e.typed(vector)}, {e.typed(scalar)}, i64 {op.attrs['lane']}"
    )


def _extract_at(e: FunctionEmitter, op: Operation) -> None:
    e.names[op.result] = e.let(
        f"extractelement {e.typed(op.operands[0])}, {e.typed(op.operands[1])}"
    )


def _shuffle(e: FunctionEmitter, op: Operation) -> None:
    lanes = op.attrs["lanes"]
    mask = ", ".join(f"i32 {lane}" if lane >= 0 else "i32 poison" for lane in lanes)
    e.names[op.result] = e.let(
        f"shufflevector {e.typed(op.operands[0])}, {e.typed(op.operands[1])}, "
        f"<{len(lanes)} x i32> <{mask}>"
    )


def _reduce(e: FunctionEmitter, op: Operation) -> None:
    value = op.operands[0]
    assert isinstance(value.type, VectorType), "a reduction takes a vector"
    element = value.type.element
    lanes, text, combine = value.type.lanes, e.value(value), ARITHMETIC[f"arith.{op.attrs['kind']}"]
    assert lanes & (lanes - 1) == 0, f"{lanes} lanes do not halve evenly"
    element_text = e.type(element)
    while lanes > 1:
        source, half = shaped(element_text, lanes), lanes // 2
        parts = []
        for first in (0, half):
            mask = ", ".join(f"i32 {lane}" for lane in range(first, first + half))
            parts.append(
                e.let(f"shufflevector {source} {text}, {source} poison, <{half} x i32> <{mask}>")
            )
        text = combine(e, VectorType((half,), element), parts)
        lanes = half
    e.names[op.result] = e.let(f"extractelement <1 x {element_text}> {text}, i64 0")


def _any(e: FunctionEmitter, op: Operation) -> None:
    kind = "or" if op.name == "vector.any" else "and"
    mask = op.operands[0]
    lanes = shape_of(mask.type)[0]
    e.names[op.result] = e.let(f"call i1 @llvm.vector.reduce.{kind}.v{lanes}i1({e.typed(mask)})")


def _elementwise(name: str) -> Callable[[FunctionEmitter, Operation], None]:
    write = ARITHMETIC[name]

    def handler(e: FunctionEmitter, op: Operation) -> None:
        e.names[op.result] = write(
            e, op.operands[0].type, [e.names[value] for value in op.operands], op
        )

    return handler


def _nothing(_e: FunctionEmitter, _op: Operation) -> None:
    """Terminators belong to the operation around them."""


HANDLERS: dict[str, Callable[[FunctionEmitter, Operation], None]] = {
    **{name: _elementwise(name) for name in ARITHMETIC},
    "arith.constant": _constant,
    "ptr.add": _ptr_add,
    "ptr.cast": _ptr_cast,
    "scf.for": _for,
    "scf.while": _while,
    "scf.if": _if,
    "scf.yield": _nothing,
    "scf.condition": _nothing,
    "func.return": lambda e, _op: e.line("ret void"),
    "nest.load": _load,
    "nest.store": _store,
    "nest.masked_load": _masked_load,
    "nest.masked_store": _masked_store,
    "nest.gather": _gather,
    "nest.scatter": _scatter,
    "nest.prefetch": _prefetch,
    "nest.alloca": _alloca,
    "nest.atomic_rmw": _atomic_rmw,
    "nest.atomic_cas": _atomic_cas,
    "nest.call": _call,
    "vector.splat": _splat,
    "vector.iota": _iota,
    "vector.extract": _extract,
    "vector.insert": _insert,
    "vector.extract_at": _extract_at,
    "vector.shuffle": _shuffle,
    "vector.reduce": _reduce,
    "vector.any": _any,
    "vector.all": _any,
}
