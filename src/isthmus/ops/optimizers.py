"""Optimizer updates and the norm that clipping needs.

adamw   g = scale * grad (negated when maximize; + weight_decay * p when not decoupled)
        m' = beta1 m + (1 - beta1) g,  v' = beta2 v + (1 - beta2) g^2
        p' = p (1 - lr weight_decay)
             - lr / (1 - beta1^step) * m' / (sqrt(v' / (1 - beta2^step)) + eps)
sgd     g = scale * grad (negated when maximize) + weight_decay * p
        m' = momentum m + (1 - dampening) g (at step 1: m' = g)
        p' = p - lr * (g + momentum m' when nesterov, else m'; g without momentum)
global_norm  sqrt(sum of squares of all elements of all inputs)

step is the already incremented count (1 in the first step), lr the learning rate, scale a factor
for the gradient (clipping, loss scaling): scalars of rank 0.
Types: each tensor keeps its own float dtype; computed in f32, f64 where the parameter is f64.
"""

# ruff: noqa: SIM108  (an `if` on a constexpr leaves the other branch out)
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.errors import ProgramError
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    F32,
    F64,
    FLOATS,
    Arrays,
    Specs,
    cost_of,
    real,
    require_dtypes,
    require_shape,
    tolerances,
)
from isthmus.ops.schedule import (
    block_size,
    ceil_div,
    inputs,
    optional_input,
    outputs,
    workspace,
)
from isthmus.ops.standard import Attrs, Launch, Operator, Plan, TensorSpec, View, register

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__: list[str] = []


def _check(op: str, specs: Specs, names: tuple[str, ...]) -> None:
    """Floats; those before "step" or "lr" share the parameter's shape, the others are scalars."""
    scalars = ("step", "lr", "scale")
    for name, spec in zip(names, specs, strict=True):
        if spec is not None:
            require_dtypes(op, name, spec, FLOATS)
            require_shape(op, name, spec, () if name in scalars else specs[0].shape)


def _adamw_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    _check("adamw", specs, ("param", "grad", "m", "v", "step", "lr", "scale"))
    if attrs["amsgrad"]:
        raise ProgramError("adamw: amsgrad is not in the standard", hint="use amsgrad=False")
    return [specs[0], specs[2], specs[3]]


def _adamw_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    p, g, m, v, step, lr, scale = (None if array is None else real(array) for array in arrays)
    assert p is not None
    assert g is not None
    assert m is not None
    assert v is not None
    assert lr is not None
    beta1, beta2, decay = attrs["beta1"], attrs["beta2"], attrs["weight_decay"]
    with np.errstate(all="ignore"):
        if scale is not None:
            g = g * scale
        if attrs["maximize"]:
            g = -g
        if attrs["decoupled"]:
            p = p * (1.0 - lr * decay)
        else:
            g = g + decay * p
        m = beta1 * m + (1.0 - beta1) * g
        v = beta2 * v + (1.0 - beta2) * g * g
        first, second = 1.0 - beta1**step, 1.0 - beta2**step
        p = p - lr / first * m / (np.sqrt(v / second) + attrs["eps"])
    return [p, m, v]


def _sgd_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    _check("sgd", specs, ("param", "grad", "momentum", "lr", "step", "scale"))
    if specs[2] is None:
        if attrs["momentum"]:
            raise ProgramError("sgd: momentum needs its buffer as third input")
        return [specs[0]]
    return [specs[0], specs[2]]


def _sgd_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    p, g, m, lr, step, scale = (None if array is None else real(array) for array in arrays)
    assert p is not None
    assert g is not None
    assert lr is not None
    momentum = attrs["momentum"]
    with np.errstate(all="ignore"):
        if scale is not None:
            g = g * scale
        if attrs["maximize"]:
            g = -g
        g = g + attrs["weight_decay"] * p
        if m is None:
            return [p - lr * g]
        running = momentum * m + (1.0 - attrs["dampening"]) * g
        m = running if step is None or step != 1.0 else g
        return [p - lr * (g + momentum * m if attrs["nesterov"] else m), m]


def _global_norm_infer(specs: Specs, _attrs: Attrs) -> list[TensorSpec]:
    for index, spec in enumerate(specs):
        require_dtypes("global_norm", f"input {index}", spec, FLOATS)
    return [TensorSpec((), F32)]


def _global_norm_reference(arrays: Arrays, _attrs: Attrs) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.sqrt(np.asarray(sum((real(array) ** 2).sum() for array in arrays), np.float64))]


