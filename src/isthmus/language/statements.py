"""Statements of kernel source: assignments, branches, loops, returns.

Branches and loops on run-time values become `scf.if`, `scf.for` and `scf.while`: the names that
they assign are carried as SSA values, whose types must not change. Branches on compile-time
values are decided here, and the other side is never looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.ir.core import Region, Value
from isthmus.language import operations
from isthmus.language.emitter import describe
from isthmus.language.expressions import Expressions, static
from isthmus.language.python_builtins import TABLE as PYTHON_BUILTINS
from isthmus.language.types import pointer_type
from isthmus.language.values import Tensor, is_runtime, rebuild, runtime_parts, unwrap

__all__ = ["Statements"]


@dataclass(frozen=True, slots=True)
class Returned:
    """A block of statements ended in `return value`."""

    value: Any
    node: ast.AST | None = None


class Statements(Expressions):
    """Builds the statements of the function in `frame`."""

    def run_function(self) -> Any:
        result = self.run(self.frame.source.tree.body)
        return None if result is None else result.value

    def run(self, statements: Sequence[ast.stmt]) -> Returned | None:
        """Build statements until one returns; compile-time branches are taken on the way."""
        pending = list(reversed(statements))
        while pending:
            node = pending.pop()
            if isinstance(node, ast.If):
                condition = self.evaluate(node.test)
                if not isinstance(condition, Tensor):
                    taken = node.body if self.decide(node, condition) else node.orelse
                    pending.extend(reversed(taken))
                    continue
                chooser = self.scalar_condition(node.test, condition)
                if self.frame.loop_depth == 0 and _returns(node):
                    return self.branch_and_return(node, chooser, list(reversed(pending)))
                self.branch(node, chooser)
            elif isinstance(node, ast.Return):
                if self.frame.loop_depth:
                    self.fail(
                        node, "K105", "return inside a loop is not possible",
                        "keep the value in a variable and return it after the loop",
                    )  # fmt: skip
                return Returned(None if node.value is None else self.evaluate(node.value), node)
            else:
                method = _EXECUTE.get(type(node))
                if method is None:
                    self.unsupported(node)
                else:
                    method(self, node)
        return None

    def unsupported(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.Break, ast.Continue)):
            word = type(node).__name__.lower()
            self.fail(
                node, "K104", f"{word} is not part of the language",
                "put the rest of the body under `if`, or carry a flag in a while condition",
            )  # fmt: skip
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            self.fail(
                node, "K103", "functions and classes are not defined inside kernels",
                "move it to module level and decorate it with @isthmus.jit",
            )  # fmt: skip
        word = type(node).__name__.lower()
        self.fail(node, "K101", f"{word} statements are not part of the language")

    def decide(self, node: ast.If, condition: Any) -> bool:
        """The outcome of a compile-time condition."""
        if condition is not None and not isinstance(condition, (bool, int)):
            self.fail(
                node.test, "K310", f"a condition is a truth value, got {describe(condition)}",
                "compare explicitly: `x is not None`, `n != 0`",
            )  # fmt: skip
        return bool(condition)

    # Assignments

    def assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.bind_target(target, value)

    def bind_target(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            if target.id in self.frame.pending:
                self.bind_constant(target, target.id, value)
                return
            self.mark(target)
            self.set_name(target.id, self.settle(value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(value, tuple):
                self.fail(target, "K306", f"cannot unpack {describe(value)}")
            if any(isinstance(element, ast.Starred) for element in target.elts):
                self.fail(target, "K109", "starred targets are not part of the language")
            if len(value) != len(target.elts):
                self.fail(target, "K306", f"{len(value)} values for {len(target.elts)} names")
            for element, item in zip(target.elts, value, strict=True):
                self.bind_target(element, item)
        elif isinstance(target, ast.Subscript):
            self.fail(
                target, "K109", "blocks and tuples are not assigned element by element",
                "use tl.where to build the new block, or tl.store to write memory",
            )  # fmt: skip
        else:
            self.fail(target, "K109", "attributes are not assigned in kernels")

    def set_name(self, name: str, value: Any) -> None:
        frame = self.frame
        frame.scope[name] = value
        frame.constants.pop(name, None)
        if isinstance(value, Tensor) and value.value is not None and value.value.hint is None:
            value.value.hint = name

    def bind_constant(self, node: ast.AST, name: str, value: Any) -> None:
        if is_runtime(value):
            self.fail(
                node, "K204", f"{name} is annotated tl.constexpr, but it is {describe(value)}",
                "leave the annotation out, or compute it from constexpr values only",
            )  # fmt: skip
        frame = self.frame
        if frame.constants.get(name, node) is not node:
            self.fail(
                node, "K205", f"{name} is a compile-time value already and keeps it",
                "use another name",
            )  # fmt: skip
        frame.scope[name] = static(value)
        frame.constants[name] = node

    def assign_annotated(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.fail(node, "K109", "only names are annotated")
        annotation = node.annotation
        text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
        is_constant = str(text).split(".")[-1] == "constexpr"
        if node.value is None:
            if is_constant:
                self.frame.pending.add(node.target.id)
            return
        value = self.evaluate(node.value)
        if is_constant:
            self.bind_constant(node, node.target.id, value)
        else:
            self.bind_target(node.target, value)

    def assign_augmented(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.bind_target(node.target, None)
            return
        current = self.read(node.target, node.target.id)
        value = self.combine(node, node.op, current, self.evaluate(node.value))
        self.bind_target(node.target, value)

    def expression(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.evaluate(node.value)

    def nothing(self, node: ast.stmt) -> None:
        pass

    def check(self, node: ast.Assert) -> None:
        condition = self.evaluate(node.test)
        if isinstance(condition, Tensor):
            message = self.evaluate(node.msg) if node.msg is not None else ""
            self.mark(node)
            operations.device_assert.build(self.emitter, condition, message)
        elif not condition:
            message = self.evaluate(node.msg) if node.msg is not None else ""
            text = f": {message}" if message else ""
            self.fail(node, "K206", f"assertion failed{text}")

    # Branches on run-time values

    def in_region(self, scope: dict[str, Any], statements: Sequence[ast.stmt]) -> tuple[
        Region, dict[str, Any], Returned | None
    ]:  # fmt: skip
        """Build statements in a new region with a scope of their own."""
        frame, region = self.frame, Region()
        saved = frame.scope, frame.constants, frame.gone
        frame.scope, frame.constants, frame.gone = scope, dict(frame.constants), dict(frame.gone)
        try:
            with self.emitter.region(region):
                result = self.run(statements)
                return region, frame.scope, result
        finally:
            frame.scope, frame.constants, frame.gone = saved

    def branch(self, node: ast.If, condition: Tensor) -> None:
        """`if` without a return inside."""
        before = self.frame.scope
        then_region, then_scope, _ = self.in_region(dict(before), node.body)
        else_region, else_scope, _ = self.in_region(dict(before), node.orelse)
        merge = _Merge(self, node, then_region, else_region)
        results: dict[str, Any] = {}
        line = self.line(node)
        for name in {**then_scope, **else_scope}:
            a, b = then_scope.get(name, _ABSENT), else_scope.get(name, _ABSENT)
            if a is b:
                results[name] = a
            elif a is _ABSENT or b is _ABSENT:
                self.frame.gone[name] = f"only one branch of the `if` in line {line} sets it"
            elif (a is None or b is None) and a is not b:
                self.frame.gone[name] = f"it is None in one branch of the `if` in line {line}"
                before.pop(name, None)
            else:
                results[name] = merge.pair(name, a, b, before.get(name, _ABSENT))
        merge.finish(condition)
        for name, value in results.items():
            if before.get(name, _ABSENT) is not value:
                self.set_name(name, value)

    def branch_and_return(
        self, node: ast.If, condition: Tensor, rest: Sequence[ast.stmt]
    ) -> Returned:
        """`if` with a return inside: what follows it is built inside the branches."""
        before = self.frame.scope
        then_region, _, then_result = self.in_region(dict(before), [*node.body, *rest])
        else_region, _, else_result = self.in_region(dict(before), [*node.orelse, *rest])
        merge = _Merge(self, node, then_region, else_region)
        a = None if then_result is None else then_result.value
        b = None if else_result is None else else_result.value
        value = merge.pair("the result", a, b, _ABSENT, code="K306")
        merge.finish(condition)
        return Returned(value, node)

    def line(self, node: ast.AST) -> int:
        return self.frame.source.location(node).line

    # Loops

    def loop(self, node: ast.For) -> None:
        if node.orelse:
            self.fail(node.orelse[0], "K101", "else after a loop is not part of the language")
        if not isinstance(node.target, ast.Name):
            self.fail(node.target, "K109", "a loop has one variable")
        call = node.iter
        function = self.evaluate(call.func) if isinstance(call, ast.Call) else None
        if function is operations.static_range:
            assert isinstance(call, ast.Call), "found by its call"
            self.unrolled_loop(node, node.target.id, self.static_bounds(call))
        elif function is operations.range_ or function is PYTHON_BUILTINS["range"]:
            assert isinstance(call, ast.Call), "found by its call"
            self.run_time_loop(node, node.target.id, call)
        else:
            items = self.evaluate(call)
            if not isinstance(items, tuple):
                self.fail(
                    call, "K102", "loops run over range, tl.range, tl.static_range and tuples",
                    "write for i in range(n): ...",
                )  # fmt: skip
            self.unrolled_loop(node, node.target.id, items)

    def static_bounds(self, call: ast.Call) -> range:
        bounds = [self.evaluate(argument) for argument in call.args]
        names = {"arg1": 0, "arg2": 1, "step": 2}
        for keyword in call.keywords:
            if keyword.arg in names:
                bounds[names[keyword.arg] :] = [self.evaluate(keyword.value)]
        self.mark(call)
        numbers = [self.emitter.static_int(bound, "a bound of tl.static_range") for bound in bounds]
        if not 1 <= len(numbers) <= 3 or (len(numbers) == 3 and numbers[2] == 0):
            self.fail(call, "K107", "tl.static_range takes end, or start and end, and a step")
        return range(*numbers)

    def unrolled_loop(self, node: ast.For, name: str, items: Any) -> None:
        self.frame.loop_depth += 1
        for item in items:
            self.frame.scope[name] = item
            self.run(node.body)
        self.frame.loop_depth -= 1

    def run_time_loop(self, node: ast.For, name: str, call: ast.Call) -> None:
        bounds = [self.evaluate(argument) for argument in call.args]
        for keyword in call.keywords:
            value = self.evaluate(keyword.value)
            if keyword.arg == "step":
                bounds = [0, *bounds] if len(bounds) == 1 else bounds
                bounds.append(value)
        self.mark(call)
        if not 1 <= len(bounds) <= 3:
            self.fail(call, "K107", "range takes end, or start and end, and a step")
        low, high = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        step: Any = unwrap(bounds[2]) if len(bounds) == 3 else 1
        if step == 0 and not isinstance(step, Tensor):
            self.fail(call, "K107", "the step of range is 0")
        downward = isinstance(step, int) and step < 0
        if downward:
            low, high, step = high, low, -step
        limits = [self.emitter.tensor(bound) for bound in (low, high, step)]
        for limit in limits:
            if limit.shape or isinstance(limit.dtype, pointer_type) or not limit.dtype.is_int():
                self.fail(call, "K310", f"a bound of range is one integer, got {describe(limit)}")
        element = self.emitter.induction_type(limits)
        values = [self.emitter.value(self.emitter.cast(limit, element)) for limit in limits]
        carried = _Carried(self, node, skip={name})
        induction = Value(element.ir, carried.region, 0, name)
        carried.region.args.insert(0, induction)
        index = Tensor(induction, element)

        def prepare() -> None:
            variable = index
            if downward:  # low + high - index runs from `low` of the source downward
                start, stop = Tensor(values[1], element), Tensor(values[0], element)
                variable = self.emitter.binary("+", self.emitter.binary("-", start, index), stop)
            self.frame.scope[name] = variable

        carried.build(prepare)
        kept = carried.keep_changed()
        self.mark(node)
        op = self.builder.create(
            "scf.for", *values, *kept, type=[value.type for value in kept],
            regions=[carried.region],
        )  # fmt: skip
        carried.leave(op.results)
        self.frame.scope.pop(name, None)
        self.frame.gone[name] = f"it is the variable of the loop in line {self.line(node)}"

    def while_loop(self, node: ast.While) -> None:
        if node.orelse:
            self.fail(node.orelse[0], "K101", "else after a loop is not part of the language")
        carried = _Carried(self, node, skip=set())
        frame = self.frame
        before, condition_region = frame.scope, Region()
        arguments = [condition_region.add_arg(value.type) for value in carried.initial]
        frame.scope = carried.scope_with(arguments)
        with self.emitter.region(condition_region):
            condition = self.evaluate(node.test)
            if not isinstance(condition, Tensor):
                frame.scope = before
                if not self.decide_loop(node, condition):
                    return
            chooser = self.scalar_condition(node.test, condition)
            self.emitter.value(chooser)
        frame.scope = before
        carried.build(lambda: None)
        kept = carried.keep_changed(arguments, condition_region)
        with self.builder.at(condition_region):
            assert chooser.value is not None or chooser.constant is not None, "a condition"
            with self.emitter.isolated():
                self.builder.create(
                    "scf.condition", self.emitter.value(chooser), *condition_region.args
                )
        self.mark(node)
        op = self.builder.create(
            "scf.while", *kept, type=[value.type for value in kept],
            regions=[condition_region, carried.region],
        )  # fmt: skip
        carried.leave(op.results)

    def decide_loop(self, node: ast.While, condition: Any) -> bool:
        if condition:
            self.fail(
                node.test, "K310", "this loop never ends: its condition is known to hold",
                "loop on a run-time condition",
            )  # fmt: skip
        return False


_ABSENT: Any = object()


class _Merge:
    """Joins what two branches leave: pairs of values become results of one `scf.if`."""

    def __init__(self, builder: Statements, node: ast.AST, then: Region, other: Region) -> None:
        self.owner = builder
        self.node = node
        self.regions = (then, other)
        self.yielded: tuple[list[Value], list[Value]] = ([], [])
        self.pending: list[Tensor] = []

    def pair(self, name: str, a: Any, b: Any, before: Any, code: str = "K305") -> Any:
        """The value that stands for `a` or `b`; its run-time parts are placeholders."""
        owner = self.owner
        if a is b:
            return a
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            olds = before if isinstance(before, tuple) and len(before) == len(a) else (
                (_ABSENT,) * len(a))  # fmt: skip
            return tuple(
                self.pair(name, x, y, old, code) for x, y, old in zip(a, b, olds, strict=True)
            )
        if not is_runtime(a) and not is_runtime(b) and type(a) is type(b) and a == b:
            return a
        numbers = (bool, int, float)
        if isinstance(a, numbers) and isinstance(b, Tensor):
            a = owner.emitter.literal(a, b.dtype)
        elif isinstance(b, numbers) and isinstance(a, Tensor):
            b = owner.emitter.literal(b, a.dtype)
        elif isinstance(a, numbers) and isinstance(b, numbers):
            a, b = owner.emitter.tensor(a), owner.emitter.tensor(b)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return self.tensors(name, a, b, before, code)
        parts_a, parts_b = runtime_parts(a), runtime_parts(b)
        if type(a) is not type(b) or not parts_a or len(parts_a) != len(parts_b):
            owner.fail(
                self.node, code, f"{name} is {describe(a)} in one branch and {describe(b)} in the "
                "other", "give both branches one type",
            )  # fmt: skip
        parts = [
            self.tensors(name, x, y, _ABSENT, code) for x, y in zip(parts_a, parts_b, strict=True)
        ]
        return rebuild(a, iter(parts))

    def tensors(self, name: str, a: Tensor, b: Tensor, before: Any, code: str) -> Tensor:
        owner = self.owner
        if a.dtype != b.dtype or a.shape != b.shape:
            owner.fail(
                self.node, code, f"{name} is {describe(a)} in one branch and {describe(b)} in the "
                "other", "convert one of them with .to(dtype), or give both one shape",
            )  # fmt: skip
        if isinstance(before, Tensor) and (a.dtype != before.dtype or a.shape != before.shape):
            owner.fail(
                self.node, code, f"{name} was {describe(before)} before this `if`, which makes it "
                f"{describe(a)}", "use another name, or convert with .to(dtype)",
            )  # fmt: skip
        values = []
        for tensor, region in zip((a, b), self.regions, strict=True):
            if tensor.value is not None:
                values.append(tensor.value)
            else:
                with owner.emitter.region(region):
                    values.append(owner.emitter.value(tensor))
        if values[0] is values[1]:
            return a
        for collected, value in zip(self.yielded, values, strict=True):
            collected.append(value)
        placeholder = Tensor(None, a.dtype, a.shape)
        self.pending.append(placeholder)
        return placeholder

    def finish(self, condition: Tensor) -> None:
        """Build the `scf.if` and fill the placeholders with its results."""
        owner = self.owner
        owner.mark(self.node)
        if not self.pending and not any(region.ops for region in self.regions):
            return
        for region, values in zip(self.regions, self.yielded, strict=True):
            with owner.builder.at(region):
                owner.builder.create("scf.yield", *values)
        op = owner.builder.create(
            "scf.if", owner.emitter.value(condition),
            type=[tensor.ir_type for tensor in self.pending], regions=self.regions,
        )  # fmt: skip
        for tensor, value in zip(self.pending, op.results, strict=True):
            tensor.value = value


class _Carried:
    """The names that a loop assigns and that exist before it: its carried values."""

    def __init__(self, owner: Statements, node: ast.For | ast.While, skip: set[str]) -> None:
        self.owner = owner
        self.node = node
        self.before = owner.frame.scope
        self.values: dict[str, Any] = {}
        self.static: dict[str, Any] = {}
        self.initial: list[Value] = []
        self.parts: list[Tensor] = []
        owner.mark(node)
        for name in _assigned(owner, node):
            if name in skip or name not in self.before:
                continue
            value = self.before[name]
            if isinstance(value, (bool, int, float)) and name not in owner.frame.constants:
                value = owner.emitter.tensor(value)
            elif type(value) is tuple and name not in owner.frame.constants:
                value = owner.settle(value)
            if not is_runtime(value):
                self.static[name] = value
                continue
            self.values[name] = value
            for part in runtime_parts(value):
                self.parts.append(part)
                self.initial.append(owner.emitter.value(part))
        self.region = Region([value.type for value in self.initial])
        self.arguments = list(self.region.args)
        self.after: dict[str, Any] = {}
        self.kept: list[bool] = []

    def scope_with(self, arguments: Sequence[Value]) -> dict[str, Any]:
        """The names inside, carried ones bound to region arguments."""
        scope = dict(self.before)
        tensors = iter([
            Tensor(value, part.dtype, part.shape)
            for value, part in zip(arguments, self.parts, strict=True)
        ])  # fmt: skip
        for name, value in self.values.items():
            scope[name] = rebuild(value, tensors)
            if isinstance(value, Tensor):
                scope[name].value.hint = name
        return scope

    def build(self, prepare: Callable[[], None]) -> None:
        """Build the body once; its yield comes later."""
        owner, frame = self.owner, self.owner.frame
        saved = frame.scope, frame.constants, frame.gone
        frame.scope = self.scope_with(self.arguments)
        frame.constants, frame.gone = dict(frame.constants), dict(frame.gone)
        frame.loop_depth += 1
        try:
            with owner.emitter.region(self.region):
                prepare()
                owner.run(self.node.body)
                self.after = frame.scope
                for name in self.values:
                    self.after[name] = owner.settle(self.after[name])
                self.check()
                yielded = [
                    owner.emitter.value(part)
                    for name in self.values
                    for part in runtime_parts(self.after[name])
                ]
                self.kept = [
                    value is not argument
                    for value, argument in zip(yielded, self.arguments, strict=True)
                ]
                kept = [value for value, keep in zip(yielded, self.kept, strict=True) if keep]
                owner.mark(self.node)
                owner.builder.create("scf.yield", *kept)
        finally:
            frame.loop_depth -= 1
            frame.scope, frame.constants, frame.gone = saved

    def check(self) -> None:
        """The types at the end of the body are those before the loop."""
        for name, value in self.static.items():
            if self.after.get(name, _ABSENT) is not value and self.after.get(name) != value:
                if name in self.owner.frame.constants or isinstance(value, (bool, int, float)):
                    self.refuse(
                        name, "K205", f"{name} is a compile-time value and cannot change in a loop",
                        "copy it to another name before the loop",
                    )  # fmt: skip
                self.refuse(
                    name, "K304", f"{name} is {describe(value)} before the loop and "
                    f"{describe(self.after.get(name))} after its body",
                    f"give {name} a value of the final type before the loop",
                )  # fmt: skip
        for name, value in self.values.items():
            new = self.after[name]
            parts, old_parts = runtime_parts(new), runtime_parts(value)
            same = type(new) is type(value) and len(parts) == len(old_parts)
            if not same or any(
                a.dtype != b.dtype or a.shape != b.shape
                for a, b in zip(parts, old_parts, strict=True)
            ):
                self.refuse(
                    name, "K304", f"{name} is {describe(value)} before the loop and "
                    f"{describe(new)} after its body: a loop keeps types",
                    f"start {name} with that type, or convert with .to(dtype) inside the loop",
                )  # fmt: skip

    def refuse(self, name: str, code: str, message: str, hint: str) -> None:
        """Fail where `name` is last assigned in the body."""
        place: ast.AST = self.node
        for node in ast.walk(self.node):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
                place = node
        self.owner.fail(place, code, message, hint)

    def keep_changed(
        self, arguments: Sequence[Value] = (), condition: Region | None = None
    ) -> list[Value]:
        """Drop what the body leaves as it is; gives the initial values of the rest."""
        for region, own in ((self.region, self.arguments), (condition, list(arguments))):
            if region is None:
                continue
            for argument, initial, keep in zip(own, self.initial, self.kept, strict=True):
                if not keep:
                    argument.replace_by(initial)
                    region.args.remove(argument)
            for place, argument in enumerate(region.args):
                argument.index = place
        return [value for value, keep in zip(self.initial, self.kept, strict=True) if keep]

    def leave(self, results: Sequence[Value]) -> None:
        """Bind the carried names to the results of the loop; forget what was born inside."""
        frame, values = self.owner.frame, iter(results)
        tensors = iter([
            Tensor(next(values), part.dtype, part.shape) if keep else part
            for part, keep in zip(self.parts, self.kept, strict=True)
        ])  # fmt: skip
        for name, value in self.values.items():
            self.owner.set_name(name, rebuild(value, tensors))
        line = self.owner.line(self.node)
        for name in self.after:
            if name not in self.before:
                frame.gone[name] = f"it is set only inside the loop in line {line}"


def _assigned(owner: Statements, node: ast.For | ast.While) -> list[str]:
    """Names that the body of a loop assigns, in order."""
    known = owner.frame.source.assigned_names
    found = known.get(id(node))
    if found is None:
        names: dict[str, None] = {}
        for statement in node.body:
            for child in ast.walk(statement):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    names[child.id] = None
        found = known[id(node)] = list(names)
    return found


def _returns(node: ast.AST) -> bool:
    return any(isinstance(child, ast.Return) for child in ast.walk(node))


_EXECUTE: dict[type[ast.AST], Callable[[Any, Any], None]] = {
    ast.Assign: Statements.assign,
    ast.AnnAssign: Statements.assign_annotated,
    ast.AugAssign: Statements.assign_augmented,
    ast.Expr: Statements.expression,
    ast.For: Statements.loop,
    ast.While: Statements.while_loop,
    ast.Pass: Statements.nothing,
    ast.Assert: Statements.check,
}
