"""Random numbers, each use with a stream of its own."""

from __future__ import annotations

from typing import Any

from isthmus.program.capture.aten.common import BOOL
from isthmus.program.capture.convert import Converter, rule
from isthmus.program.graph import Value


def _stream(c: Converter, op: str) -> int:
    c.streams += 1
    c.random.append((op, c.streams))
    return c.streams


@rule("native_dropout")
def _(c: Converter, x: Value, p: float, train: bool | None) -> list[Value]:
    if train is False or p == 0:
        return [x, c.constant(True, BOOL, x.spec.shape)]
    return c.emit_all("dropout", (x, c.key), p=p, stream=_stream(c, "dropout"))


@rule("native_dropout_backward")
def _(c: Converter, grad: Value, mask: Value, scale: float) -> Value:
    kept = c.emit("mul", grad, c.cast(mask, grad.spec.dtype))
    return c.emit("mul", kept, c.constant(scale, grad.spec.dtype))


@rule("rand", "rand_like")
def _(c: Converter, *_: Any, **__: Any) -> Value:
    return _drawn(c, "uniform")


@rule("randn", "randn_like")
def _(c: Converter, *_: Any, **__: Any) -> Value:
    return _drawn(c, "normal")


@rule("bernoulli.p")
def _(c: Converter, _x: Value, p: float = 0.5, **_: Any) -> Value:
    drawn = _drawn(c, "uniform")
    return c.cast(c.emit("lt", drawn, c.constant(p, drawn.spec.dtype)), drawn.spec.dtype)


def _drawn(c: Converter, op: str) -> Value:
    shape = tuple(c.node.meta["val"].shape)
    return c.emit(op, c.key, shape=shape, dtype=c.output_dtype().name, stream=_stream(c, op))
