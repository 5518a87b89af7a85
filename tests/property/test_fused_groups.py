"""Random element-wise graphs, fused and compiled, against the references in float64."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from step_graphs import StepGraph, evaluate

from isthmus.program.executor import Executable, open_cpu

DEVICE = open_cpu(2)
SHAPES = [(), (5,), (1, 5), (4, 1), (4, 5), (3, 4, 5), (3, 1, 1), (1, 4, 5)]
UNARY = ["neg", "abs", "square", "tanh", "sigmoid", "relu"]
KINDS = ["unary", "binary", "constant", "sum", "reshape", "transpose"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_fused_graphs_compute_what_the_references_say(data: st.DataObject) -> None:
    g = StepGraph()
    values = [
        g.batch(f"x{index}", data.draw(st.sampled_from(SHAPES)))
        for index in range(data.draw(st.integers(1, 3)))
    ]
    for _ in range(data.draw(st.integers(1, 7))):
        kind = data.draw(st.sampled_from(KINDS))
        value = data.draw(st.sampled_from(values))
        if kind == "unary":
            values.append(g(data.draw(st.sampled_from(UNARY)), value))
        elif kind == "binary":
            other = data.draw(st.sampled_from(values))
            values.append(g(data.draw(st.sampled_from(BINARY)), value, other))
        elif kind == "constant":
            values.append(g("mul", value, g.constant(0.5)))
        elif kind == "sum" and value.spec.shape:
            values.append(g("sum", value, axes=(-1,), keepdims=True))
        elif kind == "reshape" and len(value.spec.shape) == 3:
            a, b, c = value.spec.shape
            values.append(g("reshape", g("exp", g("neg", g("abs", value))), shape=(a * b, c)))
            values.append(g("reshape", g("neg", values[-1]), shape=(a, b, c)))
            del values[-2]
        elif kind == "transpose" and value.spec.shape[-2:] == (5, 5):
            values.append(g("transpose", value, order=(1, 0)))
    for index in data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1)):
        g.output(f"y{index}", values[index])
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    batch = {
        name: np.asarray(rng.uniform(-1.5, 1.5, entry.value.spec.shape), np.float32)
        for name, entry in g.graph.inputs.items()
    }
    got = Executable(g.graph, DEVICE).step(batch)
    want, _ = evaluate(g.graph, batch)
    for name, expected in want.items():
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        np.testing.assert_allclose(got[name], expected, rtol=2e-4, atol=2e-5 * scale, err_msg=name)
