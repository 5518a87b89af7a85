"""The self-check: one step of the program against one step of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus.core.errors import CaptureError
from isthmus.ops.standard import operator
from isthmus.program.capture.convert import dtype_of, op_name, to_array
from isthmus.program.capture.whole import WholeDropout
from isthmus.program.graph import Graph
from isthmus.program.program import Program
from isthmus.program.reference import run_reference

__all__ = ["Stream", "check_function", "check_program", "eager_step"]

#: Largest relative difference of (loss, updates), by the narrowest float type of the graph. In f32
#: both sides sum thousands of products in different orders; narrower types round at other places
#: (8 roundings of f16, 4 of bf16, and 4 times that for updates). A wrong operator is off by more.
_TOLERANCES = {
    "f64": (1e-4, 2e-3),
    "f32": (1e-4, 2e-3),
    "f16": (4e-3, 1.6e-2),
    "bf16": (1.6e-2, 6.4e-2),
}

#: Two units in the last place of a state, for each of its dtypes.
_UNITS = {"float64": 2e-7, "float32": 2e-7, "float16": 2e-3, "bfloat16": 1.6e-2}

#: Size of the rounding noise in a gradient that is 0, as that of a bias before a batch norm, next
#: to the largest gradient of the model: sums of thousands of terms that cancel.
_NOISE = {"float64": 1e-5, "float32": 1e-5, "float16": 8e-3, "bfloat16": 6.4e-2}

_HINT = "the model does something that tracing cannot see; please report it"

_OVERFLOW = (
    "PyTorch's own step overflows there; use a wider dtype, another eps of the optimizer, or "
    "check=False"
)

#: One use of random numbers: (operator of the standard, its stream), in the order of the model.
Stream = tuple[str, int]
Run = Callable[..., tuple[dict[str, Any], dict[str, np.ndarray]]]


class _Replay(TorchDispatchMode):
    """Makes eager PyTorch draw the random numbers that the program draws."""

    _NAMES: ClassVar[dict[str, str]] = {
        "native_dropout": "dropout", "rand": "uniform", "rand_like": "uniform",
        "randn": "normal", "randn_like": "normal", "bernoulli_.float": "uniform",
        "bernoulli.p": "uniform",
    }  # fmt: skip

    def __init__(self, streams: Sequence[Stream], key: tuple[int, int]) -> None:
        super().__init__()
        self.streams = iter(streams)
        self.key = np.array(key, dtype=np.int64)

    def _draw(self, op: str, attrs: dict[str, Any], inputs: list[Any]) -> np.ndarray:
        wanted, stream = next(self.streams, (None, 0))
        if wanted != op:
            raise CaptureError(
                f"self-check failed: PyTorch draws {op} numbers where the program draws {wanted}",
                hint="the order of random numbers must be the same in every run of the model",
            )
        record = operator(op)
        full = {**dict(record.attrs), **attrs, "stream": stream}
        return np.asarray(record.reference([*inputs, self.key], full)[-1])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = op_name(func)
        if name not in self._NAMES or (name == "native_dropout" and (not args[2] or not args[1])):
            return func(*args, **kwargs)
        if name == "native_dropout":
            x, p = args[0], args[1]
            ones = np.ones(tuple(x.shape), np.float32)
            kept = torch.from_numpy(self._draw("dropout", {"p": p}, [ones]).astype(bool))
            return x * kept * (1.0 / (1.0 - p)), kept
        made = args[0] if name == "bernoulli_.float" else func(*args, **kwargs)
        attrs = {"shape": tuple(made.shape), "dtype": dtype_of(made.dtype).name}
        drawn = torch.from_numpy(np.array(self._draw(self._NAMES[name], attrs, []), np.float64))
        if name.startswith("bernoulli"):
            drawn = drawn < args[1]
        return made.copy_(drawn)


def eager_step(
    model: nn.Module, loss: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer,
    batch: Mapping[str, torch.Tensor], *, clip_norm: float | None, streams: Sequence[Stream],
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
    for parameter in twin.parameters():
        parameter.grad = None
    random_state = torch.random.get_rng_state()
    try:
        with _Replay(streams, key), WholeDropout():
            value = loss(twin, dict(batch))
            value.backward()
    finally:
        torch.random.set_rng_state(random_state)
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(twin.parameters(), clip_norm)
    twin_optimizer.step()
    after = {f"model.{name}": to_array(p) for name, p in twin.named_parameters()}
    after.update({f"model.{name}": to_array(b) for name, b in twin.named_buffers()})
    for name, parameter in twins.items():
        for key_name, tensor in twin_optimizer.state.get(parameter, {}).items():
            if isinstance(tensor, torch.Tensor):
                state = "step" if key_name == "step" else f"{name}.{key_name}"
                after[f"optimizer.{state}"] = to_array(tensor)
    return float(value.detach()), after


def check_program(
    program: Program, model: nn.Module, loss: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer, batch: Mapping[str, torch.Tensor], *,
    clip_norm: float | None, streams: Sequence[Stream], states: Mapping[str, np.ndarray],
    run: Run,
) -> None:  # fmt: skip
    """Compare one step of the program, by `run`, with one step of PyTorch.

    run(program, states, batch, scalars, key) -> (outputs, states after the step).
    Raises: CaptureError naming the first tensor that differs.
    """
    key = (1234, 5)
    rate = float(optimizer.param_groups[0]["lr"])
    arrays = {name: to_array(tensor) for name, tensor in batch.items()}
    outputs, after = run(program, states, arrays, {"learning_rate": rate}, key)
    want_loss, want = eager_step(
        model, loss, optimizer, batch, clip_norm=clip_norm, streams=streams, key=key
    )
    train = program.graph("train")
    loss_tolerance, update_tolerance = _tolerances(train)
    _compare_numbers("the loss", outputs["loss"], want_loss, loss_tolerance)
    largest = _largest_changes(train, states, want)
    for name, expected in want.items():
        if name not in train.inputs:
            if name in states and not np.array_equal(states[name], expected, equal_nan=True):
                raise CaptureError(f"self-check failed: the program leaves out {name}", hint=_HINT)
            continue  # neither the program nor PyTorch changes it
        if name not in after:
            raise CaptureError(f"self-check failed: the program keeps no {name}", hint=_HINT)
        moments = want.get(f"optimizer.{name.removeprefix('model.')}.exp_avg")
        noise = _NOISE.get(states[name].dtype.name, 0.0)
        floor = noise * largest.get(_kind(train, name), 0.0)
        small = noise * largest.get("exp_avg", 0.0)
        _compare_updates(
            name, states[name], after[name], expected, update_tolerance, floor, moments, small
        )


def _kind(graph: Graph, name: str) -> str:
    """States whose changes are of one size: parameters, or one kind of optimizer state."""
    role = graph.inputs[name].role
    if role == "parameter":
        return role
    return name.rpartition(".")[2] if role == "optimizer" else name


def _largest_changes(
    graph: Graph, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """The largest change in each kind of state."""
    found: dict[str, float] = {}
    for name, value in after.items():
        if name in graph.inputs and name in before:
            kind = _kind(graph, name)
            with np.errstate(invalid="ignore"):
                change = value.astype(np.float64) - before[name].astype(np.float64)
            found[kind] = max(found.get(kind, 0.0), _largest(change))
    return found


def check_function(
    graph: Graph, output: str, model: nn.Module, function: Callable[..., torch.Tensor],
    batch: Mapping[str, torch.Tensor], states: Mapping[str, np.ndarray],
) -> None:  # fmt: skip
    """Compare a graph without updates, by the float64 references, with the model in eval mode.

    Raises: CaptureError when the output differs.
    """
    if any(entry.kind == "key" for entry in graph.inputs.values()):
        return  # random numbers outside training are not replayed
    with torch.no_grad():
        want = function(copy.deepcopy(model).eval(), dict(batch))
    arrays = {name: to_array(tensor) for name, tensor in batch.items()}
    outputs, _ = run_reference(graph, states, arrays, {})
    expected = to_array(want).reshape(graph.outputs[output].spec.shape)
    tolerance = _tolerances(graph)[0]
    _compare_numbers(f"{output} of graph {graph.name!r}", outputs[output], expected, tolerance)


def _tolerances(graph: Graph) -> tuple[float, float]:
    values = [entry.value for entry in graph.inputs.values()]
    values += [value for node in graph.nodes for value in node.outputs]
    names = {value.spec.dtype.name for value in values}
    return next(_TOLERANCES[name] for name in ("bf16", "f16", "f32", "f64") if name in names)


def _same(got: np.ndarray, want: np.ndarray, allowed: float) -> np.ndarray:
    """Where two arrays agree: NaN is equal to NaN alone, infinity to itself."""
    with np.errstate(invalid="ignore"):
        close = np.abs(got - want) <= allowed
    return close | (got == want) | (np.isnan(got) & np.isnan(want))


def _largest(array: np.ndarray) -> float:
    """The largest size of the finite elements."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def _compare_numbers(what: str, got: Any, want: Any, tolerance: float) -> None:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    same = _same(got, want, tolerance * _largest(want) + 1e-6)
    if not same.all():
        place = tuple(int(axis) for axis in np.argwhere(~same)[0])
        raise CaptureError(
            f"self-check failed: {what} is {got[place]:.9g} in the program, {want[place]:.9g} in "
            "PyTorch",
            hint=_HINT,
        )


