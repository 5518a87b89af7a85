"""The self-check: one step of the program against one step of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus.core.errors import CaptureError
from isthmus.ops.standard import operator
from isthmus.program.capture.convert import op_name
from isthmus.program.capture.trace import WholeDropout
from isthmus.program.program import Program

__all__ = ["check_program", "eager_step"]

#: Largest relative difference of losses and updates. Both sides sum thousands of f32 products in
#: different orders; an operator that is wrong is off by far more.
LOSS_TOLERANCE = 1e-4
UPDATE_TOLERANCE = 2e-3


class _Dropout(TorchDispatchMode):
    """Makes eager dropout use the masks that the program draws."""

    def __init__(self, streams: list[int], key: tuple[int, int]) -> None:
        super().__init__()
        self.streams = iter(streams)
        self.key = np.array(key, dtype=np.int64)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op_name(func) == "native_dropout" and args[2] is not False and args[1] != 0:
            x, p = args[0], args[1]
            ones = np.ones(tuple(x.shape), np.float32)
            attrs = {"p": p, "stream": next(self.streams)}
            _, mask = operator("dropout").reference([ones, self.key], attrs)
            kept = torch.from_numpy(np.asarray(mask, dtype=bool))
            return x * kept * (1.0 / (1.0 - p)), kept
        return func(*args, **(kwargs or {}))


def eager_step(
    model: nn.Module, loss: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer,
    batch: Mapping[str, torch.Tensor], *, clip_norm: float | None, streams: list[int],
    key: tuple[int, int],
) -> tuple[float, dict[str, np.ndarray]]:  # fmt: skip
    """(loss, states after the step by their names in programs) of one PyTorch step on copies."""
    twin = copy.deepcopy(model).train()
    names = {id(p): name for name, p in model.named_parameters()}
    twins = dict(twin.named_parameters())
    groups = [
        {**{k: v for k, v in group.items() if k != "params"},
         "params": [twins[names[id(p)]] for p in group["params"]]}
        for group in optimizer.param_groups
    ]  # fmt: skip
    optimizer_class: Any = type(optimizer)
    twin_optimizer = optimizer_class(groups)
    for p in (p for group in optimizer.param_groups for p in group["params"]):
        if optimizer.state.get(p):
            twin_optimizer.state[twins[names[id(p)]]] = copy.deepcopy(dict(optimizer.state[p]))
    with _Dropout(streams, key), WholeDropout():
        value = loss(twin, dict(batch))
        value.backward()
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(twin.parameters(), clip_norm)
    twin_optimizer.step()
    after = {f"model.{name}": p.detach().numpy().copy() for name, p in twin.named_parameters()}
    for name, parameter in twins.items():
        for key_name, tensor in twin_optimizer.state.get(parameter, {}).items():
            if isinstance(tensor, torch.Tensor) and key_name != "step":
                after[f"optimizer.{name}.{key_name}"] = tensor.detach().numpy().copy()
    return float(value.detach()), after


def check_program(
    program: Program, model: nn.Module, loss: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer, batch: Mapping[str, torch.Tensor], *,
    clip_norm: float | None, streams: list[int], states: dict[str, np.ndarray],
    run: Callable[..., tuple[dict[str, Any], dict[str, np.ndarray]]],
) -> None:  # fmt: skip
    """Compare one step of the program, by `run`, with one step of PyTorch.

    run(program, states, batch, scalars, key) -> (outputs, states after the step).
    Raises: CaptureError naming the first tensor that differs.
    """
    key = (1234, 5)
    rate = float(optimizer.param_groups[0]["lr"])
    arrays = {name: tensor.detach().numpy() for name, tensor in batch.items()}
    outputs, after = run(program, states, arrays, {"learning_rate": rate}, key)
    want_loss, want = eager_step(
        model, loss, optimizer, batch, clip_norm=clip_norm, streams=streams, key=key
    )
    got_loss = float(outputs["loss"])
    if not np.isclose(got_loss, want_loss, rtol=LOSS_TOLERANCE, atol=1e-6, equal_nan=True):
        raise CaptureError(
            f"self-check failed: the program's loss is {got_loss}, PyTorch's {want_loss}",
            hint="the model does something that tracing cannot see; please report it",
        )
    for name, expected in want.items():
        if name not in after or name not in states:
            continue
        before = states[name].astype(np.float64)
        change = expected.astype(np.float64) - before
        got = after[name].astype(np.float64) - before
        allowed = UPDATE_TOLERANCE * np.abs(change).max(initial=0.0)
        allowed += 1e-7 * np.abs(before).max(initial=0.0)
        wrong = np.abs(got - change) > allowed
        moments = want.get(f"optimizer.{name.removeprefix('model.')}.exp_avg")
        if moments is not None and name.startswith("model."):
            # Adam divides by the gradient's size: where that is rounding noise, so is the step.
            size = np.abs(moments)
            wrong &= size > 1e-2 * size.max(initial=0.0)
        if wrong.any():
            raise CaptureError(
                f"self-check failed: after one step {name} differs from PyTorch's in "
                f"{int(wrong.sum())} of {wrong.size} elements",
                hint="the model does something that tracing cannot see; please report it",
            )
