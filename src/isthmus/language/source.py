"""Kernel source: a Python function's text, syntax tree, parameters, and what it depends on."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from isthmus.core.errors import KernelError
from isthmus.core.location import Location

__all__ = ["KernelSource", "Parameter", "source_of"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel. `default` is `inspect.Parameter.empty` where there is none."""

    name: str
    is_constexpr: bool
    default: Any


def source_of(value: Any) -> KernelSource | None:
    """The source of a decorated kernel or helper; None for anything else."""
    source = getattr(value, "source", None)
    return source if isinstance(source, KernelSource) else None


class KernelSource:
    """Text, syntax tree and parameters of the function `fn`.

    Raises: KernelError when the source text of `fn` cannot be had (typed at a prompt).
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.file = inspect.getsourcefile(fn) or "<unknown>"
        try:
            lines, self.first_line = inspect.getsourcelines(fn)
        except OSError:
            raise KernelError(
                f"the source of kernel {self.name} cannot be read",
                hint="define kernels in a file, not at a prompt",
                code="K100",
            ) from None
        raw = "".join(lines)
        self.text = textwrap.dedent(raw)
        self.indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
        tree = ast.parse(self.text).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise KernelError(f"{self.name} is not a function definition", code="K100")
        self.tree = tree
        signature = inspect.signature(fn)
        annotations = {
            argument.arg: ast.unparse(argument.annotation)
            for argument in [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]
            if argument.annotation is not None
        }
        self.parameters = [
            Parameter(
                name, annotations.get(name, "").strip("'\"").endswith("constexpr"), entry.default
            )
            for name, entry in signature.parameters.items()
        ]
        self.has_varargs = tree.args.vararg is not None
        self._names: list[tuple[str, ...]] | None = None
        self._text_digest = hashlib.sha256(ast.unparse(tree).encode()).hexdigest()

    @property
    def parameter_names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]

    def location(self, node: ast.AST | None = None) -> Location:
        """Where `node` stands in its file; the function's first line without a node."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", None)
        if getattr(node, "end_lineno", line) != line or end is None:
            end = column + 1
        return Location(
            self.file,
            self.first_line + line - 1,
            column + self.indent + 1,
            end + self.indent + 1,
        )

    def lookup(self, name: str) -> Any:
        """The value of a global, closure or builtin name. Raises NameError."""
        closure = self.fn.__closure__
        if closure is not None:
            for free, cell in zip(self.fn.__code__.co_freevars, closure, strict=True):
                if free == name:
                    try:
                        return cell.cell_contents
                    except ValueError:
                        raise NameError(name) from None
        if name in self.fn.__globals__:
            return self.fn.__globals__[name]
        raise NameError(name)

    def _referenced(self) -> list[tuple[str, ...]]:
        """Dotted names that the body reads, once each."""
        if self._names is None:
            found: dict[tuple[str, ...], None] = {}
            for node in ast.walk(self.tree):
                parts: list[str] = []
                while isinstance(node, ast.Attribute):
                    parts.append(node.attr)
                    node = node.value
                if isinstance(node, ast.Name):
                    found[(node.id, *reversed(parts))] = None
            self._names = list(found)
        return self._names

    def _globals(self) -> Iterator[tuple[str, Any]]:
        local = set(self.parameter_names)
        for dotted in self._referenced():
            if dotted[0] in local:
                continue
            try:
                value = self.lookup(dotted[0])
            except NameError:
                continue
            for part in dotted[1:]:
                if not isinstance(value, ModuleType) or not hasattr(value, part):
                    break
                value = getattr(value, part)
            yield ".".join(dotted), value

    def dependencies(self) -> dict[str, Any]:
        """Helper kernels and plain global values that the body names, by dotted name."""
        found: dict[str, Any] = {}
        for name, value in self._globals():
            if source_of(value) is not None or _plain(value) is not None:
                found[name] = value
        return found

    def fingerprint(self) -> str:
        """A digest of this source, of all helpers it reaches, and of the globals they read."""
        seen: dict[int, None] = {}
        digest = hashlib.sha256()
        self._feed(digest, seen)
        return digest.hexdigest()

    def _feed(self, digest: Any, seen: dict[int, None]) -> None:
        if id(self) in seen:
            return
        seen[id(self)] = None
        digest.update(self._text_digest.encode())
        for name, value in self.dependencies().items():
            source = source_of(value)
            digest.update(name.encode())
            if source is not None:
                source._feed(digest, seen)
            else:
                digest.update(str(_plain(value)).encode())


def _plain(value: Any) -> str | None:
    """A text for values that can be compile-time constants; None for all others."""
    inner = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if isinstance(inner, (bool, int, float, str, bytes, type(None))):
        return repr(inner)
    if isinstance(inner, tuple) and all(_plain(item) is not None for item in inner):
        return repr(inner)
    return None
