"""`reduce` and `associative_scan` with a combine function written in the language."""

from __future__ import annotations

import ast
from typing import Any

from isthmus.ir.core import Region
from isthmus.language import operations
from isthmus.language.operations import _axis
from isthmus.language.semantics import Semantics
from isthmus.language.source import source_of
from isthmus.language.values import Tensor, unwrap

__all__ = ["associative_scan", "reduce"]

#: Bodies that are one named operation: text of the return expression over (a, b) -> table kinds.
_NAMED = {
    "a + b": ("addi", "addi", "addf"),
    "a * b": ("muli", "muli", "mulf"),
    "a & b": ("andi", "andi", None),
    "a | b": ("ori", "ori", None),
    "a ^ b": ("xori", "xori", None),
}


def _named_kind(combine: Any, element: Any) -> str | None:
    """The table kind of a one-line combine function, or None."""
    source = source_of(combine)
    if source is None or len(source.parameters) != 2:
        return None
    body = [s for s in source.tree.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    left, right = source.parameter_names
    text = ast.unparse(body[0].value)
    for pattern, kinds in _NAMED.items():
        if text in (
            pattern.replace("a", left, 1)[: -1] + right,
            right + pattern[1:-1] + left,
        ):
            kind = kinds[2] if element.is_floating() else kinds[0]
            return kind
    return None


def _region(sem: Semantics, body: Any, node: Any, combine: Any, values: list[Tensor]) -> Region:
    """The combine function on scalars: left values, then right values, give combined values."""
    types = [value.dtype for value in values]
    region = Region([t.ir for t in types] * 2)
    scalars = [
        Tensor(handle, element) for handle, element in zip(region.args, types * 2, strict=True)
    ]
    with sem.builder.at(region):
        result = body.call(node, combine, scalars, {})
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(results) != len(values):
            raise sem.fail(
                f"the combine function gives {len(results)} values for {len(values)} inputs",
                code="K215",
            )
        handles = [
            sem.cast(sem.to_tensor(item), element).handle  # type: ignore[arg-type]
            for item, element in zip(results, types, strict=True)
        ]
        sem.builder.create("scf.yield", *handles)
    return region


def _combine(
    name: str, sem: Semantics, body: Any, values: Any, axis: Any, combine: Any, **attrs: Any
) -> list[tuple[Any, Any]]:
    single = not isinstance(values, (tuple, list))
    tensors = [sem.to_tensor(value) for value in ([values] if single else values)]
    place = _axis(sem, axis, len(tensors[0].shape))
    kind = _named_kind(combine, tensors[0].dtype) if single else None
    if kind is not None:
        region = Region()
    else:
        kind = "region"
        region = _region(sem, body, body.source.tree, combine, tensors)
    op = sem.builder.create(
        name, *(tensor.handle for tensor in tensors), axis=place, kind=kind, regions=[region],
        **attrs,
    )  # fmt: skip
    return list(zip(op.results, tensors, strict=True))


def reduce(
    input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, *, sem: Semantics, body: Any  # noqa: A002
) -> Any:
    """Combine along `axis` with `combine_fn(left.., right..)`, which must be associative."""
    values, place = input, unwrap(axis)
    if place is None:
        flat = [operations.ravel(v, sem=sem) for v in (values if isinstance(values, (tuple, list)) else [values])]
        values, place = (tuple(flat) if isinstance(input, (tuple, list)) else flat[0]), 0
    results = []
    for handle, tensor in _combine("tile.reduce", sem, body, values, place, combine_fn):
        at = _axis(sem, place, len(tensor.shape))
        result = Tensor(handle, tensor.dtype, tensor.shape[:at] + tensor.shape[at + 1 :])
        results.append(sem.expand_dims(result, at) if unwrap(keep_dims) else result)
    return tuple(results) if isinstance(input, (tuple, list)) else results[0]


def associative_scan(
    input: Any, axis: Any, combine_fn: Any, reverse: Any = False, *, sem: Semantics, body: Any  # noqa: A002
) -> Any:
    """Running combination along `axis` with `combine_fn`, from the end when `reverse`."""
    results = [
        Tensor(handle, tensor.dtype, tensor.shape)
        for handle, tensor in _combine(
            "tile.scan", sem, body, input, axis, combine_fn, reverse=bool(unwrap(reverse))
        )
    ]
    return tuple(results) if isinstance(input, (tuple, list)) else results[0]


for _function in (reduce, associative_scan):
    _function.is_builtin = True  # type: ignore[attr-defined]
    _function.takes_body = True  # type: ignore[attr-defined]