def _compare_updates(
    name: str, before: np.ndarray, got: np.ndarray, want: np.ndarray, tolerance: float,
    floor: float, moments: np.ndarray | None, small: float,
) -> None:  # fmt: skip
    """Compare what a step added to a state.

    floor: difference that is rounding noise next to the changes of other states.
    moments: Adam's first moment of this parameter, noise where it is below `small`.
    """
    unit = _UNITS.get(before.dtype.name, 0.0)
    before, got, want = (np.asarray(array, np.float64) for array in (before, got, want))
    with np.errstate(invalid="ignore"):
        change = want - before
    allowed = tolerance * _largest(change) + unit * _largest(before) + floor
    same = _same(got, want, allowed)
    if moments is not None and name.startswith("model."):
        # Adam divides by the gradient's size: where that is rounding noise, so is the direction
        # of the step, but it is no longer than elsewhere.
        size = np.abs(np.asarray(moments, np.float64))
        noise = size <= max(1e-2 * size.max(initial=0.0), small)
        same |= noise & (np.abs(got - before) <= 2.0 * _largest(change) + allowed)
    if not same.all():
        place = tuple(int(axis) for axis in np.argwhere(~same)[0])
        overflow = np.isfinite(before[place]) and not np.isfinite(want[place])
        raise CaptureError(
            f"self-check failed: after one step {name} differs from PyTorch's in "
            f"{int((~same).sum())} of {same.size} elements, first at {list(place)}: "
            f"{got[place]:.9g} in the program, {want[place]:.9g} in PyTorch",
            hint=_OVERFLOW if overflow else _HINT,
        )
