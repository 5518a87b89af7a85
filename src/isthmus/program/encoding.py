"""Programs as readable JSON text: a line per input and per node.

    {"format": "isthmus-program", "version": 1, "name": .., "metadata": {..},
     "graphs": {"train": {"inputs": [..], "nodes": [..], "outputs": {..}, "updates": {..}}}}

A node is [op, [inputs], {"name": "dtype[shape]" outputs}, {attrs}, source].
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import isthmus.ops as _registered
from isthmus.core.dtypes import dtype_named
from isthmus.core.errors import ProgramError
from isthmus.ops.standard import TensorSpec, operator
from isthmus.program.graph import Graph, GraphInput, Node, Value

__all__ = ["FORMAT", "FORMAT_VERSION", "decode_graph", "encode_graph", "layout"]

FORMAT = "isthmus-program"
FORMAT_VERSION = 1
_ = _registered  # importing the operators fills the register


def _encode_spec(spec: TensorSpec) -> str:
    return f"{spec.dtype.name}[{','.join(map(str, spec.shape))}]"


def _decode_spec(text: str) -> TensorSpec:
    name, _, rest = text.partition("[")
    sizes = rest.removesuffix("]")
    shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    return TensorSpec(shape, dtype_named(name))


def _encode_value(value: Any) -> Any:
    """Attributes as JSON: floats that JSON lacks become {"float": "inf"}."""
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, (tuple, list)):
        return [_encode_value(item) for item in value]
    return value


def _decode_value(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"float"}:
        return float(value["float"])
    if isinstance(value, list):
        return tuple(_decode_value(item) for item in value)
    return value


def encode_graph(graph: Graph) -> dict[str, Any]:
    """The graph as JSON data."""
    return {
        "inputs": [
            {
                "name": entry.name,
                "kind": entry.kind,
                "value": entry.value.name,
                "spec": _encode_spec(entry.value.spec),
                **({"role": entry.role} if entry.role else {}),
                **({"initializer": entry.initializer} if entry.initializer else {}),
            }
            for entry in graph.inputs.values()
        ],
        "nodes": [
            [
                node.op,
                [None if value is None else value.name for value in node.inputs],
                {value.name: _encode_spec(value.spec) for value in node.outputs},
                {name: _encode_value(value) for name, value in node.attrs.items()},
                node.source,
            ]
            for node in graph.nodes
        ],
        "outputs": {name: value.name for name, value in graph.outputs.items()},
        "updates": {name: value.name for name, value in graph.updates.items()},
        "metadata": graph.metadata,
    }


def decode_graph(name: str, data: dict[str, Any]) -> Graph:
    """The graph of JSON data. Raises ProgramError for unknown operators and values."""
    graph = Graph(name, metadata=data.get("metadata", {}))
    values: dict[str, Value] = {}

    def known(value_name: str) -> Value:
        if value_name not in values:
            raise ProgramError(f"graph {name!r} uses value {value_name!r} before it is computed")
        return values[value_name]

    for entry in data["inputs"]:
        value = Value(entry["value"], _decode_spec(entry["spec"]))
        values[value.name] = value
        graph.inputs[entry["name"]] = GraphInput(
            entry["name"], entry["kind"], value, entry.get("role", ""), entry.get("initializer")
        )
    for op, inputs, outputs, attrs, source in data["nodes"]:
        operator(op)
        node = Node(
            op,
            [None if item is None else known(item) for item in inputs],
            [],
            {key: _decode_value(value) for key, value in attrs.items()},
            source,
        )
        for index, (value_name, spec) in enumerate(outputs.items()):
            value = Value(value_name, _decode_spec(spec), node, index)
            values[value_name] = value
            node.outputs.append(value)
        graph.nodes.append(node)
    graph.outputs = {key: known(item) for key, item in data["outputs"].items()}
    graph.updates = {key: known(item) for key, item in data["updates"].items()}
    return graph


def layout(data: dict[str, Any]) -> str:
    """JSON with one line per input and node, so that people and diffs can read it."""

    def rows(items: list[Any], indent: str) -> str:
        if not items:
            return "[]"
        lines = (",\n" + indent).join(json.dumps(item) for item in items)
        return f"[\n{indent}{lines}\n{indent[:-1]}]"

    graphs = []
    for name, graph in data["graphs"].items():
        graphs.append(
            f"  {json.dumps(name)}: {{\n"
            f'   "inputs": {rows(graph["inputs"], "    ")},\n'
            f'   "nodes": {rows(graph["nodes"], "    ")},\n'
            f'   "outputs": {json.dumps(graph["outputs"])},\n'
            f'   "updates": {json.dumps(graph["updates"])},\n'
            f'   "metadata": {json.dumps(graph["metadata"])}\n'
            "  }"
        )
    head = {key: value for key, value in data.items() if key != "graphs"}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    body = ",\n".join(graphs)
    return "{\n" + ",\n".join(lines) + ',\n "graphs": {\n' + body + "\n }\n}\n"
