"""Kernel source: a Python function's text, syntax tree, parameters, and what it depends on."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from isthmus.core.errors import KernelError
from isthmus.core.location import Location
from isthmus.language.types import block_type, dtype, pointer_type
from isthmus.language.values import constexpr, unwrap

__all__ = ["Helper", "KernelSource", "Parameter", "helper", "source_of"]

_MISSING = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: `default` is `inspect.Parameter.empty` where there is none."""

    name: str
    is_constexpr: bool
    default: Any
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD

    @property
    def has_default(self) -> bool:
        return self.default is not _MISSING


class KernelSource:
    """The Python function `fn` as source: text, syntax tree, parameters, dependencies.

    `text` replaces what `inspect` finds, for functions that were generated; `file` and
    `first_line` then say where errors point to.
    Raises: KernelError K100 when the source cannot be had.
    """

    def __init__(
        self, fn: Callable[..., Any], text: str | None = None, file: str | None = None
    ) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.file = file or fn.__code__.co_filename
        self.first_line = fn.__code__.co_firstlineno
        self._given = text
        self._text: str | None = None
        self._tree: ast.FunctionDef | None = None
        self._indent = 0
        self._globals_read: list[tuple[str, ...]] | None = None
        self._digest: str | None = None
        self._locations: dict[int, Location] = {}
        #: Loop node id -> names its body assigns; kept by the front end.
        self.assigned_names: dict[int, list[str]] = {}
        self.parameters = tuple(
            Parameter(one.name, _is_constexpr(one.annotation), unwrap(one.default), one.kind)
            for one in inspect.signature(fn).parameters.values()
        )

    def __repr__(self) -> str:
        return f"<KernelSource {self.name}>"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @property
    def constexpr_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters if parameter.is_constexpr)

    @property
    def text(self) -> str:
        """The function's source text, indented as if it stood at the margin."""
        if self._text is None:
            if self._given is not None:
                lines = self._given.splitlines(keepends=True)
            else:
                try:
                    lines, self.first_line = inspect.getsourcelines(self.fn)
                except (OSError, TypeError):
                    raise KernelError(
                        f"the source of kernel {self.name} cannot be read",
                        hint="define kernels in a file (or a notebook cell), not by exec",
                        code="K100",
                    ) from None
            first = next((line for line in lines if line.strip()), "")
            self._indent = len(first) - len(first.lstrip())
            self._text = textwrap.dedent("".join(lines))
        return self._text

    @property
    def tree(self) -> ast.FunctionDef:
        """The syntax tree; line numbers count from the function's first line."""
        if self._tree is None:
            found = ast.parse(self.text).body
            if len(found) != 1 or not isinstance(found[0], ast.FunctionDef):
                raise KernelError(
                    f"{self.name} is not a plain function",
                    hint="a kernel is one `def`: no lambda, no async",
                    code="K100",
                )
            self._tree = found[0]
        return self._tree

    def location(self, node: ast.AST | None = None) -> Location:
        """Where `node` stands in its file; the function itself without a node."""
        known = self._locations.get(id(node))
        if known is not None:
            return known
        if node is not None:
            self.text  # noqa: B018  (sets the first line and the indent)
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", None)
        if end is None or getattr(node, "end_lineno", line) != line:
            end = column + 1
        found = Location(
            self.file,
            self.first_line + line - 1,
            column + self._indent + 1,
            end + self._indent + 1,
        )
        if node is not None:
            self._locations[id(node)] = found
        return found

    def lookup(self, name: str) -> Any:
        """The value of a global or closure name. Raises NameError."""
        names = self.fn.__code__.co_freevars
        if name in names:
            assert self.fn.__closure__ is not None, "free names have cells"
            try:
                return self.fn.__closure__[names.index(name)].cell_contents
            except ValueError:
                raise NameError(name) from None
        try:
            return self.fn.__globals__[name]
        except KeyError:
            raise NameError(name) from None

    def _names_read(self) -> list[tuple[str, ...]]:
        """Dotted names that the body reads and does not assign, the longest chain of each."""
        if self._globals_read is None:
            local = {parameter.name for parameter in self.parameters}
            chains: dict[tuple[str, ...], None] = {}
            for node in ast.walk(self.tree):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    local.add(node.id)
                parts: list[str] = []
                while isinstance(node, ast.Attribute):
                    parts.append(node.attr)
                    node = node.value
                if isinstance(node, ast.Name):
                    chains[(node.id, *reversed(parts))] = None
            self._globals_read = [chain for chain in chains if chain[0] not in local]
        return self._globals_read

    def dependencies(self) -> dict[str, Any]:
        """Helper kernels and global values that the body reads, by dotted name."""
        found: dict[str, Any] = {}
        for chain in self._names_read():
            try:
                value = self.lookup(chain[0])
            except NameError:
                continue
            used = 1
            while used < len(chain) and isinstance(value, ModuleType):
                value = getattr(value, chain[used], None)
                used += 1
            if source_of(value) is not None or constant_text(value) is not None:
                found[".".join(chain[:used])] = value
        return found

    def fingerprint(self) -> str:
        """A digest of this source, of the helpers it reaches, and of the globals they read."""
        digest = hashlib.sha256()
        self._feed(digest, set())
        return digest.hexdigest()

    def _feed(self, digest: Any, seen: set[int]) -> None:
        if id(self) in seen:
            return
        seen.add(id(self))
        if self._digest is None:
            self._digest = hashlib.sha256(self.text.encode()).hexdigest()
        digest.update(self._digest.encode())
        for parameter in self.parameters:
            if parameter.has_default:
                self._feed_value(digest, parameter.name, parameter.default, seen)
        for name, value in self.dependencies().items():
            self._feed_value(digest, name, value, seen)

    @staticmethod
    def _feed_value(digest: Any, name: str, value: Any, seen: set[int]) -> None:
        digest.update(f"{name}=".encode())
        source = source_of(unwrap(value))
        if source is not None:
            source._feed(digest, seen)
        else:
            digest.update((constant_text(value) or "?").encode())


def _is_constexpr(annotation: Any) -> bool:
    if annotation is constexpr:
        return True
    return isinstance(annotation, str) and annotation.strip("'\" ").split(".")[-1] == "constexpr"


def source_of(value: Any) -> KernelSource | None:
    """The source of a decorated kernel or helper; None for anything else."""
    source = getattr(value, "source", None)
    return source if isinstance(source, KernelSource) else None


def constant_text(value: Any) -> str | None:
    """A text that tells compile-time constants apart; None for what is not one."""
    value = unwrap(value)
    if isinstance(value, (bool, int, float, str, bytes, type(None), dtype, pointer_type, block_type,
                          Enum)):  # fmt: skip
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, (tuple, list)):
        parts: Iterator[str | None] = map(constant_text, value)
        texts = list(parts)
        return None if None in texts else f"({','.join(text for text in texts if text)})"
    source = source_of(value)
    return f"kernel:{source.fingerprint()}" if source is not None else None


class Helper:
    """A function of the language that is itself written in the language."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.source = KernelSource(fn)
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__

    def __call__(self, *_arguments: Any, **_keywords: Any) -> Any:
        raise KernelError(
            f"tl.{self.__name__} has a meaning only inside a kernel",
            hint="decorate the function with @isthmus.jit and launch it over a grid",
            code="K101",
        )

    def __repr__(self) -> str:
        return f"tl.{self.__name__}"


def helper(fn: Callable[..., Any]) -> Helper:
    """Make a function of the language from one written in it."""
    return Helper(fn)
