"""Graphs written by hand, for tests of the passes and the executor.

Example:

    g = StepGraph("step")
    x, w = g.batch("x", (4, 8)), g.state("w", (8, 3))
    g.output("y", g("gelu", g("matmul", x, w)))
    graph = g.graph
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isthmus.core.dtypes import DTYPES
from isthmus.ops import operator
from isthmus.ops.standard import TensorSpec, complete_attrs, complete_inputs
from isthmus.program.graph import Graph, GraphInput, Node, Value

__all__ = ["StepGraph", "evaluate"]


class StepGraph:
    """A graph under construction; calling it applies an operator."""

    def __init__(self, name: str = "step") -> None:
        self.graph = Graph(name)
        self._count = 0

    def _input(self, name: str, kind: str, shape: Sequence[int], dtype: str, **more: Any) -> Value:
        value = Value(name, TensorSpec(tuple(shape), DTYPES[dtype]))
        self.graph.inputs[name] = GraphInput(name, kind, value, **more)
        return value

    def batch(self, name: str, shape: Sequence[int], dtype: str = "f32") -> Value:
        return self._input(name, "batch", shape, dtype)

    def scalar(self, name: str) -> Value:
        return self._input(name, "scalar", (), "f32")

    def key(self, name: str = "key") -> Value:
        return self._input(name, "key", (2,), "i64")

    def state(
        self, name: str, shape: Sequence[int], dtype: str = "f32",
        initializer: Mapping[str, Any] | None = None, role: str = "parameter",
    ) -> Value:  # fmt: skip
        made = dict(initializer or {"kind": "zeros"})
        return self._input(name, "state", shape, dtype, role=role, initializer=made)

    def all(self, op: str, *inputs: Value | None, **attrs: Any) -> list[Value]:
        """All results of an operator."""
        record = operator(op)
        complete = complete_attrs(record, attrs)
        given = complete_inputs(record, inputs)
        specs = record.infer([None if v is None else v.spec for v in given], complete)
        node = Node(op, given, [], complete, f"test.py:{self._count + 1}")
        for index, spec in enumerate(specs):
            self._count += 1
            node.outputs.append(Value(f"v{self._count}", spec, node, index))
        self.graph.nodes.append(node)
        return node.outputs

    def __call__(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        return self.all(op, *inputs, **attrs)[0]

    def constant(self, value: float, shape: Sequence[int] = (), dtype: str = "f32") -> Value:
        return self("constant", value=value, shape=tuple(shape), dtype=dtype)

    def output(self, name: str, value: Value) -> None:
        self.graph.outputs[name] = value

    def update(self, state: str, value: Value) -> None:
        self.graph.updates[state] = value

    def ops(self, graph: Graph | None = None) -> list[str]:
        return [node.op for node in (graph or self.graph).nodes]


def evaluate(
    graph: Graph, inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Outputs and updated states by the operators' references, in float64."""
    values: dict[Value, np.ndarray] = {
        entry.value: np.asarray(inputs[name]) for name, entry in graph.inputs.items()
    }
    for node in graph.nodes:
        given = [None if value is None else values[value] for value in node.inputs]
        results = operator(node.op).reference(given, node.attrs)
        values.update(zip(node.outputs, results, strict=True))
    return (
        {name: values[value] for name, value in graph.outputs.items()},
        {name: values[value] for name, value in graph.updates.items()},
    )
