"""`isthmus.capture`: the whole training step of a PyTorch model as a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from isthmus.core.dtypes import dtype_named
from isthmus.core.errors import CaptureError
from isthmus.ops.standard import TensorSpec
from isthmus.program.capture.check import Stream, check_function, check_program
from isthmus.program.capture.convert import Converter, tensor_spec, to_array
from isthmus.program.capture.initialisers import initialiser_of
from isthmus.program.capture.trace import (
    Batch,
    ModelTrace,
    OptimizerTrace,
    flat_state,
    trace_model,
    trace_optimizer,
)
from isthmus.program.capture.weight import Weight, weight_of
from isthmus.program.graph import Graph, GraphInput, Value
from isthmus.program.passes.pipeline import pipeline
from isthmus.program.program import Program
from isthmus.program.session import run_once

__all__ = ["capture"]

F32, I64 = dtype_named("f32"), dtype_named("i64")
Loss = Callable[[nn.Module, Batch], torch.Tensor]


def capture(
    model: nn.Module,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    example_batch: Batch,
    *,
    forward: Loss | None = None,
    forward_batch: Batch | None = None,
    clip_norm: float | None = None,
    initialisers: Mapping[str, Mapping[str, Any]] | None = None,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    weight: Callable[[Batch], torch.Tensor] | None = None,
    check: bool = True,
) -> Program:
    """Capture forward, loss, backward, clipping and optimizer as a program.

    loss(model, batch): the loss, one number.
    example_batch: tensors by name; their shapes and dtypes become the program's.
    forward(model, batch): the model's output, for a "forward" graph (generation, prediction),
        with the shapes of `forward_batch` (default: those of example_batch).
    clip_norm: largest norm of all gradients together, as torch.nn.utils.clip_grad_norm_.
    initialisers: patterns of parameter names -> initialiser, where it is not recorded.
    weight(batch): how many rows the loss is a mean of, for steps in micro-batches. Not needed for
        a mean cross-entropy, a masked sum divided by its count, plain means and plain sums; for
        other losses the program has no graphs for micro-batches without it.

    The model and the optimizer are left as they were.
    Raises: CaptureError for what cannot be captured, or when one step of the program differs
        from one step of PyTorch.
    """
    for key, tensor in example_batch.items():
        if not isinstance(tensor, torch.Tensor):
            raise CaptureError(
                f"batch entry {key!r} is {type(tensor).__name__}; it must be a tensor"
            )
    _require_cpu({**dict(model.named_parameters()), **dict(model.named_buffers()), **example_batch})
    pieces = _Pieces(model, loss, optimizer, example_batch, clip_norm, dict(initialisers or {}))
    pieces.given_weight = weight
    graphs = {"train": pieces.train_graph()}
    facts = dict(metadata or {})
    gradient = pieces.gradient_graph()
    if gradient is not None:
        graphs.update(gradient=gradient, apply=pieces.apply_graph())
    else:
        facts["absent_graphs"] = dict.fromkeys(("gradient", "apply"), _NO_WEIGHT)
    graphs["evaluate"] = pieces.evaluate_graph(loss, "loss")
    if forward is not None:
        graphs["forward"] = pieces.evaluate_graph(forward, "output", forward_batch)
    for graph in graphs.values():
        pipeline(graph)
    program = Program(name or type(model).__name__, graphs, pieces.stored_weights(), facts)
    program.metadata.setdefault("parameters", sum(p.numel() for p in model.parameters()))
    if check:
        check_program(
            program, model, loss, optimizer, example_batch, clip_norm=clip_norm,
            streams=pieces.streams, states=pieces.state_arrays(), run=run_once,
        )  # fmt: skip
        states = pieces.state_arrays()
        check_function(graphs["evaluate"], "loss", model, loss, example_batch, states)
        if forward is not None:
            given = forward_batch or example_batch
            check_function(graphs["forward"], "output", model, forward, given, states)
    return program


_NO_WEIGHT = "capture cannot tell what the loss is a mean of; give it weight=, the count of rows"


def _require_cpu(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise CaptureError for the first tensor that is elsewhere, or not dense."""
    for name, tensor in tensors.items():
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise CaptureError(
                f"{name} is {tensor.layout} on {tensor.device}; capture needs dense CPU tensors",
                hint="move the model and the example batch with .cpu()",
            )


