"""From kernel source to a tile IR function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.core.errors import KernelError
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function
from isthmus.language.emitter import Emitter
from isthmus.language.expressions import Frame, static
from isthmus.language.source import KernelSource
from isthmus.language.statements import Statements
from isthmus.language.types import SIGNATURE_DTYPES, parse_type
from isthmus.language.values import Tensor, unwrap

__all__ = ["build"]


def build(
    source: KernelSource,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Function:
    """The tile IR of a kernel for given argument types.

    signature: run-time parameter -> type text, "*f32", "i32", "*bool".
    constexprs: compile-time parameter -> value; parameters left out of both take their default.
    attrs: parameter -> facts: {"divisibility": 16, "noalias": True}.
    options: allow_any_block_size (bool), debug (bool: keep tl.device_assert), target
        (TargetDescription: what tl.target answers).
    Raises: KernelError with file, line and caret.
    """
    constants = {key: static(unwrap(value)) for key, value in (constexprs or {}).items()}
    facts = attrs or {}
    scope: dict[str, Any] = {}
    names, types = [], []
    for parameter in source.parameters:
        key = parameter.name
        if key in constants:
            scope[key] = constants[key]
        elif key in signature:
            try:
                types.append(parse_type(signature[key]))
            except KeyError:
                raise KernelError(
                    f"parameter {key} has the unknown type {signature[key]!r}",
                    location=source.location(),
                    hint=f"known: {', '.join(SIGNATURE_DTYPES)}; pointers have a * in front",
                    code="K208",
                ) from None
            names.append(key)
        elif parameter.has_default:
            scope[key] = static(parameter.default)
        else:
            raise KernelError(
                f"{source.name} gets no type and no value for {key}",
                location=source.location(),
                hint="give every parameter without a default an argument",
                code="K208",
            )
    unknown = [key for key in (*signature, *constants) if key not in source.parameter_names]
    if unknown:
        raise KernelError(
            f"{source.name} has no parameter {unknown[0]}",
            location=source.location(),
            hint=f"it takes ({', '.join(source.parameter_names)})",
            code="K208",
        )
    tree = source.tree
    function = Function(
        name or source.name, [kind.ir for kind in types], names, source.location(tree)
    )
    for place, (key, kind) in enumerate(zip(names, types, strict=True)):
        function.arg_attrs[place] = dict(facts.get(key, {}))
        scope[key] = Tensor(function.args[place], kind)
    builder = Builder(function)
    emitter = Emitter(builder, dict(options or {}))
    frame = Frame(source, scope, dict.fromkeys(source.constexpr_names))
    Statements(emitter, frame).run_function()
    builder.create("func.return")
    return function