@jit
def adamw_kernel(
    param_ptr, grad_ptr, m_ptr, v_ptr, step_ptr, lr_ptr, scale_ptr,
    new_param_ptr, new_m_ptr, new_v_ptr, size,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr,
    EPS: tl.constexpr, DECAY: tl.constexpr, DECOUPLED: tl.constexpr, MAXIMIZE: tl.constexpr,
    BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """One pass over BLOCK elements per program. The bias corrections are found in f64."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = places < size
    step = tl.load(step_ptr).to(tl.float64)
    lr = tl.load(lr_ptr).to(tl.float64)
    first = 1.0 - tl.exp(step * LOG_BETA1)
    second = 1.0 - tl.exp(step * LOG_BETA2)
    step_size = (lr / first).to(ACC)
    root = (1.0 / tl.sqrt(second)).to(ACC)
    p = tl.load(param_ptr + places, mask=mask, other=0.0).to(ACC)
    g = tl.load(grad_ptr + places, mask=mask, other=0.0).to(ACC)
    m = tl.load(m_ptr + places, mask=mask, other=0.0).to(ACC)
    v = tl.load(v_ptr + places, mask=mask, other=0.0).to(ACC)
    if scale_ptr is not None:
        g = g * tl.load(scale_ptr).to(ACC)
    if MAXIMIZE:
        g = -g
    if DECOUPLED:
        p = p * (1.0 - lr * DECAY).to(ACC)
    elif DECAY != 0.0:
        g = g + p * DECAY
    m = m * BETA1 + g * (1.0 - BETA1)
    v = v * BETA2 + g * g * (1.0 - BETA2)
    p = p - step_size * m / (tl.sqrt(v) * root + EPS)
    tl.store(new_param_ptr + places, p, mask=mask)
    tl.store(new_m_ptr + places, m, mask=mask)
    tl.store(new_v_ptr + places, v, mask=mask)


@jit
def sgd_kernel(
    param_ptr, grad_ptr, momentum_ptr, lr_ptr, step_ptr, scale_ptr, new_param_ptr,
    new_momentum_ptr, size, MOMENTUM: tl.constexpr, DAMPENING: tl.constexpr, DECAY: tl.constexpr,
    NESTEROV: tl.constexpr, MAXIMIZE: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """One pass over BLOCK elements per program."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = places < size
    lr = tl.load(lr_ptr).to(ACC)
    p = tl.load(param_ptr + places, mask=mask, other=0.0).to(ACC)
    g = tl.load(grad_ptr + places, mask=mask, other=0.0).to(ACC)
    if scale_ptr is not None:
        g = g * tl.load(scale_ptr).to(ACC)
    if MAXIMIZE:
        g = -g
    if DECAY != 0.0:
        g = g + p * DECAY
    if momentum_ptr is not None:
        m = tl.load(momentum_ptr + places, mask=mask, other=0.0).to(ACC)
        m = m * MOMENTUM + g * (1.0 - DAMPENING)
        if step_ptr is not None:
            m = tl.where(tl.load(step_ptr).to(tl.float32) == 1.0, g, m)
        tl.store(new_momentum_ptr + places, m, mask=mask)
        if NESTEROV:
            g = g + m * MOMENTUM
        else:
            g = m
    tl.store(new_param_ptr + places, p - lr * g, mask=mask)


@jit(do_not_specialize=["start"])
def square_sum_kernel(
    x_ptr, out_ptr, size, start, LENGTH: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr
):  # fmt: skip
    """The sum of squares of LENGTH elements per program; blocks are added in f64."""
    first = tl.program_id(0).to(tl.int64) * LENGTH
    places = tl.arange(0, BLOCK)
    total = tl.sum(tl.zeros((BLOCK,), tl.float64), 0)
    for offset in range(first, min(first + LENGTH, size), BLOCK):
        x = tl.load(x_ptr + offset + places, mask=offset + places < size, other=0.0).to(ACC)
        total += tl.sum(x * x, 0).to(tl.float64)
    tl.store(out_ptr + start + tl.program_id(0), total)


@jit
def root_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """One program: the root of the sum of `count` numbers."""
    places = tl.arange(0, BLOCK)
    totals = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, count, BLOCK):
        totals += tl.load(x_ptr + start + places, mask=start + places < count, other=0.0)
    tl.store(out_ptr, tl.sqrt(tl.sum(totals, 0)).to(tl.float32))


#: Elements per program of an update.
UPDATE_BLOCK = 16384
#: Elements per partial sum of a norm, and per block of it.
NORM_LENGTH = 65536
NORM_BLOCK = 4096


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0.0 else -1e30  # exp of it times a step is 0


def _work_type(view: View) -> Any:
    return tl.float64 if view.dtype.name == "f64" else tl.float32


