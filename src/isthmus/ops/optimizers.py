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

from __future__ import annotations

import numpy as np

from isthmus.core.errors import ProgramError
from isthmus.ops.rules import (
    F32,
    FLOATS,
    Arrays,
    Specs,
    cost_of,
    real,
    require_dtypes,
    require_shape,
    tolerances,
)
from isthmus.ops.standard import Attrs, Operator, TensorSpec, register

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


_REASON = "a chain of about ten rounded operations; the step may cancel the parameter: absolute"
register(
    Operator(
        name="adamw",
        doc=__doc__ or "",
        inputs=("param", "grad", "m", "v", "step", "lr", "scale?"),
        infer=_adamw_infer,
        reference=_adamw_reference,
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
        cost=cost_of(lambda specs, _outputs, _attrs: 2 * sum(spec.size for spec in specs)),
        tolerance=tolerances(64, "a sum of squares in chunks of f32, chunks added in f64"),
        gradient="none",
        nan="NaN anywhere gives NaN",
        empty="0 without elements",
    )
)

