"""Tracing a model's step: forward, loss and gradients in one graph, the optimizer in another.

`Parts` can append either to any graph, so that a whole step, a micro-batch, or an update
alone are made of the same pieces.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from isthmus.core.errors import CaptureError
from isthmus.program.capture import aten as _rules
from isthmus.program.capture.convert import Converter
from isthmus.program.capture.places import SourcePlaces
from isthmus.program.capture.torch_private import core_operators, trace, without_onednn
from isthmus.program.capture.whole import WholeOperators
from isthmus.program.graph import Value

__all__ = [
    "Batch", "ModelTrace", "OptimizerTrace", "flat_state", "trace_model", "trace_optimizer",
]  # fmt: skip

Batch = Mapping[str, torch.Tensor]
Loss = Callable[[nn.Module, Batch], torch.Tensor]
_ = _rules  # importing the rules fills their table


class _Wrapped(nn.Module):
    """A model with what is computed from it, so that its tensors can be replaced.

    buffers: names of the tensors to give back: those that the model holds at the end, whether it
        changed them in place or put others in their place.
    """

    def __init__(
        self, model: nn.Module, function: Callable[[nn.Module, Batch], Any], buffers: list[str]
    ) -> None:
        super().__init__()
        self.model, self.function, self.buffers_kept = model, function, buffers

    def forward(self, batch: Batch) -> Any:
        result = self.function(self.model, batch)
        held = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        return result, [held[name] for name in self.buffers_kept]


def flat_state(model: nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(parameters, buffers) by name; shared ones once. Buffers never trained included."""
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    buffers = {name: b.detach() for name, b in model.named_buffers()}
    return parameters, {**frozen, **buffers}


@dataclass(slots=True)
class ModelTrace:
    """A traced function of (parameters, buffers, batch): its result, gradients, new buffers."""

    module: torch.fx.GraphModule
    parameter_names: list[str]
    buffer_names: list[str]
    batch_names: list[str]
    with_gradients: bool

    def append(
        self, converter: Converter, parameters: Sequence[Value], buffers: Sequence[Value],
        batch: Sequence[Value],
    ) -> tuple[Value, list[Value], list[Value]]:  # fmt: skip
        """Add the operations to a graph: (result, gradients, new buffers)."""
        flat = _flat(converter.run(self.module, [*parameters, *buffers, *batch]))
        count = len(parameters) if self.with_gradients else 0
        return flat[0], flat[1 : 1 + count], flat[1 + count :]


def _flat(structure: Any) -> list[Value]:
    if isinstance(structure, (tuple, list)):
        return [leaf for item in structure for leaf in _flat(item)]
    return [structure]


@contextlib.contextmanager
def _mode(model: nn.Module, training: bool) -> Iterator[None]:
    states = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, state in states.items():
            module.training = state


def trace_model(
    model: nn.Module, function: Callable[[nn.Module, Batch], Any], batch: Batch, *,
    gradients: bool, training: bool,
) -> ModelTrace:  # fmt: skip
    """Trace `function(model, batch)`, with the gradients of its result when asked.

    Raises: CaptureError when the function's result is not what is needed.
    """
    parameters, buffers = flat_state(model)
    wrapped = _Wrapped(model, function, list(buffers))
    names, places = list(batch), SourcePlaces()

    def step(p: list[torch.Tensor], b: list[torch.Tensor], data: list[torch.Tensor]) -> Any:
        leaves = [x.detach().requires_grad_(gradients) for x in p]
        copies = [x.clone() for x in b]
        state = {
            **{f"model.{n}": x for n, x in zip(parameters, leaves, strict=True)},
            **{f"model.{n}": x for n, x in zip(buffers, copies, strict=True)},
        }
        with torch.set_grad_enabled(gradients), WholeOperators(), places:
            given = dict(zip(names, data, strict=True))
            result, copies = torch.func.functional_call(wrapped, state, (given,))
            copies = [x.detach() for x in copies]
        if not isinstance(result, torch.Tensor):
            raise CaptureError(
                f"the function gives {type(result).__name__}; it must give one tensor",
                hint="return the loss (or the model's output) alone",
            )
        if not gradients:
            return result, [], copies
        if result.numel() != 1:
            raise CaptureError(
                f"the loss has shape {tuple(result.shape)}; it must be one number",
                hint="use reduction='mean'",
            )
        found = torch.autograd.grad(result, leaves, allow_unused=True)
        idle = [n for n, g in zip(parameters, found, strict=True) if g is None]
        if idle:
            raise CaptureError(
                f"{len(idle)} parameters do not take part in the loss, such as {idle[0]!r}",
                hint="freeze them with requires_grad_(False), or leave them out of the model",
            )
        return result.detach().reshape(()), list(found), copies

    arguments = (list(parameters.values()), list(buffers.values()), list(batch.values()))
    # The random state is as it was: tracing draws numbers that do not count.
    random_state = torch.random.get_rng_state()
    try:
        with _mode(model, training), without_onednn():
            module = core_operators(_trace_at(step, arguments, places), arguments)
    finally:
        torch.random.set_rng_state(random_state)
    return ModelTrace(module, list(parameters), list(buffers), names, gradients)