class _Pieces:
    """The traces of a model and its optimizer, and the graphs made of them."""

    def __init__(
        self, model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer, batch: Batch,
        clip_norm: float | None, given: dict[str, Mapping[str, Any]],
    ) -> None:  # fmt: skip
        self.model, self.batch, self.clip_norm, self.given = model, batch, clip_norm, given
        self.parameters, self.buffers = flat_state(model)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.step_trace = trace_model(model, loss, batch, gradients=True, training=True)
        self.optimizer: OptimizerTrace = trace_optimizer(optimizer, trained)
        self.streams: list[Stream] = []
        self.given_weight: Callable[[Batch], torch.Tensor] | None = None
        self.constants: dict[str, torch.Tensor] = {}

    # States and their first values

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Every state with its present value."""
        states = {
            **{f"model.{n}": t for n, t in self.parameters.items()},
            **{f"model.{n}": t for n, t in self.buffers.items()},
            **{f"optimizer.{n}": t for n, t in self.optimizer.state.items()},
            **{f"gradient.{n}": torch.zeros_like(t) for n, t in self.parameters.items()},
            **self.constants,
        }
        arrays = {name: to_array(tensor) for name, tensor in states.items()}
        arrays["optimizer.step"] = np.array(self.optimizer.step_count, np.float32)
        arrays["gradient_weight"] = np.array(0.0, np.float32)
        return arrays

    def initialiser(self, name: str, tensor: torch.Tensor) -> dict[str, Any]:
        return initialiser_of(name, tensor, self.given)

    def stored_weights(self) -> dict[str, np.ndarray]:
        """Values that no initialiser makes."""
        everything = {**self.parameters, **self.buffers}
        stored = {
            f"model.{name}": to_array(tensor)
            for name, tensor in everything.items()
            if self.initialiser(name, tensor)["kind"] == "stored"
        }
        for name, tensor in self.optimizer.state.items():
            if initialiser_of(name, tensor, {})["kind"] == "stored":
                stored[f"optimizer.{name}"] = to_array(tensor)
        stored.update({name: to_array(tensor) for name, tensor in self.constants.items()})
        return stored

    # Graph building

    def _state(
        self, graph: Graph, name: str, spec: TensorSpec, role: str, initializer: dict[str, Any]
    ) -> Value:
        if name not in graph.inputs:
            value = Value(name, spec)
            graph.inputs[name] = GraphInput(name, "state", value, role, initializer)
        return graph.inputs[name].value

    def _start(self, name: str) -> tuple[Graph, Converter]:
        graph = Graph(name)

        def constant(_target: str, tensor: torch.Tensor) -> Value:
            key = f"constant.{len(self.constants)}"
            for known, other in self.constants.items():
                if other is tensor or (other.shape == tensor.shape and other.dtype == tensor.dtype
                                       and torch.equal(other, tensor)):  # fmt: skip
                    key = known
            self.constants[key] = tensor
            return self._state(graph, key, tensor_spec(tensor), "buffer", {"kind": "stored"})

        converter = Converter(graph, constant)
        converter.key = Value("key", TensorSpec((2,), I64))
        return graph, converter

    def _parameters(self, graph: Graph) -> list[Value]:
        return [
            self._state(graph, f"model.{name}", tensor_spec(tensor), "parameter",
                        self.initialiser(name, tensor))
            for name, tensor in self.parameters.items()
        ]  # fmt: skip

    def _buffers(self, graph: Graph) -> list[Value]:
        return [
            self._state(graph, f"model.{name}", tensor_spec(tensor), "buffer",
                        self.initialiser(name, tensor))
            for name, tensor in self.buffers.items()
        ]  # fmt: skip

    def _batch(self, graph: Graph, batch: Batch) -> list[Value]:
        for name, tensor in batch.items():
            if name not in graph.inputs:
                value = Value(f"batch.{name}", tensor_spec(tensor))
                graph.inputs[name] = GraphInput(name, "batch", value)
        return [graph.inputs[name].value for name in batch]

    def _finish(self, graph: Graph, converter: Converter) -> Graph:
        used = {value for node in graph.nodes for value in node.inputs}
        if converter.key in used:
            assert converter.key is not None, "a converter has a key"
            graph.inputs["key"] = GraphInput("key", "key", converter.key)
        return graph

    def _model(
        self, graph: Graph, converter: Converter, traced: ModelTrace, batch: Batch | None = None
    ) -> tuple[Value, list[Value], list[Value]]:
        parameters, buffers = self._parameters(graph), self._buffers(graph)
        given = self._batch(graph, batch or self.batch)
        return traced.append(converter, parameters, buffers, given)

    def _update_buffers(self, graph: Graph, new: list[Value]) -> None:
        for name, value in zip(self.buffers, new, strict=True):
            if graph.inputs[f"model.{name}"].value is not value:
                graph.updates[f"model.{name}"] = value

    def _optimize(self, graph: Graph, converter: Converter, gradients: list[Value]) -> None:
        """Clipping and the optimizer's update, with the gradients' norm as an output."""
        parameters = self._parameters(graph)
        trace = self.optimizer
        state = {
            name: self._state(graph, f"optimizer.{name}", tensor_spec(tensor), "optimizer",
                              initialiser_of(name, tensor, {}))
            for name, tensor in trace.state.items()
        }  # fmt: skip
        step = None
        if trace.has_step or trace.needs_step:
            step = self._state(
                graph, "optimizer.step", TensorSpec((), F32), "optimizer",
                {"kind": "constant", "value": trace.step_count},
            )  # fmt: skip
        rate = Value("learning_rate", TensorSpec((), F32))
        graph.inputs["learning_rate"] = GraphInput("learning_rate", "scalar", rate)
        converter.source = ""
        norm = converter.emit_all("global_norm", gradients)[0]
        graph.outputs["gradient_norm"] = norm
        first = len(graph.nodes)
        if trace.needs_step and step is not None:
            converter.step = converter.emit("add", step, converter.constant(1, F32))
        new_parameters, new_state, new_step = trace.append(
            converter, parameters, gradients, state, step, rate
        )
        if self.clip_norm is not None:
            self._clip(graph, converter, norm, first)
        for name, value in zip(self.parameters, new_parameters, strict=True):
            graph.updates[f"model.{name}"] = value
        for name, value in new_state.items():
            graph.updates[f"optimizer.{name}"] = value
        new_step = converter.step if trace.needs_step else new_step
        if new_step is not None:
            graph.updates["optimizer.step"] = new_step

    def _clip(self, graph: Graph, converter: Converter, norm: Value, first: int) -> None:
        """Give the optimizer operators the factor that brings the norm below the limit."""
        tail = graph.nodes[first:]
        del graph.nodes[first:]
        epsilon = converter.constant(1e-6, F32)
        limit = converter.constant(float(self.clip_norm or 0.0), F32)
        ratio = converter.emit("div", limit, converter.emit("add", norm, epsilon))
        scale = converter.emit("clamp", ratio, low=None, high=1.0)
        for node in tail:
            if node.op == "adamw":
                node.inputs = [*node.inputs[:6], scale]
            elif node.op == "sgd":
                node.inputs = [*(list(node.inputs) + [None] * 5)[:5], scale]
        graph.nodes += tail

    # Graphs

    def train_graph(self) -> Graph:
        """One whole step."""
        graph, converter = self._start("train")
        loss, gradients, buffers = self._model(graph, converter, self.step_trace)
        graph.outputs["loss"] = loss
        self.streams = list(converter.random)
        self._optimize(graph, converter, gradients)
        self._update_buffers(graph, buffers)
        return self._finish(graph, converter)

    def _weight(self, graph: Graph, converter: Converter, loss: Value) -> Weight:
        """How many rows the mean loss counts."""
        count = self.given_weight
        if count is None:
            found = weight_of(graph, loss)
        else:
            traced = trace_model(
                self.model, lambda _, batch: count(batch), self.batch,
                gradients=False, training=False,
            )  # fmt: skip
            found = Weight("rows", self._model(graph, converter, traced)[0])
        if found.count is None:
            return found
        return Weight("rows", converter.reshape(converter.cast(found.count, F32), ()))

    def gradient_graph(self) -> Graph | None:
        """A micro-batch: gradients, weighted by what the loss counts, are added up.

        None where that is not known.
        """
        graph, converter = self._start("gradient")
        loss, gradients, buffers = self._model(graph, converter, self.step_trace)
        found = self._weight(graph, converter, loss)
        if found.kind == "unknown":
            return None
        weight = found.count or converter.constant(1.0, F32)
        graph.outputs["loss"] = loss
        graph.outputs["weight"] = weight
        for (name, tensor), gradient in zip(self.parameters.items(), gradients, strict=True):
            total = self._state(graph, f"gradient.{name}", tensor_spec(tensor), "gradient",
                                {"kind": "zeros"})  # fmt: skip
            share = gradient
            if found.count is not None:
                share = converter.emit("mul", gradient, converter.cast(weight, share.spec.dtype))
                counted = converter.emit("gt", weight, converter.constant(0.0, F32))
                nothing = converter.constant(0, share.spec.dtype)
                share = converter.emit("where", counted, share, nothing)
            graph.updates[f"gradient.{name}"] = converter.emit("add", total, share)
        total = self._state(graph, "gradient_weight", TensorSpec((), F32), "gradient",
                            {"kind": "zeros"})  # fmt: skip
        # A sum is not divided by the number of micro-batches.
        joined = weight if found.kind == "sum" else converter.emit("add", total, weight)
        graph.updates["gradient_weight"] = joined
        self._update_buffers(graph, buffers)
        return self._finish(graph, converter)

    def apply_graph(self) -> Graph:
        """The update from gradients that were added up, which are cleared."""
        graph, converter = self._start("apply")
        total = self._state(graph, "gradient_weight", TensorSpec((), F32), "gradient",
                            {"kind": "zeros"})  # fmt: skip
        gradients = []
        for name, tensor in self.parameters.items():
            spec = tensor_spec(tensor)
            summed = self._state(graph, f"gradient.{name}", spec, "gradient", {"kind": "zeros"})
            gradients.append(converter.emit("div", summed, converter.cast(total, spec.dtype)))
            graph.updates[f"gradient.{name}"] = converter.constant(0, spec.dtype, spec.shape)
        graph.updates["gradient_weight"] = converter.constant(0, F32)
        self._optimize(graph, converter, gradients)
        return self._finish(graph, converter)

    def evaluate_graph(self, function: Loss, output: str, batch: Batch | None = None) -> Graph:
        """A function of the model without training: its result is the output."""
        batch = batch or self.batch
        traced = trace_model(self.model, function, batch, gradients=False, training=False)
        graph, converter = self._start("evaluate" if output == "loss" else "forward")
        result, _, _ = self._model(graph, converter, traced, batch)
        if output == "loss":
            result = converter.reshape(result, ())
            count = self._weight(graph, converter, result).count
            graph.outputs["weight"] = count or converter.constant(1.0, F32)
        graph.outputs[output] = result
        used = {value for node in graph.nodes for value in node.inputs} | set(
            graph.outputs.values()
        )
        for name in [
            n for n, e in graph.inputs.items() if e.kind == "batch" and e.value not in used
        ]:
            del graph.inputs[name]
        return self._finish(graph, converter)
