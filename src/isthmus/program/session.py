"""A program in use: its graphs over shared states, compiled when first run.

    session = Session(program)
    session.initialise(seed=0)
    outputs = session.run("train", {"tokens": .., "targets": ..}, {"learning_rate": 3e-4}, (0, 1))
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from isthmus.core.dtypes import DTYPES
from isthmus.core.errors import ProgramError
from isthmus.ops.standard import TensorSpec, operator
from isthmus.program.executor import Executable, open_cpu
from isthmus.program.graph import Graph, GraphInput, Node, Value
from isthmus.program.program import Program
from isthmus.program.state import States, check_array

__all__ = ["Session"]

#: The step number under which initial values are drawn: no training step reaches it.
_INITIAL_STEP = 0xFFFFFFFF


class Session:
    """Runs the graphs of a program on the CPU.

    threads: threads per launch (default: the setting, or the cores at hand).
    progress: called with (graph, finished, all) while kernels are compiled.
    """

    def __init__(
        self, program: Program, *, threads: int | None = None, device: Any = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:  # fmt: skip
        self.program = program
        self.device = device if device is not None else open_cpu(threads)
        self.states = States(self.device)
        self.progress = progress
        self._entries = program.states()
        self._executables: dict[str, Executable] = {}
        for name, entry in self._entries.items():
            self.states.buffer(name, entry.value.spec)

    def has_graph(self, graph: str) -> bool:
        return graph in self.program.graphs

    def prepare(self, graph: str) -> Executable:
        """The graph compiled and ready to run. Raises ProgramError where there is none."""
        found = self._executables.get(graph)
        if found is None:
            report = self.progress
            found = Executable(
                self.program.graph(graph), self.device, self.states,
                progress=None if report is None else lambda done, all_: report(graph, done, all_),
            )  # fmt: skip
            self._executables[graph] = found
        return found

    def run(
        self, graph: str, batch: Mapping[str, np.ndarray] | None = None,
        scalars: Mapping[str, float] | None = None, key: tuple[int, int] = (0, 0),
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Run one graph once; batch entries that this graph does not read are left out.

        key: (seed, step) for what is drawn at random.
        """
        executable = self._executables.get(graph) or self.prepare(graph)
        wanted = executable.batch_names
        given = batch or {}
        if given.keys() != wanted:
            used = self._batch_names()
            given = {name: a for name, a in given.items() if name in wanted or name not in used}
        return executable.step(given, scalars, key)

    def _batch_names(self) -> set[str]:
        """Batch entries of any graph."""
        return {
            entry.name
            for graph in self.program.graphs.values()
            for entry in graph.inputs.values()
            if entry.kind == "batch"
        }

    def batch_spec(self, graph: str) -> dict[str, tuple[int, ...]]:
        """Shapes of the batch entries of a graph."""
        return {
            name: entry.value.spec.shape
            for name, entry in self.program.graph(graph).inputs.items()
            if entry.kind == "batch"
        }

    def flops(self, graph: str) -> int:
        """Arithmetic of one run."""
        return self.prepare(graph).report().flops

    # States

    def initialise(self, seed: int = 0) -> None:
        """Fill all states by their initialisers; the same bits on every device.

        Raises: ProgramError where stored weights are missing.
        """
        graph = Graph("initialise")
        key = Value("key", TensorSpec((2,), DTYPES["i64"]))
        graph.inputs["key"] = GraphInput("key", "key", key)
        for name, entry in self._entries.items():
            self._initialise_one(graph, key, name, entry)
        if graph.nodes:
            Executable(graph, self.device, self.states).step(key=(seed, _INITIAL_STEP))

    def _initialise_one(self, graph: Graph, key: Value, name: str, entry: GraphInput) -> None:
        made = entry.initializer or {"kind": "zeros"}
        kind, spec = made["kind"], entry.value.spec
        if kind in ("zeros", "ones", "constant"):
            numbers = {"zeros": 0.0, "ones": 1.0}
            self.states[name][...] = numbers[kind] if kind in numbers else made["value"]
        elif kind == "stored":
            if name not in self.program.weights:
                raise ProgramError(
                    f"program {self.program.name!r} has no stored weights for state {name!r}",
                    hint="the .safetensors file beside the program holds them",
                )
            stored = self.program.weights[name]
            check_array(f"stored weight {name!r}", stored, spec)
            self.states[name][...] = stored
        elif kind in ("normal", "uniform"):
            self._draw(graph, key, entry, made)
        else:
            raise ProgramError(f"state {name!r} has an unknown initialiser {kind!r}")

    @staticmethod
    def _draw(graph: Graph, key: Value, entry: GraphInput, made: Mapping[str, Any]) -> None:
        """Add the node that fills one state with random numbers of a stream of its own."""
        name, spec = entry.name, entry.value.spec
        names = ("mean", "std") if made["kind"] == "normal" else ("low", "high")
        attrs = {
            "shape": spec.shape, "dtype": spec.dtype.name,
            "stream": zlib.crc32(name.encode()) & 0x7FFFFFFF,
            **{key_: made[key_] for key_ in names if key_ in made},
        }  # fmt: skip
        record = operator(made["kind"])
        full = {**record.attrs, **attrs}
        node = Node(made["kind"], [key], [], full)
        node.outputs.append(Value(f"{name}.new", spec, node))
        graph.nodes.append(node)
        graph.inputs[name] = GraphInput(name, "state", Value(name, spec), entry.role)
        graph.updates[name] = node.outputs[0]

    def state_dict(self) -> dict[str, np.ndarray]:
        """All states as arrays over their buffers, without a copy."""
        return self.states.state_dict()

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Overwrite all states. Raises ProgramError, ShapeError or DTypeError."""
        self.states.load_state_dict(state)