def _trace_at(
    step: Callable[..., Any], arguments: Sequence[Any], places: SourcePlaces
) -> torch.fx.GraphModule:
    """`trace`, with the line of the model where a tensor's value was asked for."""
    try:
        return trace(step, arguments)
    except CaptureError as error:
        if not places.latest or error.__cause__ is None:
            raise
        raise CaptureError(f"{places.latest}: {error.message}", hint=error.hint) from error


@dataclass(slots=True)
class OptimizerTrace:
    """A traced optimizer step.

    state_names: (parameter name, name of its state) in placeholder order, without the step count.
    needs_step: whether the update depends on a count of steps that the optimizer does not keep:
        SGD with dampening takes the whole gradient in its first step.
    """

    module: torch.fx.GraphModule
    state_names: list[tuple[str, str]]
    state: dict[str, torch.Tensor]
    has_step: bool
    step_count: float
    needs_step: bool

    def append(
        self, converter: Converter, parameters: Sequence[Value], gradients: Sequence[Value],
        state: Mapping[str, Value], step: Value | None, rate: Value,
    ) -> tuple[list[Value], dict[str, Value], Value | None]:  # fmt: skip
        """Add the update to a graph: (new parameters, new state by name, new step count)."""
        placeholders: list[Any] = [*parameters, *gradients]
        placeholders += [state[f"{p}.{s}"] for p, s in self.state_names]
        placeholders += [step] * (len(parameters) if self.has_step else 0)
        flat = _flat(converter.run(self.module, [*placeholders, rate]))
        count, names = len(parameters), [f"{p}.{s}" for p, s in self.state_names]
        return (
            flat[:count],
            dict(zip(names, flat[count : count + len(names)], strict=True)),
            flat[-1] if self.has_step else None,
        )


#: Optimizers whose fused update is one operator of the standard.
_SUPPORTED = (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD)


