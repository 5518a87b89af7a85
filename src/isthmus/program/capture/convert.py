"""From a traced PyTorch graph to a graph of standard operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx.node import map_arg

from isthmus.core.dtypes import DType, dtype_named
from isthmus.core.errors import CaptureError
from isthmus.ops.standard import TensorSpec, operator
from isthmus.program.graph import Graph, Node, Value

__all__ = ["RULES", "Converter", "GraphBuilder", "dtype_of", "rule", "tensor_spec"]

_DTYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip


def dtype_of(dtype: torch.dtype) -> DType:
    """Our dtype of a PyTorch dtype. Raises CaptureError."""
    name = _DTYPES.get(dtype)
    if name is None:
        raise CaptureError(
            f"programs do not hold tensors of {dtype}",
            hint=f"dtypes are {', '.join(map(str, _DTYPES))}",
        )
    return dtype_named(name)


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """Shape and dtype of a tensor."""
    return TensorSpec(tuple(tensor.shape), dtype_of(tensor.dtype))


class GraphBuilder:
    """Appends nodes to a graph; shapes and dtypes come from the operators' own rules."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.source = ""
        self.streams = 0
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def emit_all(self, op: str, inputs: Sequence[Value | None], **attrs: Any) -> list[Value]:
        """One node; all its outputs."""
        record = operator(op)
        full = {**dict(record.attrs), **attrs}
        specs = record.infer([None if v is None else v.spec for v in inputs], full)
        node = Node(op, list(inputs), [], full, self.source)
        node.outputs = [Value(self.fresh(), spec, node, index) for index, spec in enumerate(specs)]
        self.graph.nodes.append(node)
        return node.outputs

    def emit(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """One node with its first output."""
        return self.emit_all(op, inputs, **attrs)[0]

    def constant(self, value: float | bool, dtype: DType, shape: Sequence[int] = ()) -> Value:
        plain = (
            float(value) if dtype.is_float else bool(value) if dtype.kind == "bool" else int(value)
        )
        return self.emit("constant", value=plain, shape=tuple(shape), dtype=dtype.name)

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.spec.dtype == dtype else self.emit("cast", value, dtype=dtype.name)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        shape = tuple(int(size) for size in shape)
        return value if value.spec.shape == shape else self.emit("reshape", value, shape=shape)

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        return value if value.spec.shape == shape else self.emit("broadcast_to", value, shape=shape)


@dataclass(slots=True)
class NllGradient:
    """Gradient of the negative log likelihood, kept until it meets that of log_softmax."""

    grad: Value
    log_probabilities: Value
    target: Value
    total: Value
    ignore_index: int
    reduction: str


Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how ATen operators named like "add.Tensor" become standard operators."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return add


def op_name(target: Any) -> str:
    """ "add.Tensor" for aten.add.Tensor; "mul" for aten.mul.default."""
    text = str(target)
    for prefix in ("aten.", "torch.ops.aten."):
        text = text.removeprefix(prefix)
    return text.removesuffix(".default")


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def source_place(node: torch.fx.Node) -> str:
    """The innermost line of user code behind a traced operation: "file.py:12 in forward"."""
    trace = node.meta.get("stack_trace") or node.stack_trace or ""
    place = ""
    for match in _FRAME.finditer(trace):
        file = match["file"]
        if "/torch/" in file or "/isthmus/program/" in file or file.startswith("<"):
            continue
        place = f"{file.rsplit('/', 1)[-1]}:{match['line']} in {match['function']}"
    return place


class Converter(GraphBuilder):
    """Walks a traced graph and applies the rules."""

    def __init__(self, graph: Graph, constants: Callable[[str, torch.Tensor], Value]) -> None:
        super().__init__(graph)
        self.constants = constants
        self.env: dict[torch.fx.Node, Any] = {}
        self.node: torch.fx.Node = None  # type: ignore[assignment]
        self.key: Value | None = None
        self.dropouts: list[int] = []
        #: (logits, lse, count, attrs) by log-probability value, for losses kept whole.
        self.losses: dict[Value, tuple[Value, Value, Value, dict[str, Any]]] = {}

    def output_dtype(self) -> DType:
        """The dtype PyTorch gave the result of the operation being converted."""
        value = self.node.meta["val"]
        return dtype_of(value[0].dtype if isinstance(value, (tuple, list)) else value.dtype)

    def run(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Convert all; `inputs` are the values of the placeholders. Gives the output structure.

        Raises: CaptureError listing every operation that has no rule.
        """
        self.refuse_unknown(module)
        places = iter(inputs)
        result: Any = None
        for node in module.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                self.env[node] = next(places)
            elif node.op == "get_attr":
                tensor = _attribute(module, node.target)
                self.env[node] = self.constants(str(node.target), tensor)
            elif node.op == "output":
                result = map_arg(node.args[0], lambda n: self.env[n])
            else:
                self.source = source_place(node)
                self.env[node] = self.apply(node)
        return result

    def apply(self, node: torch.fx.Node) -> Any:
        name = op_name(node.target)
        if "getitem" in name:
            sequence, index = node.args
            return self.env[sequence][index]  # type: ignore[index]
        args = map_arg(node.args, lambda n: self.env[n])
        kwargs = map_arg(node.kwargs, lambda n: self.env[n])
        return RULES[name](self, *args, **kwargs)

    @staticmethod
    def refuse_unknown(module: torch.fx.GraphModule) -> None:
        unknown: dict[str, str] = {}
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            name = op_name(node.target)
            if "getitem" not in name and name not in RULES:
                unknown.setdefault(name, source_place(node) or "(no source line)")
        if unknown:
            listing = "\n".join(f"  {name}  at {place}" for name, place in sorted(unknown.items()))
            raise CaptureError(
                f"{len(unknown)} PyTorch operators have no counterpart in the operator standard:\n"
                f"{listing}",
                hint="rewrite these lines with operators of the standard (docs/operators.md)",
            )


def _attribute(module: torch.fx.GraphModule, target: Any) -> torch.Tensor:
    value: Any = module
    for part in str(target).split("."):
        value = getattr(value, part)
    return value


def uniform_value(tensor: torch.Tensor) -> float | None:
    """The one number that fills a tensor, or None."""
    if tensor.numel() == 0:
        return None
    array = tensor.detach().reshape(-1).to(torch.float64).numpy()
    return float(array[0]) if np.all(array == array[0]) else None
