"""Program files: one readable JSON text, a line per node, and stored weights as safetensors.

    {"format": "isthmus-program", "version": 1, "name": .., "metadata": {..},
     "graphs": {"train": {"inputs": [..], "nodes": [..], "outputs": {..}, "updates": {..}}}}

A node is [op, [inputs], {"name": "dtype[shape]" outputs}, {attrs}, source]. Weights lie in
NAME.safetensors beside NAME.json; the text holds their digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import isthmus.ops as _registered
from isthmus.core.dtypes import dtype_named
from isthmus.core.errors import ProgramError, UserError
from isthmus.ops.standard import TensorSpec, operator
from isthmus.program.graph import Graph, GraphInput, Node, Value
from isthmus.program.program import Program

__all__ = ["FORMAT_VERSION", "decode_program", "encode_program", "load_program", "save_program"]

FORMAT_VERSION = 1
_FORMAT = "isthmus-program"
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


def _encode_graph(graph: Graph) -> dict[str, Any]:
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


def _decode_graph(name: str, data: dict[str, Any]) -> Graph:
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


def encode_program(program: Program) -> dict[str, Any]:
    """The program as JSON data, weights apart."""
    return {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "name": program.name,
        "metadata": program.metadata,
        "graphs": {name: _encode_graph(graph) for name, graph in program.graphs.items()},
    }


def decode_program(data: dict[str, Any]) -> Program:
    """The program of JSON data. Raises ProgramError."""
    if data.get("format") != _FORMAT:
        raise ProgramError("this is not a program file")
    version = data.get("version")
    if version != FORMAT_VERSION:
        raise ProgramError(
            f"the program has format version {version}; this version reads {FORMAT_VERSION}",
            hint="use the version of Isthmus that wrote it, or a newer one",
        )
    graphs = {name: _decode_graph(name, graph) for name, graph in data["graphs"].items()}
    return Program(data["name"], graphs, metadata=data.get("metadata", {}))


def _layout(data: dict[str, Any]) -> str:
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


def _publish(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise ProgramError(f"cannot write {path}: {error.strerror}") from error


def save_program(program: Program, path: Path) -> None:
    """Write `path` (JSON), and the stored weights beside it. Raises ProgramError."""
    if path.suffix != ".json":
        raise ProgramError(f"a program file ends in .json, got {path.name}")
    data = encode_program(program)
    if program.weights:
        content = save_tensors({n: np.asarray(a, order="C") for n, a in program.weights.items()})
        data["weights"] = {
            "file": path.with_suffix(".safetensors").name,
            "digest": hashlib.sha256(content).hexdigest(),
        }
        _publish(path.with_suffix(".safetensors"), content)
    _publish(path, _layout(data).encode("utf-8"))


def load_program(path: Path | str) -> Program:
    """Read a program file. Needs no PyTorch.

    Raises: ProgramError when the file is missing, truncated, newer, or names unknown operators.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProgramError(f"cannot read program {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProgramError(f"{path} is not a program: it is not text") from error
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ProgramError("this is not a program file")
        program = decode_program(data)
        if "weights" in data:
            program.weights = _load_weights(path, data["weights"])
    except json.JSONDecodeError as error:
        raise ProgramError(
            f"{path}:{error.lineno}: the program is truncated or damaged: {error.msg}"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise ProgramError(f"{path} is damaged: {error!r}") from error
    except UserError as error:
        raise ProgramError(f"{path}: {error.message}", hint=error.hint) from error
    return program


def _load_weights(path: Path, entry: dict[str, str]) -> dict[str, np.ndarray]:
    file = path.with_name(entry["file"])
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ProgramError(
            f"cannot read its weights {file}: {error.strerror}",
            hint="keep the .safetensors file beside the .json file",
        ) from error
    if hashlib.sha256(content).hexdigest() != entry["digest"]:
        raise ProgramError(f"its weights {file} are damaged, or belong to another program")
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise ProgramError(f"its weights {file} are damaged: {error}") from error
