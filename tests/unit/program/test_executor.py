"""Graphs run on the CPU: right numbers, one native call, good messages."""

from __future__ import annotations

import math
import time
from typing import Any
from unittest import mock

import numpy as np
import pytest
from step_graphs import StepGraph, evaluate

from isthmus.core.errors import DTypeError, ProgramError, ShapeError
from isthmus.program.executor import Executable, open_cpu
from isthmus.program.state import States

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def check(g: StepGraph, batch: dict[str, np.ndarray], **tolerance: float) -> Executable:
    """Run the graph and compare with the float64 references."""
    executable = Executable(g.graph, threads=2)
    got = executable.step(batch)
    want, _ = evaluate(g.graph, batch)
    for name, expected in want.items():
        np.testing.assert_allclose(
            got[name], expected, rtol=tolerance.get("rtol", 2e-5), atol=tolerance.get("atol", 2e-5),
            err_msg=name,
        )  # fmt: skip
    return executable


def test_element_wise_chain() -> None:
    g = StepGraph()
    x, y = g.batch("x", (37, 50)), g.batch("y", (50,))
    g.output("out", g("gelu", g("mul", g("add", x, y), g.constant(0.5))))
    check(g, {"x": floats(37, 50), "y": floats(50)})


def test_scalars_and_broadcasts_over_several_dimensions() -> None:
    g = StepGraph()
    x, y, s = g.batch("x", (3, 1, 5, 7)), g.batch("y", (4, 5, 1)), g.batch("s", ())
    g.output("out", g("add", g("mul", x, y), s))
    check(g, {"x": floats(3, 1, 5, 7), "y": floats(4, 5, 1), "s": np.array(2.5, np.float32)})


def test_transposed_and_sliced_inputs() -> None:
    g = StepGraph()
    x, y = g.batch("x", (40, 30)), g.batch("y", (30, 20))
    left = g("slice", g("transpose", x, order=(1, 0)), axis=1, start=3, stop=23, step=1)
    g.output("out", g("sub", left, y))
    check(g, {"x": floats(40, 30), "y": floats(30, 20)})


def test_product_with_epilogue_and_kept_product() -> None:
    g = StepGraph()
    x, w = g.batch("x", (2, 30, 40)), g.batch("w", (40, 70))
    b, r = g.batch("b", (70,)), g.batch("r", (2, 30, 70))
    product = g("reshape", g("matmul", g("reshape", x, shape=(60, 40)), w), shape=(2, 30, 70))
    hidden = g("add", product, b)
    g.output("hidden", hidden)
    g.output("out", g("add", g("gelu", hidden, approximate="tanh"), r))
    executable = check(
        g, {"x": floats(2, 30, 40), "w": floats(40, 70), "b": floats(70), "r": floats(2, 30, 70)},
        atol=2e-4,
    )  # fmt: skip
    kernels = [node.op for node in executable.fused.nodes if node.op != "reshape"]
    assert kernels == ["matmul_epilogue"]


def test_bool_and_integer_values() -> None:
    g = StepGraph()
    x, n = g.batch("x", (33,)), g.batch("n", (33,), "i64")
    positive = g("gt", x, g.constant(0.0))
    g.output("positive", positive)
    g.output("out", g("where", positive, n, g("neg", n)))
    batch = {"x": floats(33), "n": RNG.integers(-9, 9, 33)}
    got = Executable(g.graph, threads=1).step(batch)
    np.testing.assert_array_equal(got["positive"], batch["x"] > 0)
    np.testing.assert_array_equal(got["out"], np.where(batch["x"] > 0, batch["n"], -batch["n"]))


def linear_step() -> StepGraph:
    """Least squares by AdamW: loss, gradient, clipping, update."""
    g = StepGraph()
    x, y = g.batch("x", (32, 8)), g.batch("y", (32, 4))
    w = g.state("w", (8, 4), initializer={"kind": "normal", "mean": 0.0, "std": 0.1})
    b = g.state("b", (4,), initializer={"kind": "zeros"})
    step = g.state("step", (), role="optimizer")
    one = g("add", step, g.constant(1.0))
    g.update("step", one)
    error = g("sub", g("add", g("matmul", x, w), b), y)
    g.output("loss", g("mean", g("square", error), axes=(0, 1), keepdims=False))
    grad = g("mul", error, g.constant(2.0 / 128))
    dw = g("matmul", g("transpose", x, order=(1, 0)), grad)
    db = g("sum", grad, axes=(0,), keepdims=False)
    norm = g("global_norm", dw, db)
    g.output("norm", norm)
    ratio = g("div", g.constant(1.0), g("add", norm, g.constant(1e-6)))
    scale = g("clamp", ratio, low=None, high=1.0)
    for name, parameter, gradient in (("w", w, dw), ("b", b, db)):
        shape = parameter.spec.shape
        m = g.state(f"{name}.m", shape, role="optimizer")
        v = g.state(f"{name}.v", shape, role="optimizer")
        new = g.all("adamw", parameter, gradient, m, v, one, g.graph.inputs["rate"].value
                    if "rate" in g.graph.inputs else g.scalar("rate"), scale)  # fmt: skip
        for state, value in zip((name, f"{name}.m", f"{name}.v"), new, strict=True):
            g.update(state, value)
    return g