def _adamw_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    size = outs[0].size
    if size == 0:
        return Plan(())
    block = block_size(size, UPDATE_BLOCK, target)
    beta1, beta2 = float(attrs["beta1"]), float(attrs["beta2"])
    args = {
        "param_ptr": inputs(0), "grad_ptr": inputs(1), "m_ptr": inputs(2), "v_ptr": inputs(3),
        "step_ptr": inputs(4), "lr_ptr": inputs(5), "scale_ptr": optional_input(views[6], 6),
        "new_param_ptr": outputs(0), "new_m_ptr": outputs(1), "new_v_ptr": outputs(2),
        "size": size, "BETA1": beta1, "BETA2": beta2, "LOG_BETA1": _log(beta1),
        "LOG_BETA2": _log(beta2), "EPS": float(attrs["eps"]),
        "DECAY": float(attrs["weight_decay"]), "DECOUPLED": bool(attrs["decoupled"]),
        "MAXIMIZE": bool(attrs["maximize"]), "BLOCK": block, "ACC": _work_type(views[0]),
    }  # fmt: skip
    return Plan((Launch(adamw_kernel, args, (ceil_div(size, block), 1, 1)),))


def _sgd_plan(
    views: Sequence[Any], outs: Sequence[View], attrs: Attrs, target: TargetDescription
) -> Plan:
    size = outs[0].size
    if size == 0:
        return Plan(())
    block = block_size(size, UPDATE_BLOCK, target)
    args = {
        "param_ptr": inputs(0), "grad_ptr": inputs(1), "momentum_ptr": optional_input(views[2], 2),
        "lr_ptr": inputs(3), "step_ptr": optional_input(views[4], 4),
        "scale_ptr": optional_input(views[5], 5), "new_param_ptr": outputs(0),
        "new_momentum_ptr": None if views[2] is None else outputs(1), "size": size,
        "MOMENTUM": float(attrs["momentum"]), "DAMPENING": float(attrs["dampening"]),
        "DECAY": float(attrs["weight_decay"]), "NESTEROV": bool(attrs["nesterov"]),
        "MAXIMIZE": bool(attrs["maximize"]), "BLOCK": block, "ACC": _work_type(views[0]),
    }  # fmt: skip
    return Plan((Launch(sgd_kernel, args, (ceil_div(size, block), 1, 1)),))


def _global_norm_plan(
    views: Sequence[Any], _outs: Sequence[View], _attrs: Attrs, target: TargetDescription
) -> Plan:
    launches, count = [], 0
    for index, view in enumerate(views):
        if view.size == 0:
            continue
        parts = ceil_div(view.size, NORM_LENGTH)
        args = {
            "x_ptr": inputs(index), "out_ptr": workspace(0, F64), "size": view.size, "start": count,
            "LENGTH": NORM_LENGTH, "BLOCK": block_size(view.size, NORM_BLOCK, target),
            "ACC": _work_type(view),
        }  # fmt: skip
        launches.append(Launch(square_sum_kernel, args, (parts, 1, 1)))
        count += parts
    args = {
        "x_ptr": workspace(0, F64), "out_ptr": outputs(0), "count": count,
        "BLOCK": block_size(count, 256, target),
    }  # fmt: skip
    launches.append(Launch(root_kernel, args, (1, 1, 1)))
    return Plan(tuple(launches), (8 * max(count, 1),))


_REASON = "a chain of about ten rounded operations; the step may cancel the parameter: absolute"
register(
    Operator(
        name="adamw",
        doc=__doc__ or "",
        inputs=("param", "grad", "m", "v", "step", "lr", "scale?"),
        infer=_adamw_infer,
        reference=_adamw_reference,
        plan=_adamw_plan,
        cost=cost_of(16),
        attrs={
            "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01,
            "amsgrad": False, "maximize": False, "decoupled": True,
        },
        tolerance=tolerances(16, _REASON, absolute_ulps=4),
        gradient="none",
        inplace={0: (0,), 1: (2,), 2: (3,)},
    )
)  # fmt: skip
register(
    Operator(
        name="sgd",
        doc="Stochastic gradient descent with momentum; formulas at adamw. Without a step input "
        "the momentum buffer starts from what it holds (zeros), as if dampening applied.",
        inputs=("param", "grad", "momentum?", "lr", "step?", "scale?"),
        infer=_sgd_infer,
        reference=_sgd_reference,
        plan=_sgd_plan,
        cost=cost_of(6),
        attrs={
            "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0,
            "nesterov": False, "maximize": False,
        },
        tolerance=tolerances(8, _REASON, absolute_ulps=4),
        gradient="none",
        inplace={0: (0,), 1: (2,)},
    )
)  # fmt: skip
register(
    Operator(
        name="global_norm",
        doc="sqrt of the sum of squares over all inputs, as f32; summed in fixed chunks.",
        inputs=("xs*",),
        infer=_global_norm_infer,
        reference=_global_norm_reference,
        plan=_global_norm_plan,
        cost=cost_of(lambda specs, _outputs, _attrs: 2 * sum(spec.size for spec in specs)),
        tolerance=tolerances(64, "a sum of squares in chunks of f32, chunks added in f64"),
        gradient="none",
        nan="NaN anywhere gives NaN",
        empty="0 without elements",
    )
)
