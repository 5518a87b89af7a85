"""Constant folding: element-wise operators and views of constants, by the operators' references."""

from __future__ import annotations

import numpy as np

from isthmus.core.dtypes import DType
from isthmus.ir.numpy_types import numpy_dtype
from isthmus.ops.standard import operator
from isthmus.program.graph import Graph, Node, Value
from isthmus.program.passes.replace import replace_values, uniform_constant

__all__ = ["fold_constants"]

_VIEWS = frozenset({"reshape", "transpose", "broadcast_to"})


def fold_constants(graph: Graph) -> int:
    """Replace what is computed from constants alone; returns how many nodes."""
    return replace_values(graph, _fold)


def _fold(node: Node, before: list[Node]) -> list[Value] | None:
    """Constants hold one number everywhere, so one element stands for all.

    Numbers are rounded to their dtype before and after: sums, products, quotients and square
    roots of f32 and narrower types are then what a kernel computes, bit for bit.
    """
    if not node.inputs or len(node.outputs) != 1:
        return None
    numbers = [uniform_constant(value) for value in node.inputs]
    if any(number is None for number in numbers):
        return _identity(node)
    if node.op in _VIEWS:
        result = numbers[0]
    elif operator(node.op).is_pointwise or node.op == "cast":
        inputs = [
            _rounded(number, value.spec.dtype)
            for number, value in zip(numbers, node.inputs, strict=True)
            if value is not None
        ]
        with np.errstate(all="ignore"):
            (result,) = operator(node.op).reference(inputs, node.attrs)
    else:
        return None
    spec = node.outputs[0].spec
    rounded = _rounded(np.asarray(result).reshape(()), spec.dtype)
    attrs = {"value": rounded.item(), "shape": spec.shape, "dtype": spec.dtype.name}
    made = Node("constant", [], [], attrs, node.source)
    made.outputs.append(Value(node.outputs[0].name, spec, made))
    before.append(made)
    return made.outputs


def _rounded(number: object, dtype: DType) -> np.ndarray:
    """A number as its dtype holds it, floats in float64 as references take them."""
    with np.errstate(all="ignore"):
        array = np.asarray(number).astype(numpy_dtype(dtype))
    return array.astype(np.float64) if dtype.is_float else array


def _identity(node: Node) -> list[Value] | None:
    """x for x * 1 and x / 1."""
    if node.op not in ("mul", "div"):
        return None
    for kept, other in ((0, 1),) if node.op == "div" else ((0, 1), (1, 0)):
        value = node.inputs[kept]
        if value is not None and value.spec == node.outputs[0].spec:
            number = uniform_constant(node.inputs[other])
            if number is not None and number == 1:
                return [value]
    return None
