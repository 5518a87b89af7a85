"""Fused updates write in place: the places that held old values get the new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.core.errors import CaptureError
from isthmus.program.capture.convert import Converter, rule
from isthmus.program.graph import Value


def _rebind(c: Converter, position: int, values: Sequence[Value]) -> None:
    nodes = c.node.args[position]
    assert isinstance(nodes, (list, tuple))
    for node, value in zip(nodes, values, strict=True):
        c.env[node] = value  # type: ignore[index]


@rule("_foreach_add_.Scalar")
def _(c: Converter, values: Sequence[Value], number: float) -> None:
    _rebind(c, 0, [c.emit("add", v, c.constant(number, v.spec.dtype)) for v in values])


@rule("_fused_adamw_.tensor_lr", "_fused_adam_.tensor_lr")
def _(c: Converter, params: list[Value], grads: list[Value], m: list[Value], v: list[Value],
      _max: list[Value], steps: list[Value], *, lr: Value, beta1: float, beta2: float,
      weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
      **_: Any) -> None:  # fmt: skip
    if amsgrad:
        raise CaptureError("amsgrad has no counterpart in the standard")
    results = [
        c.emit_all(
            "adamw", (*group, lr), beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            maximize=maximize, decoupled="adamw" in str(c.node.target),
        )
        for group in zip(params, grads, m, v, steps, strict=True)
    ]  # fmt: skip
    for position, output in ((0, 0), (2, 1), (3, 2)):
        _rebind(c, position, [result[output] for result in results])


@rule("_fused_sgd_.tensor_lr")
def _(c: Converter, params: list[Value], grads: list[Value], momenta: list[Value], *,
      weight_decay: float, momentum: float, lr: Value, dampening: float, nesterov: bool,
      maximize: bool, is_first_step: bool, **_: Any) -> None:  # fmt: skip
    for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
        buffer = momenta[index] if momenta else None
        step = c.step if buffer is not None and dampening else None
        result = c.emit_all(
            "sgd", (param, grad, buffer, lr, step), momentum=momentum, dampening=dampening,
            weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
        )  # fmt: skip
        c.env[c.node.args[0][index]] = result[0]  # type: ignore[index]
        if buffer is not None:
            c.env[c.node.args[2][index]] = result[1]  # type: ignore[index]
