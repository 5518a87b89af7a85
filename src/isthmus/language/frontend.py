"""From a kernel's syntax tree to tile IR.

Compile-time values stay plain Python values; run-time values are `Tensor`s. Branches on
compile-time conditions are taken while building, and the other side is not even looked at.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from isthmus.core.errors import InternalError, KernelError
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function, Region
from isthmus.language import operations
from isthmus.language.semantics import Semantics
from isthmus.language.source import KernelSource, source_of
from isthmus.language.types import DTYPES, dtype, int32, int64, pointer_type
from isthmus.language.values import BlockPointer, Tensor, constexpr, is_static, unwrap

__all__ = ["build", "parse_type"]

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv), ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod), ast.BitAnd: ("&", operator.and_), ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor), ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift), ast.Pow: ("**", operator.pow),
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
}  # fmt: skip
#: Methods of run-time values that are functions of the language.
_METHODS = frozenset(
    {"to", "cast", "sum", "max", "min", "argmax", "argmin", "reshape", "view", "trans", "permute",
     "expand_dims", "broadcast_to", "ravel", "split", "cumsum", "cumprod", "abs", "exp", "exp2",
     "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "sigmoid", "xor_sum",
     "gather", "reduce", "associative_scan", "histogram", "atomic_add"}
)  # fmt: skip
_SAFE_BUILTINS: dict[str, Any] = {
    name: getattr(builtins, name)
    for name in ("range", "min", "max", "abs", "len", "int", "float", "bool", "isinstance", "print",
                 "sum", "tuple", "list", "str", "round", "pow", "getattr", "hasattr", "type",
                 "enumerate", "zip", "True", "False", "None", "AssertionError", "slice")
    if hasattr(builtins, name)
}  # fmt: skip
_PLAIN_GLOBALS = (bool, int, float, str, type(None), tuple, list)


def parse_type(text: str) -> dtype | pointer_type:
    """The language type of a signature entry such as "*f32", "i64" or "u8"."""
    if text.startswith("*"):
        body = text[1:].removeprefix("k")
        if body in DTYPES:
            return pointer_type(DTYPES[body])
    elif text in DTYPES:
        return DTYPES[text]
    raise KernelError(
        f"unknown argument type {text!r}",
        hint=f"types are {', '.join(DTYPES)}, and pointers to them such as *f32",
        code="K102",
    )


def build(
    source: KernelSource,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    attrs: Mapping[str, Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Function:
    """Build the tile IR of one specialisation of a kernel.

    signature: parameter name -> type text, for parameters that stay.
    constexprs: parameter name -> value, for parameters that are compile-time constants.
    attrs: parameter name -> facts ("divisibility", "noalias").
    options: "allow_any_block_size" lifts the power-of-two rule.

    Raises: KernelError with the place in the kernel's source.
    """
    options = options or {}
    names = [parameter for parameter in source.parameter_names if parameter in signature]
    types = [parse_type(signature[parameter]) for parameter in names]
    function = Function(name or source.name, [t.ir for t in types], names, source.location())
    for position, parameter in enumerate(names):
        function.arg_attrs[position] = dict((attrs or {}).get(parameter, {}))
    builder = Builder(function)
    sem = Semantics(builder, allow_any_block_size=bool(options.get("allow_any_block_size")))
    env: dict[str, Any] = {
        parameter: Tensor(function.args[position], types[position])
        for position, parameter in enumerate(names)
    }
    for parameter in source.parameters:
        if parameter.name in env:
            continue
        if parameter.name in constexprs:
            env[parameter.name] = unwrap(constexprs[parameter.name])
        elif parameter.default is not parameter.default.__class__ and _has_default(parameter):
            env[parameter.name] = unwrap(parameter.default)
        else:
            raise KernelError(
                f"kernel {source.name} needs parameter {parameter.name!r}",
                location=source.location(),
                code="K103",
            )
    _Body(sem, source, env, depth=0).run_kernel()
    return function


def _has_default(parameter: Any) -> bool:
    import inspect

    return parameter.default is not inspect.Parameter.empty


class _Returned:
    """The outcome of a body that ended in a return."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Body:
    """Builds the body of one function: the kernel itself, or a helper being inlined."""

    def __init__(
        self, sem: Semantics, source: KernelSource, env: dict[str, Any], depth: int
    ) -> None:
        self.sem = sem
        self.builder = sem.builder
        self.source = source
        self.env = env
        self.depth = depth
        self.loop_depth = 0

    # Entry points

    def run_kernel(self) -> None:
        result = self.statements(self.source.tree.body)
        if result is not None and result.value is not None:
            raise self.error(
                self.source.tree, "a kernel returns nothing",
                "store results through a pointer argument", "K110",
            )  # fmt: skip
        self.builder.create("func.return")

    def run_helper(self) -> Any:
        result = self.statements(self.source.tree.body)
        return None if result is None else result.value

    # Errors and places

    def error(self, node: ast.AST, message: str, hint: str | None, code: str) -> KernelError:
        return KernelError(message, location=self.source.location(node), hint=hint, code=code)

    @contextmanager
    def place(self, node: ast.AST) -> Iterator[None]:
        """Mark what is built with the place of `node`; give errors that lack one this place."""
        saved = self.builder.location
        self.builder.location = self.source.location(node)
        try:
            yield
        except KernelError as error:
            if error.location is None:
                error.location = self.builder.location
            raise
        except InternalError as error:
            raise KernelError(
                f"this cannot be built: {error.message}",
                location=self.builder.location, code="K199",
            ) from error  # fmt: skip
        finally:
            self.builder.location = saved

    # Statements

    def statements(self, body: Sequence[ast.stmt]) -> _Returned | None:
        """Build statements in order; the outcome if they ended in a return."""
        for position, statement in enumerate(body):
            with self.place(statement):
                if isinstance(statement, ast.If):
                    rest = body[position + 1 :]
                    done, outcome = self.branch(statement, rest)
                    if done:
                        return outcome
                    continue
                outcome = self.statement(statement)
                if outcome is not None:
                    return outcome
        return None

    def statement(self, node: ast.stmt) -> _Returned | None:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            raise self.error(
                node, f"a kernel cannot contain `{type(node).__name__.lower()}`",
                "kernels consist of assignments, if, for, while, calls and return", "K104",
            )  # fmt: skip
        return method(node)

    def do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def do_Pass(self, node: ast.Pass) -> None:
        del node

    def do_Return(self, node: ast.Return) -> _Returned:
        if self.loop_depth:
            raise self.error(
                node, "return inside a loop",
                "keep a flag or a mask, and return after the loop", "K111",
            )  # fmt: skip
        return _Returned(None if node.value is None else self.value(node.value))

    def do_Break(self, node: ast.Break) -> None:
        raise self.error(node, "break in a kernel", "use a while loop whose condition ends it", "K112")

    def do_Continue(self, node: ast.Continue) -> None:
        raise self.error(node, "continue in a kernel", "put the rest of the body under an if", "K112")

    def do_Assert(self, node: ast.Assert) -> None:
        condition = self.value(node.test)
        if is_static(condition) and not condition:
            message = self.value(node.msg) if node.msg is not None else "condition is false"
            raise self.error(node, f"assertion failed: {message}", None, "K213")

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            raise self.error(node, "an annotation without a value", None, "K104")
        value = self.value(node.value)
        if ast.unparse(node.annotation).endswith("constexpr") and not is_static(value):
            raise self.error(
                node, "a constexpr is assigned a run-time value",
                "leave the annotation out", "K214",
            )  # fmt: skip
        self.assign(node.target, value)

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.error(node, "only names can be assigned", None, "K104")
        left = self.name(node.target)
        self.env[node.target.id] = self.binary(node, node.op, left, self.value(node.value))

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
            if isinstance(value, Tensor) and value.handle.hint is None:
                value.handle.hint = target.id
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = unwrap(value)
            if not isinstance(items, (tuple, list)) or len(items) != len(target.elts):
                raise self.error(
                    target, f"expected {len(target.elts)} values to unpack, got {items!r}",
                    None, "K105",
                )  # fmt: skip
            for part, item in zip(target.elts, items, strict=True):
                self.assign(part, item)
        else:
            raise self.error(
                target, "only names can be assigned",
                "write to memory with tl.store", "K104",
            )  # fmt: skip

    # Branches

    def branch(
        self, node: ast.If, rest: Sequence[ast.stmt]
    ) -> tuple[bool, _Returned | None]:
        """An if statement: (whether it swallowed the rest of the body, the outcome)."""
        condition = self.value(node.test)
        if is_static(condition):
            outcome = self.statements(node.body if unwrap(condition) else node.orelse)
            return (outcome is not None), outcome
        condition = self.scalar_condition(node.test, condition)
        if any(isinstance(inner, ast.Return) for part in (node.body, node.orelse)
               for statement in part for inner in ast.walk(statement)):  # fmt: skip
            if self.loop_depth:
                raise self.error(
                    node, "return inside a loop",
                    "keep a flag or a mask, and return after the loop", "K111",
                )  # fmt: skip
            return True, self.returning_branch(node, condition, rest)
        self.plain_branch(node, condition)
        return False, None

    def scalar_condition(self, node: ast.expr, condition: Any) -> Tensor:
        if not isinstance(condition, Tensor):
            raise self.error(node, f"expected a truth value, got {condition!r}", None, "K106")
        if condition.shape:
            raise self.error(
                node, f"a condition is one truth value, got a block of shape {list(condition.shape)}",
                "use tl.where for blocks, or reduce the block to one value", "K106",
            )  # fmt: skip
        return self.sem.truth(condition)

    def plain_branch(self, node: ast.If, condition: Tensor) -> None:
        before = dict(self.env)
        regions, envs = [], []
        for part in (node.body, node.orelse):
            self.env = dict(before)
            region = Region()
            with self.builder.at(region):
                self.statements(part)
            regions.append(region)
            envs.append(self.env)
        names = [
            name for name in envs[0]
            if name in envs[1]
            and (envs[0][name] is not before.get(name, _MISSING)
                 or envs[1][name] is not before.get(name, _MISSING))
        ]  # fmt: skip
        self.env = {name: value for name, value in envs[0].items() if name in before}
        merged: list[tuple[str, Any, list[Tensor], list[Tensor]]] = []
        for name in names:
            a, b = envs[0][name], envs[1][name]
            if _same_static(a, b):
                self.env[name] = a
                continue
            with self.builder.at(regions[0]):
                left = self.flatten_like(node, name, a, b)
            with self.builder.at(regions[1]):
                right = self.flatten_like(node, name, b, a)
            if left is None or right is None:
                if name in before:
                    raise self.error(
                        node, f"{name!r} is {_kind(a)} on one side of the branch and {_kind(b)} on "
                        "the other", "give it one type on both sides", "K301",
                    )  # fmt: skip
                continue
            for x, y in zip(left, right, strict=True):
                if x.dtype != y.dtype or x.shape != y.shape:
                    raise self.error(
                        node, f"{name!r} is {x.type} on one side of the branch and {y.type} on the "
                        "other", f"convert with {name}.to(...) on one side", "K301",
                    )  # fmt: skip
            merged.append((name, a if not is_static(a) else b, left, right))
        for region, side in zip(regions, (2, 3), strict=True):
            with self.builder.at(region):
                handles = [t.handle for entry in merged for t in entry[side]]  # type: ignore[union-attr]
                self.builder.create("scf.yield", *handles)
        types = [tensor.handle.type for entry in merged for tensor in entry[2]]
        op = self.builder.create("scf.if", condition.handle, type=types, regions=regions)
        results = iter(op.results)
        for name, like, left, _ in merged:
            leaves = [Tensor(next(results), tensor.dtype, tensor.shape) for tensor in left]
            self.env[name] = _rebuild(like, iter(leaves))

    def returning_branch(
        self, node: ast.If, condition: Tensor, rest: Sequence[ast.stmt]
    ) -> _Returned:
        """A branch with returns inside: what follows moves into the sides that go on."""
        before = self.env
        regions, outcomes = [], []
        for part in (node.body, node.orelse):
            self.env = dict(before)
            region = Region()
            with self.builder.at(region):
                outcome = self.statements([*part, *rest])
            regions.append(region)
            outcomes.append(None if outcome is None else outcome.value)
        self.env = before
        a, b = outcomes
        if a is None and b is None:
            for region in regions:
                with self.builder.at(region):
                    self.builder.create("scf.yield")
            self.builder.create("scf.if", condition.handle, type=[], regions=regions)
            return _Returned(None)
        with self.builder.at(regions[0]):
            left = self.flatten_like(node, "return value", a, b)
        with self.builder.at(regions[1]):
            right = self.flatten_like(node, "return value", b, a)
        if left is None or right is None or [(t.dtype, t.shape) for t in left] != [
            (t.dtype, t.shape) for t in right
        ]:
            raise self.error(
                node, f"one side of the branch returns {_kind(a)}, the other {_kind(b)}",
                "return values of one type on both sides", "K301",
            )  # fmt: skip
        for region, leaves in zip(regions, (left, right), strict=True):
            with self.builder.at(region):
                self.builder.create("scf.yield", *(leaf.handle for leaf in leaves))
        op = self.builder.create(
            "scf.if", condition.handle, type=[leaf.handle.type for leaf in left], regions=regions
        )
        results = iter(
            Tensor(value, leaf.dtype, leaf.shape)
            for value, leaf in zip(op.results, left, strict=True)
        )
        return _Returned(_rebuild(a if not is_static(a) else b, results))

    def flatten_like(self, node: ast.AST, name: str, value: Any, other: Any) -> list[Tensor] | None:
        """The run-time parts of `value`, numbers turned into the type that `other` has there."""
        del node, name
        value, other = unwrap(value), unwrap(other)
        if isinstance(value, Tensor):
            return [value]
        if isinstance(value, BlockPointer):
            return list(value.offsets) if isinstance(other, BlockPointer) else None
        if isinstance(value, (tuple, list)):
            if not isinstance(other, (tuple, list)) or len(other) != len(value):
                return None
            parts: list[Tensor] = []
            for item, counterpart in zip(value, other, strict=True):
                inner = self.flatten_like(None, "", item, counterpart)  # type: ignore[arg-type]
                if inner is None:
                    return None
                parts += inner
            return parts
        if isinstance(value, (bool, int, float)):
            if isinstance(other, Tensor) and isinstance(other.dtype, dtype):
                own = self.sem.literal_type(value)
                if own.is_floating() and not other.dtype.is_floating():
                    return [self.sem.to_tensor(value)]
                return [self.sem.constant(value, other.dtype, other.shape)]
            return [self.sem.to_tensor(value)]
        return None

    # Loops

    def do_For(self, node: ast.For) -> None:
        if node.orelse:
            raise self.error(node, "for with else", "put the statements after the loop", "K104")
        call = node.iter
        if isinstance(call, ast.Call):
            callee = self.value(call.func)
            arguments = [self.value(argument) for argument in call.args]
            keywords = {k.arg: self.value(k.value) for k in call.keywords if k.arg is not None}
            if callee is operations.static_range:
                self.unrolled(node, range(*(self.static_int(call, a) for a in arguments)))
                return
            if callee is operations.range or callee is builtins.range:
                bounds = [keywords.pop(n) for n in ("start", "stop", "end") if n in keywords]
                self.counted(node, [*arguments, *bounds], keywords)
                return
        iterable = self.value(call)
        if isinstance(iterable, (tuple, list)):
            self.unrolled(node, iterable)
            return
        raise self.error(
            call, "a loop runs over range, tl.range, tl.static_range or a tuple", None, "K113"
        )

    def static_int(self, node: ast.AST, value: Any) -> int:
        number = unwrap(value)
        if isinstance(number, bool) or not isinstance(number, int):
            raise self.error(
                node, f"expected a compile-time integer, got {_kind(value)}",
                "annotate the parameter with tl.constexpr, or use range", "K210",
            )  # fmt: skip
        return number

    def unrolled(self, node: ast.For, items: Any) -> None:
        self.loop_depth += 1
        for item in items:
            self.assign(node.target, item)
            self.statements(node.body)
        self.loop_depth -= 1

    def counted(self, node: ast.For, bounds: list[Any], hints: dict[str, Any]) -> None:
        if not 1 <= len(bounds) <= 3:
            raise self.error(node.iter, "range takes one to three numbers", None, "K113")
        lower, upper, step = (
            (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1) if len(bounds) == 2 else bounds
        )
        tensors = []
        for bound in (lower, upper, step):
            tensor = self.sem.to_tensor(bound)
            if tensor.shape or not isinstance(tensor.dtype, dtype) or not tensor.dtype.is_int():
                raise self.error(
                    node.iter, f"range takes integers, got {tensor.type}",
                    "convert with x.to(tl.int32)", "K113",
                )  # fmt: skip
            tensors.append(tensor)
        wide = any(t.dtype.primitive_bitwidth == 64 for t in tensors)
        index_type = int64 if wide else int32
        lower, upper, step = (self.sem.cast(t, index_type) for t in tensors)
        known_step = unwrap(bounds[2]) if len(bounds) == 3 else 1
        reverse = isinstance(known_step, int) and known_step < 0
        if isinstance(known_step, int) and known_step == 0:
            raise self.error(node.iter, "the step of range is 0", None, "K113")
        if reverse:  # count up, and mirror the index
            span = self.sem.binary("-", lower, upper)
            trips_by = self.sem.constant(-known_step, index_type)
            start, lower, upper, step = lower, self.sem.constant(0, index_type), span, trips_by
        names, initial = self.carried(node)
        leaves = [leaf for name in names for leaf in initial[name]]
        op, region = self.builder.for_loop(
            lower.handle, upper.handle, step.handle, [leaf.handle for leaf in leaves],
            **({"unroll": hints["loop_unroll_factor"]}
               if isinstance(hints.get("loop_unroll_factor"), int) else {}),
        )  # fmt: skip
        before = dict(self.env)
        arguments = iter(region.args[1:])
        for name in names:
            fresh = [Tensor(next(arguments), leaf.dtype, leaf.shape) for leaf in initial[name]]
            self.env[name] = _rebuild(before[name], iter(fresh))
        self.loop_depth += 1
        with self.builder.at(region):
            index = Tensor(region.args[0], index_type)
            self.assign(node.target, self.sem.binary("-", start, index) if reverse else index)
            self.statements(node.body)
            self.builder.create("scf.yield", *self.yielded(node, names, initial, before))
        self.loop_depth -= 1
        self.leave_loop(names, initial, before, op.results)

    def do_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self.error(node, "while with else", "put the statements after the loop", "K104")
        names, initial = self.carried(node)
        leaves = [leaf for name in names for leaf in initial[name]]
        types = [leaf.handle.type for leaf in leaves]
        condition_region, body_region = Region(types), Region(types)
        before = dict(self.env)

        def enter(region: Region) -> None:
            arguments = iter(region.args)
            for name in names:
                fresh = [Tensor(next(arguments), leaf.dtype, leaf.shape) for leaf in initial[name]]
                self.env[name] = _rebuild(before[name], iter(fresh))

        enter(condition_region)
        with self.builder.at(condition_region):
            condition = self.value(node.test)
            if is_static(condition):
                condition = self.sem.to_tensor(bool(condition))
            truth = self.scalar_condition(node.test, condition)
            self.builder.create("scf.condition", truth.handle, *condition_region.args)
        self.env = dict(before)
        enter(body_region)
        self.loop_depth += 1
        with self.builder.at(body_region):
            self.statements(node.body)
            self.builder.create("scf.yield", *self.yielded(node, names, initial, before))
        self.loop_depth -= 1
        op = self.builder.create(
            "scf.while", *(leaf.handle for leaf in leaves), type=types,
            regions=[condition_region, body_region],
        )  # fmt: skip
        self.leave_loop(names, initial, before, op.results)

    def carried(self, node: ast.For | ast.While) -> tuple[list[str], dict[str, list[Tensor]]]:
        """Names that the loop assigns and that exist before it, with their run-time parts."""
        assigned: dict[str, None] = {}
        targets: set[str] = set()
        if isinstance(node, ast.For):
            targets = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        for statement in node.body:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    assigned[inner.id] = None
        names, initial = [], {}
        for name in assigned:
            if name not in self.env or name in targets:
                continue
            value = unwrap(self.env[name])
            leaves = self.leaves(value)
            if leaves is not None:
                names.append(name)
                initial[name] = leaves
                if is_static(value):
                    self.env[name] = _rebuild(value, iter(leaves))
        return names, initial

    def leaves(self, value: Any) -> list[Tensor] | None:
        if isinstance(value, Tensor):
            return [value]
        if isinstance(value, BlockPointer):
            return list(value.offsets)
        if isinstance(value, (tuple, list)):
            parts = [self.leaves(unwrap(item)) for item in value]
            if any(part is None for part in parts):
                return None
            return [leaf for part in parts for leaf in part or ()]
        if isinstance(value, (bool, int, float)):
            return [self.sem.to_tensor(value)]
        return None

    def yielded(
        self, node: ast.stmt, names: list[str], initial: dict[str, list[Tensor]],
        before: dict[str, Any],
    ) -> list[Any]:  # fmt: skip
        handles = []
        for name in names:
            like = before[name]
            parts = self.flatten_like(node, name, self.env[name], like)
            if parts is None or len(parts) != len(initial[name]):
                raise self.error(
                    node, f"{name!r} is {_kind(like)} before the loop and "
                    f"{_kind(self.env[name])} after a turn", "keep one type in a loop", "K302",
                )  # fmt: skip
            for part, start in zip(parts, initial[name], strict=True):
                if part.dtype != start.dtype or part.shape != start.shape:
                    raise self.error(
                        node, f"{name!r} is {start.type} before the loop and {part.type} after a "
                        "turn", f"give it its final type before the loop, or convert with "
                        f"{name}.to(...) at the end of the body", "K302",
                    )  # fmt: skip
                handles.append(part.handle)
        return handles

    def leave_loop(
        self, names: list[str], initial: dict[str, list[Tensor]], before: dict[str, Any],
        results: Sequence[Any],
    ) -> None:  # fmt: skip
        self.env = dict(before)
        values = iter(results)
        for name in names:
            fresh = [Tensor(next(values), leaf.dtype, leaf.shape) for leaf in initial[name]]
            self.env[name] = _rebuild(before[name], iter(fresh))

    # Expressions

    def value(self, node: ast.expr) -> Any:
        method = getattr(self, f"get_{type(node).__name__}", None)
        if method is None:
            raise self.error(
                node, f"a kernel cannot contain `{ast.unparse(node)}`", None, "K104"
            )
        with self.place(node):
            return unwrap(method(node))

    def get_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def get_Name(self, node: ast.Name) -> Any:
        return self.name(node)

    def name(self, node: ast.Name) -> Any:
        if node.id in self.env:
            return self.env[node.id]
        try:
            value = self.source.lookup(node.id)
        except NameError:
            if node.id in _SAFE_BUILTINS:
                return _SAFE_BUILTINS[node.id]
            raise self.error(
                node, f"{node.id!r} has no value here",
                "a name assigned inside a branch or loop is not visible after it; "
                "assign it before", "K107",
            ) from None  # fmt: skip
        if isinstance(value, constexpr):
            return value.value
        if isinstance(value, _PLAIN_GLOBALS) and not self.is_constexpr_global(node.id):
            raise self.error(
                node, f"the global {node.id!r} is not a constexpr",
                f"write {node.id} = tl.constexpr({value!r}), or pass it as a parameter", "K108",
            )  # fmt: skip
        return value

    def is_constexpr_global(self, name: str) -> bool:
        annotation = self.source.fn.__globals__.get("__annotations__", {}).get(name)
        is_marked = annotation is constexpr or str(annotation).endswith("constexpr")
        return is_marked or name.startswith("__")

    def get_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.value(item) for item in node.elts)

    def get_List(self, node: ast.List) -> Any:
        return [self.value(item) for item in node.elts]

    def get_JoinedStr(self, node: ast.JoinedStr) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
            else:
                assert isinstance(part, ast.FormattedValue), "an f-string has texts and values"
                parts.append(str(self.value(part.value)))
        return "".join(parts)

    def get_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Tensor):
            if node.attr in ("dtype", "shape", "type", "numel"):
                return getattr(owner, node.attr)
            if node.attr == "T":
                return operations.trans(owner, sem=self.sem)
            if node.attr in _METHODS:
                function = getattr(operations, "cast" if node.attr == "to" else node.attr)
                return _Method(function, owner)
            raise self.error(
                node, f"a block has no {node.attr!r}",
                "it has dtype, shape, T and the functions of tl as methods", "K109",
            )  # fmt: skip
        if isinstance(owner, BlockPointer):
            if node.attr == "load":
                return _Method(operations.descriptor_load, owner)
            if node.attr == "store":
                return _Method(operations.descriptor_store, owner)
            if node.attr in ("shape", "strides", "base"):
                return getattr(owner, node.attr)
            if node.attr == "dtype":
                return owner.base.dtype
        try:
            found = getattr(owner, node.attr)
        except AttributeError:
            what = owner.__name__ if isinstance(owner, ModuleType) else repr(owner)
            raise self.error(
                node, f"{what} has no {node.attr!r}",
                "docs/language.md lists the functions of the language", "K109",
            ) from None  # fmt: skip
        if callable(found) and hasattr(found, "__self__") and isinstance(owner, (dtype,)):
            return found
        return found

    def get_Subscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Tensor):
            return self.index_block(node, owner)
        index = node.slice
        if isinstance(index, ast.Slice):
            parts = [None if p is None else self.value(p) for p in (index.lower, index.upper, index.step)]
            return owner[slice(*parts)]
        key = self.value(index)
        if not is_static(key):
            raise self.error(node, "a tuple is indexed by a compile-time integer", None, "K210")
        return owner[key]

    def index_block(self, node: ast.Subscript, block: Tensor) -> Tensor:
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        axis, result = 0, block
        for item in items:
            if isinstance(item, ast.Constant) and item.value is None:
                result = self.sem.expand_dims(result, axis)
            elif not (isinstance(item, ast.Slice) and item.lower is item.upper is item.step is None):
                raise self.error(
                    node, "a block is indexed by : and None only",
                    "load the part that you need, or use tl.where / tl.gather", "K114",
                )  # fmt: skip
            axis += 1
        return result

    def get_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.value(node.operand)
        if not isinstance(operand, Tensor):
            if isinstance(node.op, ast.Not):
                return not operand
            functions = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
            return functions[type(node.op)](operand)
        if isinstance(node.op, ast.USub):
            return self.sem.negate(operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        if isinstance(node.op, ast.Not):
            return self.sem.logical_not(operand)
        return self.sem.invert(operand)

    def get_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node, node.op, self.value(node.left), self.value(node.right))

    def binary(self, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
        entry = _BINARY.get(type(op))
        if entry is None:
            raise self.error(node, "this operator is not part of the language", "use tl.dot for @", "K104")
        symbol, function = entry
        left, right = unwrap(left), unwrap(right)
        if is_static(left) and is_static(right):
            try:
                return function(left, right)
            except (ArithmeticError, TypeError, ValueError) as error:
                raise self.error(node, f"{left!r} {symbol} {right!r}: {error}", None, "K202") from None
        if symbol == "**":
            if isinstance(right, int) and not isinstance(right, bool) and 1 <= right <= 4:
                result = left
                for _ in range(right - 1):
                    result = self.sem.binary("*", result, left)
                return result
            return operations.pow(left, right, sem=self.sem)
        for value in (left, right):
            if isinstance(value, (tuple, list)):
                if symbol == "+" and isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
                    return tuple(left) + tuple(right)
                raise self.error(node, f"{symbol} does not take {_kind(value)}", None, "K202")
        return self.sem.binary(symbol, left, right)

    def get_Compare(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        result: Any = None
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            if isinstance(op, (ast.Is, ast.IsNot)):
                same = left is right or (is_static(left) and is_static(right) and left == right
                                         and type(left) is type(right))  # fmt: skip
                part: Any = same if isinstance(op, ast.Is) else not same
            elif isinstance(op, (ast.In, ast.NotIn)):
                part = (left in right) == isinstance(op, ast.In)
            else:
                symbol, function = _COMPARE[type(op)]
                if is_static(left) and is_static(right):
                    part = function(left, right)
                elif left is None or right is None:
                    part = symbol == "!="
                else:
                    part = self.sem.compare(symbol, left, right)
            result = part if result is None else self.both(result, part)
            left = right
        return result

    def both(self, left: Any, right: Any) -> Any:
        if is_static(left):
            return right if left else left
        if is_static(right):
            return left if right else right
        return self.sem.binary("&", left, right)

    def get_BoolOp(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        result = self.value(node.values[0])
        for item in node.values[1:]:
            if is_static(result):
                if bool(result) != is_and:
                    return result
                result = self.value(item)
                continue
            right = self.value(item)
            if is_static(right):
                if bool(right) == is_and:
                    continue
                return right
            left, right = self.sem.truth(result), self.sem.truth(right)
            result = self.sem.binary("&" if is_and else "|", left, right)
        return result

    def get_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.value(node.test)
        if is_static(condition):
            return self.value(node.body if condition else node.orelse)
        if condition.shape:
            raise self.error(
                node.test, "a condition is one truth value, got a block",
                "use tl.where for blocks", "K106",
            )  # fmt: skip
        regions, values = [], []
        for part in (node.body, node.orelse):
            region = Region()
            with self.builder.at(region):
                values.append(self.value(part))
            regions.append(region)
        a, b = values
        with self.builder.at(regions[0]):
            left = self.flatten_like(node, "", a, b)
        with self.builder.at(regions[1]):
            right = self.flatten_like(node, "", b, a)
        if left is None or right is None or [(t.dtype, t.shape) for t in left] != [
            (t.dtype, t.shape) for t in right
        ]:
            raise self.error(
                node, f"one side is {_kind(a)}, the other {_kind(b)}",
                "convert both to one type", "K301",
            )  # fmt: skip
        for region, parts in zip(regions, (left, right), strict=True):
            with self.builder.at(region):
                self.builder.create("scf.yield", *(part.handle for part in parts))
        op = self.builder.create(
            "scf.if", self.sem.truth(condition).handle,
            type=[part.handle.type for part in left], regions=regions,
        )  # fmt: skip
        fresh = iter(
            Tensor(value, part.dtype, part.shape)
            for value, part in zip(op.results, left, strict=True)
        )
        return _rebuild(a if not is_static(a) else b, fresh)

    def get_ListComp(self, node: ast.ListComp) -> Any:
        if len(node.generators) != 1:
            raise self.error(node, "one loop per comprehension", None, "K104")
        generator = node.generators[0]
        saved, results = dict(self.env), []
        iterable = self.value(generator.iter)
        if not isinstance(iterable, (tuple, list, range)):
            raise self.error(node, "a comprehension runs over compile-time items", None, "K113")
        for item in iterable:
            self.assign(generator.target, item)
            if all(self.value(test) for test in generator.ifs):
                results.append(self.value(node.elt))
        self.env = saved
        return results

    def get_Lambda(self, node: ast.Lambda) -> Any:
        raise self.error(node, "lambda in a kernel", "write a helper with @isthmus.jit", "K104")

    # Calls

    def get_Call(self, node: ast.Call) -> Any:
        callee = self.value(node.func)
        arguments: list[Any] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                arguments += list(self.value(argument.value))
            else:
                arguments.append(self.value(argument))
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                keywords.update(self.value(keyword.value))
            else:
                keywords[keyword.arg] = self.value(keyword.value)
        return self.call(node, callee, arguments, keywords)

    def call(
        self, node: ast.AST, callee: Any, arguments: list[Any], keywords: dict[str, Any]
    ) -> Any:
        if isinstance(callee, _Method):
            arguments = [callee.owner, *arguments]
            callee = callee.function
        source = source_of(callee)
        if source is not None:
            return self.inline(node, source, arguments, keywords)
        if getattr(callee, "is_builtin", False):
            return self.call_builtin(node, callee, arguments, keywords)
        everything_static = is_static(arguments) and is_static(list(keywords.values()))
        name = getattr(callee, "__name__", repr(callee))
        if not everything_static:
            if callee in (builtins.min, builtins.max):
                result = arguments[0]
                for other in arguments[1:]:
                    result = self.sem.binary(name, result, other) if not (
                        is_static(result) and is_static(other)) else callee(result, other)  # fmt: skip
                return result
            if callee is builtins.abs:
                return operations.abs(*arguments, sem=self.sem)
            if callee is builtins.len:
                subject = arguments[0]
                return subject.shape[0] if isinstance(subject, Tensor) else len(subject)
            if callee in (builtins.int, builtins.float, builtins.bool):
                to = {"int": int32, "float": DTYPES["f32"], "bool": DTYPES["i1"]}[name]
                return self.sem.cast(arguments[0], to)
            if callee is builtins.isinstance:
                return isinstance(arguments[0], arguments[1])
            if callee is builtins.tuple or callee is builtins.list:
                return callee(arguments[0])
            if callee is builtins.print:
                return operations.device_print(*arguments, sem=self.sem)
            if name == "cdiv":
                return operations.cdiv(*arguments, sem=self.sem, **keywords)
            if isinstance(callee, type) and issubclass(callee, tuple):
                return callee(*arguments, **keywords)
        if isinstance(callee, dtype):
            return operations.cast(arguments[0], callee, sem=self.sem)
        if everything_static and callable(callee):
            try:
                return callee(*arguments, **keywords)
            except KernelError:
                raise
            except Exception as error:
                raise self.error(node, f"{name} failed: {error}", None, "K115") from error
        raise self.error(
            node, f"{name} cannot be called in a kernel",
            "call functions of tl, kernels decorated with @isthmus.jit, or Python functions on "
            "compile-time values", "K115",
        )  # fmt: skip

    def call_builtin(
        self, node: ast.AST, callee: Any, arguments: list[Any], keywords: dict[str, Any]
    ) -> Any:
        context = getattr(callee, "context_name", "sem")
        if getattr(callee, "takes_body", False):
            keywords["body"] = self
        try:
            return callee(*arguments, **keywords, **{context: self.sem})
        except TypeError as error:
            text = str(error)
            if "argument" not in text:
                raise
            raise self.error(
                node, f"tl.{callee.__name__}: {text.split('() ')[-1]}",
                "docs/language.md lists its parameters", "K116",
            ) from error  # fmt: skip

    def inline(
        self, node: ast.AST, source: KernelSource, arguments: list[Any], keywords: dict[str, Any]
    ) -> Any:
        """Build a helper's body in place of the call."""
        if self.depth > 50:
            raise self.error(node, f"{source.name} calls itself without end", None, "K117")
        parameters = source.parameters
        if len(arguments) > len(parameters) and not source.has_varargs:
            raise self.error(
                node, f"{source.name} takes {len(parameters)} arguments, got {len(arguments)}",
                None, "K116",
            )  # fmt: skip
        env: dict[str, Any] = {}
        for position, parameter in enumerate(parameters):
            if source.tree.args.vararg is not None and parameter.name == source.tree.args.vararg.arg:
                env[parameter.name] = tuple(arguments[position:])
            elif position < len(arguments):
                env[parameter.name] = arguments[position]
            elif parameter.name in keywords:
                env[parameter.name] = keywords.pop(parameter.name)
            elif _has_default(parameter):
                env[parameter.name] = unwrap(parameter.default)
            else:
                raise self.error(
                    node, f"{source.name} needs argument {parameter.name!r}", None, "K116"
                )
            if parameter.is_constexpr and not is_static(env[parameter.name]):
                raise self.error(
                    node, f"{source.name} needs a compile-time value for {parameter.name!r}",
                    "pass a constant, or a parameter annotated with tl.constexpr", "K210",
                )  # fmt: skip
        unknown = [name for name in keywords if name not in env]
        if unknown:
            raise self.error(node, f"{source.name} has no argument {unknown[0]!r}", None, "K116")
        return _Body(self.sem, source, env, self.depth + 1).run_helper()


class _Method:
    """A function of the language bound to its first argument."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Any, owner: Any) -> None:
        self.function = function
        self.owner = owner


class _Missing:
    pass


_MISSING = _Missing()


def _same_static(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if not is_static(a) or not is_static(b) or type(a) is not type(b):
        return False
    return bool(a == b)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(value.type)
    if isinstance(value, BlockPointer):
        return "a block pointer"
    return repr(value)


def _rebuild(like: Any, leaves: Iterator[Tensor]) -> Any:
    """A value shaped like `like` whose run-time parts come from `leaves`."""
    like = unwrap(like)
    if isinstance(like, BlockPointer):
        return like.moved(tuple(next(leaves) for _ in like.offsets))
    if isinstance(like, (tuple, list)):
        items = [_rebuild(item, leaves) for item in like]
        if hasattr(like, "_fields"):
            return type(like)(*items)
        return type(like)(items)
    return next(leaves)
