"""From a traced PyTorch graph to a graph of standard operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.fx.node import map_arg

from isthmus.core.dtypes import DType, dtype_named
from isthmus.core.errors import CaptureError, UserError
from isthmus.ops.standard import TensorSpec, operator
from isthmus.program.capture.torch_private import place_of
from isthmus.program.graph import Graph, Node, Value

__all__ = [
    "RULES", "Converter", "GraphBuilder", "NllGradient", "dtype_of", "op_name", "rule",
    "tensor_spec", "to_array", "uniform_value",
]  # fmt: skip

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


@dataclass(frozen=True, slots=True)
class Refused:
    """Stands for the result of an operation without counterpart, until all are known."""

    name: str


class Converter(GraphBuilder):
    """Walks a traced graph and applies the rules."""

    def __init__(self, graph: Graph, constants: Callable[[str, torch.Tensor], Value]) -> None:
        super().__init__(graph)
        self.constants = constants
        self.env: dict[torch.fx.Node, Any] = {}
        self.node: torch.fx.Node = None  # type: ignore[assignment]
        self.key: Value | None = None
        #: (operator, stream) of every use of random numbers, in order.
        self.random: list[tuple[str, int]] = []
        #: Softmax of the scores by the attention output made from it, where that has a mask.
        self.attention: dict[Value, Value] = {}
        #: The count of steps, for optimizers that need it yet keep none.
        self.step: Value | None = None
        #: (logits, lse, count, attrs) by log-probability value, for losses kept whole.
        self.losses: dict[Value, tuple[Value, Value, Value, dict[str, Any]]] = {}

    def output_dtype(self) -> DType:
        """The dtype PyTorch gave the result of the operation being converted."""
        value = self.node.meta["val"]
        return dtype_of(value[0].dtype if isinstance(value, (tuple, list)) else value.dtype)

    def run(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Convert all; `inputs` are the values of the placeholders. Gives the output structure.

        Raises: CaptureError listing every operation that has no counterpart.
        """
        places = iter(inputs)
        refusals: dict[str, str] = {}
        result: Any = None
        for node in module.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                self.env[node] = next(places)
            elif node.op == "get_attr":
                tensor = _attribute(module, node.target)
                self.env[node] = self.constants(str(node.target), tensor)
            elif node.op == "output":
                _refuse(refusals)
                result = map_arg(node.args[0], lambda n: self.env[n])
            else:
                self.source = place_of(node)
                self.env[node] = self.apply(node, refusals)
        return result

    def apply(self, node: torch.fx.Node, refusals: dict[str, str]) -> Any:
        """The values of one operation; what has no counterpart is added to `refusals`."""
        name = op_name(node.target)
        refused = any(isinstance(self.env[n], Refused) for n in node.all_input_nodes)
        if refused and (name in RULES or "getitem" in name):
            return Refused(name)
        if "getitem" in name:
            sequence, index = node.args
            return self.env[sequence][index]  # type: ignore[index]
        place = self.source or "a line inside PyTorch"
        if name not in RULES:
            refusals.setdefault(f"{name}  at {place}", "")
            return Refused(name)
        args = map_arg(node.args, lambda n: self.env[n])
        kwargs = map_arg(node.kwargs, lambda n: self.env[n])
        try:
            return RULES[name](self, *args, **kwargs)
        except UserError as error:
            hint = f" ({error.hint})" if error.hint else ""
            refusals.setdefault(f"{name}  at {place}", f": {error.message}{hint}")
            return Refused(name)


def _refuse(refusals: dict[str, str]) -> None:
    """Raise CaptureError when anything was refused."""
    if not refusals:
        return
    listing = "\n".join(f"  {where}{why}" for where, why in refusals.items())
    raise CaptureError(
        f"{len(refusals)} PyTorch operators have no counterpart in the operator standard:\n"
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


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """A copy of a tensor as an array of the same element type."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16).copy()
    return tensor.numpy().copy()
