"""Expressions of kernel source: names, operators, calls, subscripts.

What is known at compile time is computed in Python; the rest becomes IR through the `Emitter`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

from isthmus.core.errors import KernelError
from isthmus.ir.core import Region
from isthmus.ir.optable import op_def
from isthmus.language import methods, python_builtins
from isthmus.language.emitter import Emitter, describe
from isthmus.language.operations import cdiv, static_assert
from isthmus.language.source import KernelSource, source_of
from isthmus.language.types import block_type, dtype, pointer_type
from isthmus.language.values import (
    BlockPointer,
    Builtin,
    Tensor,
    TensorDescriptor,
    constexpr,
    is_runtime,
    unwrap,
)

__all__ = ["Expressions", "Frame", "TargetFacts"]

#: Calls of helpers inside helpers that are followed before it counts as endless.
MAX_CALL_DEPTH = 100

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.MatMult: ("@", operator.matmul),
}
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


class TargetFacts:
    """`tl.target`: what the kernel is compiled for, as compile-time values."""

    FACTS = ("name", "vector_bits", "pointer_bits", "has_f16", "has_bf16", "has_i64", "has_f64")

    def __getattr__(self, name: str) -> Any:
        if name not in self.FACTS:
            raise AttributeError(name)
        raise KernelError(
            f"tl.target.{name} has a meaning only inside a kernel",
            hint="decorate the function with @isthmus.jit",
            code="K101",
        )


@dataclass(slots=True)
class Frame:
    """One function being built: its names, which of them are constexpr, and what went away."""

    source: KernelSource
    scope: dict[str, Any]
    constants: dict[str, Any] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    gone: dict[str, str] = field(default_factory=dict)
    loop_depth: int = 0


class Expressions:
    """Evaluates expressions of the function in `frame`."""

    def __init__(self, emitter: Emitter, frame: Frame) -> None:
        self.emitter = emitter
        self.builder = emitter.builder
        self.frame = frame
        self.depth = 0
        emitter.call = self.call

    # Places and errors

    def mark(self, node: ast.AST) -> None:
        """What is built next belongs to `node`."""
        self.builder.location = self.frame.source.location(node)

    def fail(self, node: ast.AST, code: str, message: str, hint: str | None = None) -> NoReturn:
        self.mark(node)
        self.emitter.fail(code, message, hint)

    # Evaluation

    def evaluate(self, node: ast.expr) -> Any:
        method = _EVALUATE.get(type(node))
        if method is None:
            self.fail(
                node, "K102", f"{type(node).__name__} expressions are not part of the language",
                _HINTS.get(type(node)),
            )  # fmt: skip
        return method(self, node)

    def constant(self, node: ast.Constant) -> Any:
        return node.value

    def name(self, node: ast.Name) -> Any:
        return self.read(node, node.id)

    def read(self, node: ast.AST, name: str) -> Any:
        """What a name is bound to at `node`."""
        frame = self.frame
        if name in frame.scope:
            return frame.scope[name]
        if name in frame.gone:
            self.fail(
                node, "K203", f"{name} is not visible here: {frame.gone[name]}",
                f"give {name} a value before that statement",
            )  # fmt: skip
        try:
            value = frame.source.lookup(name)
        except NameError:
            if name in python_builtins.TABLE:
                return python_builtins.TABLE[name]
            self.fail(node, "K201", f"{name} is not defined")
        if name in python_builtins.TABLE and value is getattr(builtins, name, None):
            return python_builtins.TABLE[name]
        return self.global_value(node, name, value)

    def global_value(self, node: ast.AST, name: str, value: Any) -> Any:
        """A global that kernels may read."""
        if isinstance(value, constexpr):
            return static(value.value)
        if _is_readable(value):
            return value
        if isinstance(value, FunctionType):
            message, hint = f"{name} is a plain Python function", (
                "decorate it with @isthmus.jit to call it from kernels, or with "
                "@tl.constexpr_function to compute compile-time values"
            )  # fmt: skip
        else:
            message, hint = (
                f"{name} is a global variable, which could change after compiling",
                f"write {name} = tl.constexpr({_short(value)}), or pass it as a parameter",
            )
        return self.fail(node, "K202", message, hint)

    def attribute(self, node: ast.Attribute) -> Any:
        return self.member(node, self.evaluate(node.value), node.attr)

    def member(self, node: ast.AST, value: Any, name: str) -> Any:
        """value.name"""
        if isinstance(value, (Tensor, BlockPointer, TensorDescriptor)):
            self.mark(node)
            return methods.member(self.emitter, value, name)
        if isinstance(value, TargetFacts):
            return self.target_fact(node, name)
        if name == "value" and isinstance(value, (int, float, str, tuple, dtype, type(None))):
            return value
        found = getattr(value, name, _ABSENT)
        if found is _ABSENT:
            known = f"module {value.__name__}" if isinstance(value, ModuleType) else describe(value)
            self.fail(node, "K207", f"{known} has no {name}")
        if isinstance(found, property):
            self.fail(node, "K207", f"{describe(value)} has no {name}")
        if isinstance(value, ModuleType) and not _module_value(found):
            self.global_value(node, name, found)
        return static(unwrap(found))

    def target_fact(self, node: ast.AST, name: str) -> Any:
        target = self.emitter.target
        if name not in TargetFacts.FACTS:
            self.fail(node, "K207", f"tl.target has no {name}", f"known: {TargetFacts.FACTS}")
        if name.startswith("has_"):
            return target is None or name[4:] in target.fast_types
        if target is None:
            self.fail(node, "K207", "the target is not known here")
        return getattr(target, name)

    # Operators

    def binary(self, node: ast.BinOp) -> Any:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        return self.combine(node, node.op, left, right)

    def combine(self, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
        symbol, compute = _BINARY[type(op)]
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            self.mark(node)
            if symbol == "**":
                self.fail(node, "K301", "** needs compile-time numbers", "use tl.math.pow(x, y)")
            if symbol == "@":
                self.fail(node, "K102", "@ is not part of the language", "use tl.dot(a, b)")
            return self.emitter.binary(symbol, left, right)
        return self.compute(node, symbol, compute, left, right)

    def compute(
        self, node: ast.AST, symbol: str, function: Callable[..., Any], *operands: Any
    ) -> Any:
        """A compile-time operation."""
        try:
            return static(function(*operands))
        except (TypeError, ValueError, ArithmeticError) as error:
            shown = " and ".join(map(describe, operands))
            self.fail(node, "K301", f"{symbol} of {shown}: {error}")

    def unary(self, node: ast.UnaryOp) -> Any:
        operand = self.evaluate(node.operand)
        if isinstance(operand, Tensor):
            self.mark(node)
            if isinstance(node.op, ast.USub):
                return self.emitter.negate(operand)
            if isinstance(node.op, ast.Not):
                return self.emitter.logical_not(operand)
            return self.emitter.invert(operand) if isinstance(node.op, ast.Invert) else operand
        symbol, function = _UNARY[type(node.op)]
        return self.compute(node, symbol, function, operand)

    def boolean(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        kept: list[Any] = []
        value: Any = None
        for part in node.values:
            value = self.evaluate(part)
            if isinstance(value, Tensor):
                kept.append(value)
            elif bool(value) != is_and:
                return value  # decides the result, whatever comes before or after
        return self.conjunction(node, kept, is_and) if kept else value

    def conjunction(self, node: ast.AST, values: Sequence[Any], is_and: bool) -> Any:
        """and / or of run-time values; all of them are computed."""
        result = values[0]
        for value in values[1:]:
            self.mark(node)
            left, right = self.emitter.truth(result), self.emitter.truth(value)
            result = self.emitter.binary("&" if is_and else "|", left, right)
        return result

    def comparison(self, node: ast.Compare) -> Any:
        left = self.evaluate(node.left)
        results = []
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator)
            results.append(self.compare(node, op, left, right))
            left = right
        kept = [result for result in results if isinstance(result, Tensor)]
        if not all(results[i] for i in range(len(results)) if not isinstance(results[i], Tensor)):
            return False
        return self.conjunction(node, kept, True) if kept else results[-1]

    def compare(self, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = left is right or (
                not is_runtime(left) and not is_runtime(right) and type(left) is type(right)
                and not isinstance(left, tuple) and left == right
            )  # fmt: skip
            return same if isinstance(op, ast.Is) else not same
        if isinstance(op, (ast.In, ast.NotIn)):
            if is_runtime(left) or is_runtime(right):
                self.fail(node, "K204", "`in` needs compile-time values")
            found = self.compute(node, "in", lambda a, b: a in b, left, right)
            return found if isinstance(op, ast.In) else not found
        symbol, function = _COMPARE[type(op)]
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            other = right if isinstance(left, Tensor) else left
            if symbol in ("==", "!=") and not isinstance(other, (Tensor, int, float)):
                return symbol == "!="  # a run-time value equals no None, dtype or text
            self.mark(node)
            return self.emitter.compare(symbol, left, right)
        return self.compute(node, symbol, function, left, right)

    def conditional(self, node: ast.IfExp) -> Any:
        condition = self.evaluate(node.test)
        if not isinstance(condition, Tensor):
            return self.evaluate(node.body if condition else node.orelse)
        chooser = self.scalar_condition(node.test, condition)
        regions, values = [], []
        for branch in (node.body, node.orelse):
            region = Region()
            with self.emitter.region(region):
                value = self.evaluate(branch)
                self.mark(branch)
                tensor = self.emitter.tensor(value)
                self.emitter.value(tensor)
                values.append(tensor)
            regions.append(region)
        self.mark(node)
        first, second = values
        if first.dtype != second.dtype or first.shape != second.shape:
            self.fail(
                node, "K305", f"the two sides are {describe(first)} and {describe(second)}",
                "convert one of them with .to(dtype)",
            )  # fmt: skip
        if all(op_def(op.name).is_pure for region in regions for op in region.ops):
            return self.both_and_select(chooser, first, second, regions)
        for region, value in zip(regions, values, strict=True):
            with self.emitter.region(region):
                self.builder.create("scf.yield", self.emitter.value(value))
        op = self.builder.create(
            "scf.if", self.emitter.value(chooser), type=[first.ir_type], regions=regions
        )
        return Tensor(op.result, first.dtype, first.shape)

    def both_and_select(
        self, chooser: Tensor, first: Tensor, second: Tensor, regions: Sequence[Region]
    ) -> Tensor:
        """Compute both sides, which have no effects, and select."""
        for region in regions:
            for op in region.ops:
                self.builder.insert(op)
            region.ops = []
        condition = self.emitter.value(chooser)
        a, b = self.emitter.value(first), self.emitter.value(second)
        result = self.builder.emit("arith.select", condition, a, b)
        return Tensor(result, first.dtype, first.shape)

    def scalar_condition(self, node: ast.AST, condition: Tensor) -> Tensor:
        """The truth value that an if, while or conditional expression decides by."""
        self.mark(node)
        if condition.numel != 1:
            self.fail(
                node, "K310", f"a condition is one truth value, got {describe(condition)}",
                "use tl.where for lanes, or reduce with tl.max",
            )  # fmt: skip
        if condition.shape:
            condition = methods.call(self.emitter, "item", condition)
        return self.emitter.truth(condition)

    # Subscripts and displays

    def subscript(self, node: ast.Subscript) -> Any:
        value = self.evaluate(node.value)
        if isinstance(value, Tensor):
            return self.index_block(node, value)
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            index = slice(*(None if part is None else self.evaluate(part) for part in bounds))
        else:
            index = self.evaluate(node.slice)
        if is_runtime(index):
            self.fail(node, "K204", f"{describe(value)} is indexed at compile time only")
        try:
            return static(value[index])
        except (TypeError, IndexError, KeyError) as error:
            self.fail(node, "K407", f"{describe(value)}[{index!r}]: {error}")

    def index_block(self, node: ast.Subscript, block: Tensor) -> Tensor:
        """x[:, None] and the like: `None` adds a dimension, `:` keeps one."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        self.mark(node)
        kept = 0
        for place, part in enumerate(parts):
            if isinstance(part, ast.Slice) and not (part.lower or part.upper or part.step):
                kept += 1
            elif not isinstance(part, ast.Slice) and self.evaluate(part) is None:
                self.mark(node)
                block = self.emitter.expand_dims(block, place)
            else:
                self.fail(
                    node, "K407", "blocks are indexed with : and None only",
                    "to pick elements use tl.gather, tl.where and a reduction, or load again",
                )  # fmt: skip
        if kept > len(block.shape) - (len(parts) - kept):
            self.fail(node, "K407", f"{kept} dimensions kept, the block has fewer")
        return block

    def display(self, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
        items: list[Any] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                items.extend(self.evaluate(element.value))
            else:
                items.append(self.evaluate(element))
        return tuple(items)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> tuple[Any, ...]:
        if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
            self.fail(node, "K102", "a comprehension has one loop over one name")
        loop = node.generators[0]
        name = node.generators[0].target.id
        items = self.evaluate(loop.iter)
        if not isinstance(items, (tuple, range)):
            self.fail(node, "K102", "comprehensions run over compile-time tuples and ranges")
        scope, results = self.frame.scope, []
        saved = scope.get(name, _ABSENT)
        for item in items:
            scope[name] = item
            if all(self.evaluate(test) for test in loop.ifs):
                results.append(self.evaluate(node.elt))
        scope.pop(name, None)
        if saved is not _ABSENT:
            scope[name] = saved
        return tuple(results)

    def text(self, node: ast.JoinedStr) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
                continue
            assert isinstance(part, ast.FormattedValue), "an f-string has texts and values"
            value = self.evaluate(part.value)
            if is_runtime(value):
                value = describe(value)
            conversion = {115: str, 114: repr, 97: ascii}.get(part.conversion)
            value = conversion(value) if conversion else value
            parts.append(format(value, self.text(part.format_spec) if part.format_spec else ""))  # type: ignore[arg-type]
        return "".join(parts)

    def walrus(self, node: ast.NamedExpr) -> Any:
        value = self.settle(self.evaluate(node.value))
        self.frame.scope[node.target.id] = value
        return value

    def settle(self, value: Any) -> Any:
        """What an assignment binds: numbers become run-time scalars, tuples item by item."""
        if isinstance(value, (bool, int, float)):
            return self.emitter.tensor(value)
        if type(value) is tuple:
            return tuple(map(self.settle, value))
        return value

    # Calls

    def invoke(self, node: ast.Call) -> Any:
        function = self.evaluate(node.func)
        if function is static_assert:
            return self.assert_static(node)
        arguments: list[Any] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                arguments.extend(self.evaluate(argument.value))
            else:
                arguments.append(self.evaluate(argument))
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail(node, "K102", "** in calls is not part of the language")
            keywords[keyword.arg] = self.evaluate(keyword.value)
        self.mark(node)
        return self.call(function, arguments, keywords)

    def assert_static(self, node: ast.Call) -> None:
        """The message is evaluated only where the assertion fails."""
        if not 1 <= len(node.args) + len(node.keywords) <= 2 or not node.args:
            self.fail(node, "K107", "tl.static_assert takes a condition and a message")
        condition = self.evaluate(node.args[0])
        message: Any = ""
        if not isinstance(condition, Tensor) and not condition:
            rest = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
            message = self.evaluate(rest[0]) if rest else ""
        self.mark(node)
        static_assert.build(self.emitter, condition, message)

    def call(self, function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """Call a builtin, a helper kernel, or a Python function of compile-time values."""
        if isinstance(function, methods.Method):
            return self.call(function.builtin, (function.owner, *arguments), keywords)
        if isinstance(function, Builtin):
            return self.call_builtin(function, arguments, keywords)
        source = source_of(function)
        if source is not None:
            return self.inline(source, arguments, keywords)
        if function is constexpr:
            (value,) = arguments
            return value
        if isinstance(function, dtype) and len(arguments) == 1:
            return self.emitter.cast(self.emitter.tensor(arguments[0]), function)
        if not callable(function):
            self.emitter.fail("K207", f"{describe(function)} cannot be called")
        is_record = isinstance(function, type) and hasattr(function, "_fields")
        if not is_record and any(map(is_runtime, [*arguments, *keywords.values()])):
            if _is_ours(function) and function.__name__ == "cdiv":
                return self.call_builtin(cdiv, arguments, keywords)
            name = getattr(function, "__name__", repr(function))
            self.emitter.fail(
                "K207", f"{name} is a Python function and takes compile-time values only",
                "use its counterpart in tl, or write a helper with @isthmus.jit",
            )  # fmt: skip
        try:
            return static(unwrap(function(*arguments, **keywords)))
        except KernelError:
            raise
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            self.emitter.fail("K107", f"{getattr(function, '__name__', function)}: {error}")

    def call_builtin(
        self, function: Builtin, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> Any:
        place = self.builder.location
        try:
            result = function.build(self.emitter, *arguments, **keywords)
        except TypeError as error:
            signature = inspect.signature(function.build)
            try:
                signature.bind(self.emitter, *arguments, **keywords)
            except TypeError as mismatch:
                names = [name for name in signature.parameters if name != "emitter"]
                self.builder.location = place
                self.emitter.fail(
                    "K107", f"{function!r}: {mismatch}", f"it takes ({', '.join(names)})"
                )
            raise error from None
        self.builder.location = place
        return result

    def inline(
        self, source: KernelSource, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> Any:
        """Build the body of a helper here, with its own names."""
        scope = self.bind(source, arguments, keywords)
        place, caller = self.builder.location, self.frame
        if self.depth >= MAX_CALL_DEPTH:
            self.emitter.fail("K209", f"{source.name} calls itself without end")
        self.frame = Frame(source, scope, dict.fromkeys(source.constexpr_names))
        self.depth += 1
        try:
            return self.run_function()
        except KernelError as error:
            if place is not None:
                error.callers.append(place)
            raise
        finally:
            self.depth -= 1
            self.frame, self.builder.location = caller, place

    def run_function(self) -> Any:
        """Build the function in `frame`; gives what it returns."""
        raise NotImplementedError

    def bind(
        self, source: KernelSource, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> dict[str, Any]:
        """Parameter names to arguments, as Python binds them."""
        given, rest, scope = list(arguments), dict(keywords), {}
        for parameter in source.parameters:
            name = parameter.name
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                scope[name], given = tuple(given), []
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self.emitter.fail("K107", f"{source.name} takes **{name}, which kernels do not")
            elif given and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                if name in rest:
                    self.emitter.fail("K107", f"{source.name} gets {name} twice")
                scope[name] = given.pop(0)
            elif name in rest:
                scope[name] = rest.pop(name)
            elif parameter.has_default:
                scope[name] = static(parameter.default)
            else:
                self.emitter.fail(
                    "K107", f"{source.name} needs a value for {name}",
                    f"it takes ({', '.join(source.parameter_names)})",
                )  # fmt: skip
        if given or rest:
            extra = ", ".join([*map(describe, given), *rest])
            self.emitter.fail(
                "K107", f"{source.name} does not take {extra}",
                f"it takes ({', '.join(source.parameter_names)})",
            )  # fmt: skip
        return scope


_ABSENT = object()


def static(value: Any) -> Any:
    """A compile-time value in the form that kernels see: lists are tuples, constexpr unwrapped."""
    if isinstance(value, constexpr):
        return static(value.value)
    if isinstance(value, list):
        return tuple(map(static, value))
    if type(value) is tuple:
        return tuple(map(static, value))
    return value


def _is_readable(value: Any) -> bool:
    """A global that does not change: modules, types, functions of the language, helpers."""
    return (
        isinstance(value, (ModuleType, Builtin, dtype, pointer_type, Enum, TargetFacts, type))
        or source_of(value) is not None
        or getattr(value, "is_constexpr_function", False)
        or _is_ours(value)
    )


def _is_ours(value: Any) -> bool:
    """A host-side function of Isthmus, such as cdiv or next_power_of_2."""
    if not isinstance(value, FunctionType):
        return False
    return value.__module__.startswith("isthmus.") and value.__name__ in _HOST_FUNCTIONS


_HOST_FUNCTIONS = ("cdiv", "next_power_of_2")


def _module_value(value: Any) -> bool:
    """What kernels may read from a module without more ado."""
    if isinstance(value, (constexpr, ModuleType, BuiltinFunctionType, MethodType, TargetFacts)):
        return True
    return isinstance(value, (int, float, str)) or callable(value) or isinstance(
        value, (dtype, pointer_type, block_type))  # fmt: skip


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 30 else "..."


_UNARY: dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]] = {
    ast.USub: ("-", operator.neg),
    ast.UAdd: ("+", operator.pos),
    ast.Invert: ("~", operator.invert),
    ast.Not: ("not", operator.not_),
}
_EVALUATE: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Constant: Expressions.constant,
    ast.Name: Expressions.name,
    ast.Attribute: Expressions.attribute,
    ast.BinOp: Expressions.binary,
    ast.UnaryOp: Expressions.unary,
    ast.BoolOp: Expressions.boolean,
    ast.Compare: Expressions.comparison,
    ast.IfExp: Expressions.conditional,
    ast.Subscript: Expressions.subscript,
    ast.Tuple: Expressions.display,
    ast.List: Expressions.display,
    ast.ListComp: Expressions.comprehension,
    ast.GeneratorExp: Expressions.comprehension,
    ast.JoinedStr: Expressions.text,
    ast.NamedExpr: Expressions.walrus,
    ast.Call: Expressions.invoke,
}
_HINTS: dict[type[ast.AST], str] = {
    ast.Lambda: "write the function at module level and decorate it with @isthmus.jit",
    ast.Dict: "pass values as separate parameters or as a tuple",
    ast.Set: "use a tuple",
    ast.Await: "kernels have no coroutines",
}
