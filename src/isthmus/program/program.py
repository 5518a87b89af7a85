"""A program: the graphs of a training job over shared state, with what they start from."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as save_tensors

from isthmus.core.errors import ProgramError
from isthmus.program.encoding import FORMAT, FORMAT_VERSION, encode_graph, layout
from isthmus.program.graph import Graph, GraphInput

__all__ = ["Program"]


@dataclass(slots=True)
class Program:
    """Graphs by name, weights that no initialiser makes, and facts about the model.

    graphs: "train" (one whole step), "gradient" and "apply" (a step in micro-batches),
        "evaluate" (the loss alone) and "forward" (the model's output); states are shared by name.
    weights: content of the states whose initialiser is "stored".
    """

    name: str
    graphs: dict[str, Graph]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def graph(self, name: str) -> Graph:
        """The graph called `name`. Raises ProgramError naming those that there are."""
        try:
            return self.graphs[name]
        except KeyError:
            raise ProgramError(
                f"program {self.name!r} has no graph {name!r}; it has {', '.join(self.graphs)}",
                hint=self.metadata.get("absent_graphs", {}).get(name),
            ) from None

    def states(self) -> dict[str, GraphInput]:
        """Every state of any graph, by name. Raises ProgramError where two graphs disagree."""
        found: dict[str, GraphInput] = {}
        for graph in self.graphs.values():
            for entry in graph.inputs.values():
                if entry.kind != "state":
                    continue
                known = found.setdefault(entry.name, entry)
                if known.value.spec != entry.value.spec:
                    raise ProgramError(
                        f"state {entry.name!r} is {known.value.spec} in one graph and "
                        f"{entry.value.spec} in another"
                    )
        return found

    def encode(self) -> dict[str, Any]:
        """The program as JSON data, weights apart."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "name": self.name,
            "metadata": self.metadata,
            "graphs": {name: encode_graph(graph) for name, graph in self.graphs.items()},
        }

    def text(self) -> str:
        """The program as one line of JSON, weights apart."""
        return json.dumps(self.encode())

    def save(self, path: Path | str) -> None:
        """Write `path` (JSON), and stored weights beside it as .safetensors.

        Raises: ProgramError when the path does not end in .json or cannot be written.
        """
        path = Path(path)
        if path.suffix != ".json":
            raise ProgramError(f"a program file ends in .json, got {path.name}")
        data = self.encode()
        if self.weights:
            content = save_tensors({n: np.asarray(a, order="C") for n, a in self.weights.items()})
            data["weights"] = {
                "file": path.with_suffix(".safetensors").name,
                "digest": hashlib.sha256(content).hexdigest(),
            }
            _publish(path.with_suffix(".safetensors"), content)
        _publish(path, layout(data).encode("utf-8"))


def _publish(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise ProgramError(f"cannot write {path}: {error.strerror}") from error