def trace_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]
) -> OptimizerTrace:
    """Trace the user's optimizer for one step, as it is configured; it is left as it was.

    parameters: the trained parameters by name.
    Raises: CaptureError for optimizers without a fused update, or other parameters than these.
    """
    if not isinstance(optimizer, _SUPPORTED):
        raise CaptureError(
            f"optimizer {type(optimizer).__name__} has no counterpart in the standard",
            hint=f"use {', '.join(kind.__name__ for kind in _SUPPORTED)} of torch.optim",
        )
    if any(group.get("amsgrad") for group in optimizer.param_groups):
        raise CaptureError(
            f"{type(optimizer).__name__} with amsgrad=True has no counterpart in the standard",
            hint="make the optimizer without amsgrad",
        )
    owned = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    by_identity = {id(p): name for name, p in parameters.items()}
    _require_same({id(p) for p in owned}, by_identity)
    base = optimizer.param_groups[0]["lr"]
    base = float(base)
    initial = _initial_state(optimizer, parameters)
    slots = [
        (name, key) for name in parameters for key, tensor in initial[name].items() if key != "step"
    ]
    has_step = any("step" in entry for entry in initial.values())
    counts = {float(entry["step"]) for entry in initial.values() if "step" in entry}
    if len(counts) > 1:
        raise CaptureError(f"the optimizer's parameters are at different steps: {sorted(counts)}")

    def step(
        p: list[torch.Tensor], g: list[torch.Tensor], s: list[torch.Tensor],
        counts: list[torch.Tensor], rate: torch.Tensor,
    ) -> Any:  # fmt: skip
        p, s = [x.clone() for x in p], [x.clone() for x in s]
        counts = [x.clone() for x in counts]
        fresh = dict(zip(parameters, p, strict=True))
        for tensor, gradient in zip(p, g, strict=True):
            tensor.grad = gradient
        state: dict[Any, dict[str, Any]] = {fresh[name]: {} for name in fresh}
        for (name, key), tensor in zip(slots, s, strict=True):
            state[fresh[name]][key] = tensor
        for name, count in zip(parameters, counts, strict=False):
            state[fresh[name]]["step"] = count
        kept_state = optimizer.state
        kept_groups = [dict(group) for group in optimizer.param_groups]
        try:
            optimizer.state = type(kept_state)(dict)
            optimizer.state.update(state)
            for group in optimizer.param_groups:
                ratio = float(group["lr"]) / base if base else 1.0
                group["lr"] = rate if ratio == 1.0 else rate * ratio
                group["params"] = [
                    fresh[by_identity[id(q)]] for q in group["params"] if q.requires_grad
                ]
                group["fused"], group["foreach"] = True, False
            optimizer.step()
        finally:
            optimizer.state = kept_state
            for group, kept in zip(optimizer.param_groups, kept_groups, strict=True):
                group.clear()
                group.update(kept)
        return p, s, counts

    tensors = [p.detach() for p in parameters.values()]
    arguments = (
        tensors,
        [torch.zeros_like(p) for p in tensors],
        [initial[name][key] for name, key in slots],
        [torch.zeros(()) for _ in tensors] if has_step else [],
        torch.tensor(base),
    )
    with torch.no_grad():
        module = trace(step, arguments)
    state = {f"{name}.{key}": initial[name][key] for name, key in slots}
    needs_step = any(g.get("momentum") and g.get("dampening") for g in optimizer.param_groups)
    started = any(optimizer.state.get(p) for p in parameters.values())
    count = counts.pop() if counts else float(needs_step and started)
    return OptimizerTrace(module, slots, state, has_step, count, needs_step)


def _require_same(owned: set[int], names: Mapping[int, str]) -> None:
    """Raise CaptureError unless the optimizer has exactly the trained parameters."""
    left_out = [name for identity, name in names.items() if identity not in owned]
    if left_out:
        raise CaptureError(
            f"the optimizer leaves out {len(left_out)} of the model's {len(names)} trained "
            f"parameters, such as {left_out[0]!r}",
            hint="freeze them with requires_grad_(False), or give the optimizer all of "
            "model.parameters()",
        )
    if len(owned) > len(names):
        raise CaptureError(
            f"the optimizer has {len(owned) - len(names)} parameters that the model has not",
            hint="make the optimizer from model.parameters()",
        )


def _initial_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]
) -> dict[str, dict[str, torch.Tensor]]:
    """The optimizer's state per parameter; what a first step would make counts as zeros."""
    if all(optimizer.state.get(p) for p in parameters.values()):
        return {
            name: {k: v.detach().clone() for k, v in optimizer.state[p].items() if v is not None}
            for name, p in parameters.items()
        }
    settings = []
    copies = {name: p.detach().clone().requires_grad_() for name, p in parameters.items()}
    by_identity = {id(p): copies[name] for name, p in parameters.items()}
    for group in optimizer.param_groups:
        copied = {k: v for k, v in group.items() if k != "params"}
        copied["lr"] = float(copied["lr"])
        settings.append(
            {**copied, "params": [by_identity[id(p)] for p in group["params"] if p.requires_grad]}
        )
    optimizer_class: Any = type(optimizer)
    probe = optimizer_class(settings)
    for tensor in copies.values():
        tensor.grad = torch.zeros_like(tensor)
    probe.step()
    return {
        name: {
            key: torch.zeros_like(value)
            for key, value in probe.state[tensor].items()
            if isinstance(value, torch.Tensor)
        }
        for name, tensor in copies.items()
    }