def run_linear(threads: int, steps: int = 20) -> tuple[list[float], dict[str, np.ndarray]]:
    g = linear_step()
    executable = Executable(g.graph, threads=threads)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 8), dtype=np.float32)
    y = (x @ rng.standard_normal((8, 4))).astype(np.float32)
    executable.states["w"][...] = 0.1
    losses = [
        float(executable.step({"x": x, "y": y}, {"rate": 0.05})["loss"]) for _ in range(steps)
    ]
    return losses, {name: array.copy() for name, array in executable.states.state_dict().items()}


def test_training_step_agrees_with_the_references() -> None:
    g = linear_step()
    executable = Executable(g.graph, threads=2)
    rng = np.random.default_rng(0)
    batch = {"x": floats(32, 8), "y": floats(32, 4)}
    executable.states["w"][...] = rng.standard_normal((8, 4)) * 0.1
    states = {n: a.astype(np.float64) for n, a in executable.states.state_dict().items()}
    for _ in range(5):
        got = executable.step(batch, {"rate": 0.01})
        want, updates = evaluate(g.graph, {**batch, **states, "rate": np.float64(0.01)})
        states.update(updates)
        assert float(got["loss"]) == pytest.approx(float(want["loss"]), rel=1e-5)
    for name, expected in states.items():
        np.testing.assert_allclose(executable.states[name], expected, rtol=1e-4, atol=1e-6)


def test_one_and_two_threads_give_the_same_bits() -> None:
    one, two = run_linear(1), run_linear(2)
    assert one[0] == two[0]
    assert one[0][-1] < one[0][0]
    for name, array in one[1].items():
        np.testing.assert_array_equal(array, two[1][name], name)


def test_a_step_is_one_native_call_and_no_numpy_arithmetic() -> None:
    g = linear_step()
    executable = Executable(g.graph, threads=2)
    batch = {"x": floats(32, 8), "y": floats(32, 4)}
    calls: list[int] = []
    native = executable.device._step

    def counted(*arguments: Any) -> None:
        calls.append(1)
        native(*arguments)

    def refuse(*_arguments: Any, **_keywords: Any) -> None:
        raise AssertionError("an operator ran in NumPy during a step")

    names = ("matmul", "dot", "add", "multiply", "subtract", "sum", "mean", "exp", "where")
    with mock.patch.object(executable.device, "_step", counted):
        patches = [mock.patch.object(np, name, refuse) for name in names]
        for patch in patches:
            patch.start()
        try:
            outputs = executable.step(batch, {"rate": 0.01})
        finally:
            for patch in patches:
                patch.stop()
    assert calls == [1]
    assert math.isfinite(float(outputs["loss"]))


def test_python_overhead_of_a_step_is_small() -> None:
    g = linear_step()
    executable = Executable(g.graph, threads=1)
    batch = {"x": floats(32, 8), "y": floats(32, 4)}
    executable.step(batch, {"rate": 0.01})
    with mock.patch.object(executable.device, "_step", return_value=None):
        times = []
        for _ in range(200):
            start = time.perf_counter_ns()
            executable.step(batch, {"rate": 0.01})
            times.append(time.perf_counter_ns() - start)
    assert sorted(times)[100] < 300_000, "median overhead in ns"


def test_states_are_shared_between_graphs() -> None:
    device = open_cpu(1)
    states = States(device)
    g = linear_step()
    train = Executable(g.graph, device, states)
    f = StepGraph("forward")
    f.output("out", f("matmul", f.batch("x", (2, 8)), f.state("w", (8, 4))))
    forward = Executable(f.graph, device, states)
    before = states["w"].copy()
    train.step({"x": floats(32, 8), "y": floats(32, 4)}, {"rate": 0.1})
    assert not np.array_equal(before, states["w"])
    x = floats(2, 8)
    np.testing.assert_allclose(forward.step({"x": x})["out"], x @ states["w"], atol=1e-5)


