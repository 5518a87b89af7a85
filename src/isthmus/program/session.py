"""A program ready to run: its graphs compiled when first used, over shared states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from isthmus.core.dtypes import dtype_named
from isthmus.core.errors import CheckpointError, ProgramError
from isthmus.ops.standard import TensorSpec, operator
from isthmus.program.executor import Executable, open_cpu
from isthmus.program.graph import Graph, GraphInput, Node, Value
from isthmus.program.program import Program
from isthmus.program.state import States

__all__ = ["Session", "initial_graph", "run_once"]

Progress = Callable[[int, int], None]


class Session:
    """Runs the graphs of `program` on one device.

    threads: threads per launch (default: the setting, or the cores at hand).
    progress: called with (finished, all) while kernels are compiled.
    """

    def __init__(
        self, program: Program, device: Any = None, *, threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self.program = program
        self.device = device if device is not None else open_cpu(threads)
        self.states = States(self.device)
        self._progress = progress
        self._executables: dict[str, Executable] = {}

    def has_graph(self, graph: str) -> bool:
        return graph in self.program.graphs

    def prepare(self, graph: str) -> Executable:
        """The compiled graph, compiling it when it is first used.

        Raises: ProgramError when the program has no such graph.
        """
        if graph not in self._executables:
            self._executables[graph] = Executable(
                self.program.graph(graph), self.device, self.states, progress=self._progress
            )
        return self._executables[graph]

    def run(
        self, graph: str, batch: Mapping[str, np.ndarray] | None = None,
        scalars: Mapping[str, float] | None = None, key: tuple[int, int] = (0, 0),
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Run one graph once; gives its outputs.

        key: (seed, step), what random numbers depend on.
        Raises: ShapeError, DTypeError or ProgramError naming the input that does not fit.
        """
        return self.prepare(graph).step(batch, scalars, key)

    def batch_spec(self, graph: str) -> dict[str, tuple[int, ...]]:
        """Shape of each batch entry of a graph."""
        return {
            entry.name: entry.value.spec.shape
            for entry in self.program.graph(graph).inputs.values()
            if entry.kind == "batch"
        }

    def flops(self, graph: str) -> int:
        """Floating-point operations of one run."""
        return self.prepare(graph).report().flops

    # States

    def initialise(self, seed: int = 0) -> None:
        """Fill all states: by their initialisers, or from the program's stored weights.

        The same seed gives the same bits on every device.
        """
        for name, entry in self.program.states().items():
            self.states.buffer(name, entry.value.spec)
            if (entry.initializer or {}).get("kind") == "stored":
                if name not in self.program.weights:
                    raise ProgramError(
                        f"state {name!r} has neither an initialiser nor stored weights",
                        hint="keep the .safetensors file beside the program",
                    )
                self.states[name][...] = self.program.weights[name]
        graph = initial_graph(self.program)
        if graph.nodes:
            Executable(graph, self.device, self.states).step(key=(seed, 0))

    def state_dict(self) -> dict[str, np.ndarray]:
        """All states as arrays over their buffers."""
        return self.states.state_dict()

    def load_state_dict(self, content: Mapping[str, np.ndarray], graph: str | None = None) -> None:
        """Overwrite states; with `graph`, only those that it reads.

        Raises: CheckpointError when a state is missing, unknown, or of another shape or dtype.
        """
        known = self.program.states()
        if graph is None:
            wanted = [name for name in known if name in self.states or name in content]
            unknown = [name for name in content if name not in known]
            if unknown:
                raise CheckpointError(
                    f"the checkpoint has {len(unknown)} states that the program has not, "
                    f"such as {unknown[0]!r}",
                    hint="use the program that the checkpoint was made with",
                )
        else:
            entries = self.program.graph(graph).inputs.values()
            wanted = [entry.name for entry in entries if entry.kind == "state"]
        for name in wanted:
            if name not in content:
                raise CheckpointError(f"the checkpoint lacks the state {name!r}")
            self.states.buffer(name, known[name].value.spec)
        for name in wanted:
            target, given = self.states[name], content[name]
            if given.shape != target.shape or given.dtype != target.dtype:
                raise CheckpointError(
                    f"state {name!r} is {given.dtype}{list(given.shape)} in the checkpoint, "
                    f"{known[name].value.spec} in the program"
                )
        for name in wanted:
            self.states[name][...] = content[name]


def initial_graph(program: Program) -> Graph:
    """A graph whose updates are the first values of all states that an initialiser makes.

    Each state draws from a stream of its own, numbered by its place among the states.
    """
    graph = Graph("initialise")
    key = Value("key", TensorSpec((2,), dtype_named("i64")))
    graph.inputs["key"] = GraphInput("key", "key", key)
    for stream, (name, entry) in enumerate(program.states().items()):
        made = dict(entry.initializer or {"kind": "zeros"})
        kind = made.pop("kind")
        if kind == "stored":
            continue
        spec = entry.value.spec
        common = {"shape": spec.shape, "dtype": spec.dtype.name}
        if kind in ("normal", "uniform"):
            op, inputs = kind, [key]
            attrs = {**common, **made, "stream": stream}
        else:
            op, inputs = "constant", []
            value = {"zeros": 0.0, "ones": 1.0}.get(kind, made.get("value", 0.0))
            attrs = {**common, "value": value if spec.dtype.is_float else int(value)}
        full = {**dict(operator(op).attrs), **attrs}
        node = Node(op, list(inputs), [], full)
        node.outputs = [Value(f"first.{name}", spec, node)]
        graph.nodes.append(node)
        graph.inputs[name] = GraphInput(name, "state", Value(f"state.{name}", spec), entry.role)
        graph.updates[name] = node.outputs[0]
    return graph


def run_once(
    program: Program, states: Mapping[str, np.ndarray], batch: Mapping[str, np.ndarray],
    scalars: Mapping[str, float], key: tuple[int, int], graph: str = "train",
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:  # fmt: skip
    """(outputs, states after) of one run of a graph from given states."""
    session = Session(program)
    session.load_state_dict(
        {name: array for name, array in states.items() if name in program.states()}
    )
    outputs = session.run(graph, batch, scalars, key)
    return outputs, {name: array.copy() for name, array in session.state_dict().items()}
