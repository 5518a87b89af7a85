"""A program: the graphs of a training job over shared state, with what they start from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import ProgramError
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
                f"program {self.name!r} has no graph {name!r}; it has {', '.join(self.graphs)}"
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

    def text(self) -> str:
        """The program as it stands in its file, weights apart."""
        from isthmus.program.file import encode_program

        return json.dumps(encode_program(self))

    def save(self, path: Path | str) -> None:
        """Write the program to `path`, and stored weights beside it as .safetensors."""
        from isthmus.program.file import save_program

        save_program(self, Path(path))