def test_two_graphs_that_disagree_on_a_state() -> None:
    device = open_cpu(1)
    states = States(device)
    states.buffer("w", linear_step().graph.inputs["w"].value.spec)
    f = StepGraph("forward")
    f.output("out", f("exp", f.state("w", (4, 8))))
    with pytest.raises(ProgramError, match=r"'w' is f32\[8, 4\] in one graph"):
        Executable(f.graph, device, states)


@pytest.fixture(scope="module")
def linear() -> Executable:
    return Executable(linear_step().graph, threads=1)


GOOD = {"x": floats(32, 8), "y": floats(32, 4)}


@pytest.mark.parametrize(
    ("batch", "scalars", "error", "message"),
    [
        ({"x": GOOD["x"]}, {"rate": 1.0}, ProgramError, "lacks 'y'"),
        ({**GOOD, "z": GOOD["x"]}, {"rate": 1.0}, ProgramError, "unknown entry 'z'"),
        ({**GOOD, "x": floats(31, 8)}, {"rate": 1.0}, ShapeError, r"\[31, 8\]; expected \[32, 8\]"),
        ({**GOOD, "x": floats(32, 8).astype(np.float64)}, {"rate": 1.0}, DTypeError, "is float64"),
        ({**GOOD, "x": [[1.0]]}, {"rate": 1.0}, DTypeError, "is a list"),
        (GOOD, {}, ProgramError, "needs the scalar 'rate'"),
        (GOOD, {"rate": "fast"}, DTypeError, "expected a number"),
    ],
)
def test_wrong_inputs_are_named(
    linear: Executable, batch: dict[str, Any], scalars: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        linear.step(batch, scalars)


def test_report_and_profile(linear: Executable) -> None:
    summary = linear.report()
    assert summary.launches >= summary.kernels > 0
    assert summary.flops > 2 * 2 * 32 * 8 * 4
    assert "times the bound" in str(summary)
    rows = linear.profile(GOOD, {"rate": 0.01}, repeats=2)
    assert sum(row.commands for row in rows) == len(linear.layout.commands)
    assert rows[0].time_ns >= rows[-1].time_ns


def test_equal_kernels_are_compiled_once() -> None:
    g = StepGraph()
    x = g.batch("x", (64, 64))
    y = g("softmax", g("softmax", g("softmax", x, axis=1), axis=1), axis=1)
    g.output("y", y)
    seen: list[tuple[int, int]] = []
    executable = Executable(g.graph, threads=1, progress=lambda *counts: seen.append(counts))
    assert executable.report().launches == 3
    assert len(seen) == seen[-1][1] == executable.report().kernels < 3


def test_constants_and_ranges_are_inputs_of_kernels() -> None:
    g = StepGraph()
    table = g.batch("table", (6, 4))
    g.output("out", g("embedding", table, g("arange", start=1, step=2, length=3)))
    g.output("ones", g("matmul", g.constant(1.0, (2, 6)), table))
    values = floats(6, 4)
    got = Executable(g.graph, threads=1).step({"table": values})
    np.testing.assert_array_equal(got["out"], values[1::2])
    np.testing.assert_allclose(got["ones"], np.ones((2, 6)) @ values, atol=1e-5)


def test_empty_tensors() -> None:
    g = StepGraph()
    x = g.batch("x", (0, 4))
    g.output("y", g("exp", x))
    g.output("total", g("sum", x, axes=(0,), keepdims=False))
    got = Executable(g.graph, threads=1).step({"x": np.zeros((0, 4), np.float32)})
    assert got["y"].shape == (0, 4)
    np.testing.assert_array_equal(got["total"], np.zeros(4))


def test_loading_a_state_of_another_program() -> None:
    executable = Executable(linear_step().graph, threads=1)
    good = {name: array.copy() for name, array in executable.states.state_dict().items()}
    with pytest.raises(ProgramError, match="has no 'w'"):
        executable.states.load_state_dict({n: a for n, a in good.items() if n != "w"})
    with pytest.raises(ShapeError, match="state 'w'"):
        executable.states.load_state_dict({**good, "w": floats(4, 8)})
    executable.states.load_state_dict({**good, "w": floats(8, 4)})
    assert executable.states["w"].any()
