"""Passes over captured graphs: less to do, same results."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.core.dtypes import dtype_named
from isthmus.ops.standard import TensorSpec
from isthmus.program.capture.convert import GraphBuilder
from isthmus.program.graph import Graph, GraphInput, Value
from isthmus.program.passes.constants import fold_constants
from isthmus.program.passes.cse import share_equal_nodes
from isthmus.program.passes.dce import remove_dead_code
from isthmus.program.passes.pipeline import pipeline
from isthmus.program.passes.views import fold_views, remove_broadcasts
from isthmus.program.reference import run_reference
from isthmus.program.rewrite import copy_graph

F32 = dtype_named("f32")


class Built(GraphBuilder):
    """A graph of one input `x`."""

    def __init__(self, *shape: int, dtype: str = "f32") -> None:
        super().__init__(Graph("test"))
        self.x = Value("x", TensorSpec(shape, dtype_named(dtype)))
        self.graph.inputs["x"] = GraphInput("x", "batch", self.x)

    def give(self, value: Value) -> Graph:
        self.graph.outputs["out"] = value
        return self.graph

    @property
    def ops(self) -> list[str]:
        return [node.op for node in self.graph.nodes]


def test_dead_code():
    b = Built(2, 3)
    b.emit("exp", b.x)
    graph = b.give(b.emit("neg", b.x))
    assert remove_dead_code(graph) == 1
    assert b.ops == ["neg"]
    assert remove_dead_code(graph) == 0


def test_equal_nodes_are_shared_and_others_are_not():
    b = Built(2, 3)
    same = [b.emit("exp", b.x), b.emit("exp", b.x)]
    zeros = [b.constant(0.0, F32), b.constant(-0.0, F32)]
    clamped = [b.emit("clamp", b.x, low=0.0, high=h) for h in (1.0, 2.0)]
    total = b.emit("add", *same)
    for value in (*zeros, *clamped):
        total = b.emit("add", total, value)
    graph = b.give(total)
    assert share_equal_nodes(graph) == 1
    assert b.ops.count("exp") == 1
    assert b.ops.count("clamp") == 2
    assert b.ops.count("constant") == 2  # 0.0 and -0.0 differ


def test_constants_fold_to_what_a_kernel_computes():
    b = Built(4)
    tenth, three = b.constant(0.1, F32), b.constant(3.0, F32)
    product = b.emit("mul", tenth, three)
    spread = b.broadcast(b.emit("sqrt", product), (4,))
    graph = b.give(b.emit("add", b.x, spread))
    assert fold_constants(graph) == 3
    remove_dead_code(graph)
    assert b.ops == ["constant", "add"]
    expected = np.sqrt(np.float32(0.1) * np.float32(3.0))
    assert graph.nodes[0].attrs["value"] == float(expected)


@pytest.mark.parametrize("side", [0, 1])
def test_times_one_is_left_out_only_where_nothing_changes(side):
    b = Built(1, 3)
    operands = [b.x, b.constant(1.0, F32)]
    graph = b.give(b.emit("mul", *(operands[::-1] if side else operands)))
    assert fold_constants(graph) == 1
    assert graph.outputs["out"] is b.x
    wider = Built(1, 3)
    graph = wider.give(wider.emit("mul", wider.x, wider.constant(1.0, F32, (4, 3))))
    assert fold_constants(graph) == 0


def test_views_of_views_read_the_source():
    b = Built(2, 3, 4)
    turned = b.emit("transpose", b.emit("transpose", b.x, order=(2, 0, 1)), order=(1, 2, 0))
    shaped = b.reshape(b.reshape(turned, (6, 4)), (2, 3, 4))
    part = b.emit("slice", shaped, axis=2, start=1, stop=4, step=1)
    part = b.emit("slice", part, axis=2, start=0, stop=3, step=2)
    graph = b.give(part)
    fold_views(graph)
    remove_dead_code(graph)
    assert b.ops == ["slice"]
    node = graph.nodes[0]
    assert node.inputs == [b.x]
    assert {k: node.attrs[k] for k in ("start", "stop", "step")} == {
        "start": 1, "stop": 4, "step": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "through", "kept"),
    [
        ("bf16", "f32", 0), ("f16", "f64", 0), ("f32", "f64", 0), ("i32", "i64", 0),
        ("f32", "bf16", 2), ("f32", "f16", 2), ("f16", "bf16", 2), ("i64", "i32", 2),
        ("i64", "f64", 2),
    ],
)  # fmt: skip
def test_casts_there_and_back_vanish_only_where_nothing_is_lost(first, through, kept):
    b = Built(3, dtype=first)
    graph = b.give(b.cast(b.cast(b.x, dtype_named(through)), dtype_named(first)))
    fold_views(graph)
    fold_views(graph)
    remove_dead_code(graph)
    assert b.ops.count("cast") == kept


def test_broadcasts_that_operators_do_anyway():
    b = Built(1, 3)
    wide = b.broadcast(b.x, (2, 3))
    full = b.emit("arange", length=3, dtype="i64")
    full = b.broadcast(b.cast(full, F32), (2, 3))
    graph = b.give(b.emit("mul", wide, full))
    # One of the two must stay, or the result would be smaller.
    assert remove_broadcasts(graph) == 1
    assert graph.outputs["out"].spec.shape == (2, 3)


def test_constants_of_a_shape_become_scalars():
    b = Built(2, 3)
    graph = b.give(b.emit("add", b.x, b.constant(2.0, F32, (2, 3))))
    pipeline(graph)
    assert [n.attrs.get("shape") for n in graph.nodes if n.op == "constant"] == [()]


def test_results_stay_the_same():
    """Every random graph computes the same before and after all passes."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        b = Built(2, 3)
        values = [b.x, b.constant(0.5, F32, (2, 3)), b.constant(1.0, F32)]
        for _ in range(12):
            one, two = (values[i] for i in rng.integers(0, len(values), 2))
            choice = rng.integers(0, 6)
            if choice < 3:
                values.append(b.emit(("add", "mul", "maximum")[choice], one, two))
            elif choice == 3:
                values.append(b.emit("tanh", one))
            elif one.spec.shape == (2, 3):
                turned = b.emit("transpose", one, order=(1, 0))
                values.append(b.emit("transpose", turned, order=(1, 0)))
            else:
                values.append(b.broadcast(one, (2, 3)))
        graph = b.give(values[-1])
        x = rng.standard_normal((2, 3)).astype(np.float32)
        want = run_reference(graph, {}, {"x": x}, {})[0]["out"]
        simple = copy_graph(graph)
        pipeline(simple)
        names = [value.name for node in simple.nodes for value in node.outputs]
        assert len(names) == len(set(names)), "files tell values apart by name"
        assert len(simple.nodes) <= len(graph.nodes)
        got = run_reference(simple, {}, {"x": x}, {})[0]["out"]
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
