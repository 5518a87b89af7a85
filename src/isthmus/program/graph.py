"""A training step as data: values, nodes, inputs of three kinds, outputs, state updates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isthmus.ops.standard import TensorSpec

__all__ = ["Graph", "GraphInput", "Node", "Value"]


@dataclass(slots=True, eq=False)
class Value:
    """One tensor of the graph. `producer` is the node that computes it, None for an input."""

    name: str
    spec: TensorSpec
    producer: Node | None = None
    index: int = 0

    def __repr__(self) -> str:
        return f"%{self.name}: {self.spec}"


@dataclass(slots=True, eq=False)
class Node:
    """One application of a standard operator; absent optional inputs are None."""

    op: str
    inputs: list[Value | None]
    outputs: list[Value]
    attrs: dict[str, Any] = field(default_factory=dict)
    source: str = ""  # where in the model it came from: "gpt.py:41 in Block.forward"


@dataclass(slots=True, eq=False)
class GraphInput:
    """One input of the step.

    kind: "state" (parameters and optimizer state, kept between steps), "batch" (given each
        step), "scalar" (a rank-0 number given each step: "learning_rate", "step"), or
        "key" (the RNG key, i64[2]: seed and step counter).
    initializer: for state, how a fresh run fills it: {"kind": "zeros" | "ones" | "constant" |
        "normal" | "uniform" | "stored", ...numbers}; "stored" takes it from the weights file.
    role: for state, "parameter", "optimizer" or "buffer".
    """

    name: str
    kind: str
    value: Value
    role: str = ""
    initializer: dict[str, Any] | None = None


@dataclass(slots=True, eq=False)
class Graph:
    """One step. Nodes are in execution order.

    outputs: name -> value given back each step ("loss", "gradient_norm", "logits").
    updates: state name -> value that becomes that state's content after the step.
    """

    name: str
    inputs: dict[str, GraphInput] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, Value] = field(default_factory=dict)
    updates: dict[str, Value] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def users(self) -> dict[Value, list[Node]]:
        """Nodes that read each value."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value is not None:
                    found.setdefault(value, []).append(node)
        return found
