"""A graph computed operator by operator with the float64 references: slow, plain, for checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import isthmus.ops as _registered
from isthmus.ops.standard import operator
from isthmus.program.graph import Graph, Value

__all__ = ["run_reference"]
_ = _registered


def run_reference(
    graph: Graph, states: Mapping[str, np.ndarray], batch: Mapping[str, np.ndarray],
    scalars: Mapping[str, float], key: tuple[int, int] = (0, 0),
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:  # fmt: skip
    """(outputs, states after the step), floats in float64 throughout.

    states, batch and scalars by input name; key is (seed, step).
    """
    values: dict[Value, Any] = {}
    for entry in graph.inputs.values():
        if entry.kind == "state":
            given: Any = states[entry.name]
        elif entry.kind == "batch":
            given = batch[entry.name]
        elif entry.kind == "scalar":
            given = np.float64(scalars[entry.name])
        else:
            given = np.array(key, np.int64)
        array = np.asarray(given)
        values[entry.value] = array.astype(np.float64) if entry.value.spec.dtype.is_float else array
    for node in graph.nodes:
        inputs = [None if value is None else values[value] for value in node.inputs]
        for value, result in zip(
            node.outputs, operator(node.op).reference(inputs, node.attrs), strict=True
        ):
            values[value] = np.asarray(result).reshape(value.spec.shape)
    outputs = {name: values[value] for name, value in graph.outputs.items()}
    after = {}
    for name, entry in graph.inputs.items():
        if entry.kind == "state":
            value = graph.updates.get(name, entry.value)
            after[name] = values[value]
    return outputs, after
