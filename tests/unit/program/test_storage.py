"""Where values live: folded views, copies, results in place, states."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_graphs import StepGraph

from isthmus.program.fusion import fuse
from isthmus.program.storage import Layout, assign, reshaped_strides


def layout(g: StepGraph) -> Layout:
    return assign(fuse(g.graph))


def ops(made: Layout) -> list[str]:
    return [command.node.op for command in made.commands]


def test_views_need_no_command() -> None:
    g = StepGraph()
    x = g.batch("x", (4, 6))
    t = g("transpose", g("slice", x, axis=1, start=1, stop=5, step=2), order=(1, 0))
    g.output("y", g("matmul", t, g.batch("z", (4, 3))))
    made = layout(g)
    assert ops(made) == ["matmul"]
    a = made.commands[0].inputs[0]
    assert a is not None
    assert (a.view.shape, a.view.strides, a.offset) == ((2, 4), (2, 6), 1)


def test_copy_where_row_major_data_is_needed() -> None:
    g = StepGraph()
    t = g("transpose", g.batch("x", (4, 6)), order=(1, 0))
    g.output("y", g("softmax", t, axis=1))
    g.output("z", g("softmax", t, axis=0))
    made = layout(g)
    assert ops(made) == ["copy", "softmax", "softmax"]
    assert made.copies == 1


def test_reshape_of_transposed_data_copies() -> None:
    g = StepGraph()
    t = g("transpose", g.batch("x", (4, 6)), order=(1, 0))
    g.output("y", g("matmul", g("reshape", t, shape=(4, 6)), g.batch("z", (6, 2))))
    assert ops(layout(g)) == ["copy", "matmul"]


def test_output_that_is_a_view_keeps_its_source_to_the_end() -> None:
    g = StepGraph()
    y = g("softmax", g.batch("x", (4, 6)), axis=1)
    g.output("y", g("transpose", y, order=(1, 0)))
    made = layout(g)
    assert made.outputs["y"].view.strides == (1, 6)
    assert made.outputs["y"].storage.last == len(made.commands)


def test_result_takes_the_place_of_an_ending_input() -> None:
    g = StepGraph()
    a = g("softmax", g.batch("x", (4, 6)), axis=1)
    g.output("y", g("softmax", a, axis=0))
    made = layout(g)
    assert made.inplace == 1
    assert made.commands[0].outputs[0].storage is made.commands[1].outputs[0].storage


def test_no_reuse_of_what_is_read_later() -> None:
    g = StepGraph()
    a = g("softmax", g.batch("x", (4, 6)), axis=1)
    b = g("softmax", a, axis=0)
    g.output("y", g("concat", a, b, axis=0))
    made = layout(g)
    assert made.commands[0].outputs[0].storage is not made.commands[1].outputs[0].storage


def test_no_reuse_of_an_input_that_is_also_read_transposed() -> None:
    g = StepGraph()
    a = g("softmax", g.batch("x", (6, 6)), axis=1)
    g.output("y", g("add", a, g("transpose", a, order=(1, 0))))
    made = layout(g)
    assert made.inplace == 0


def update_graph() -> StepGraph:
    g = StepGraph()
    names = ("p", "m", "v")
    p, m, v = (g.state(name, (4, 6)) for name in names)
    new = g.all("adamw", p, g.batch("g", (4, 6)), m, v, g.scalar("step"), g.scalar("lr"))
    for name, value in zip(names, new, strict=True):
        g.update(name, value)
    return g


def test_states_are_updated_in_place() -> None:
    made = layout(update_graph())
    assert ops(made) == ["adamw"]
    assert [t.storage.name for t in made.commands[0].outputs] == ["p", "m", "v"]


def test_update_moves_behind_the_last_reader_of_the_old_state() -> None:
    g = update_graph()
    g.output("y", g("softmax", g.graph.inputs["p"].value, axis=1))
    made = layout(g)
    assert ops(made) == ["softmax", "adamw"]
    assert made.commands[1].outputs[0].storage.name == "p"


def test_update_that_cannot_move_is_copied_at_the_end() -> None:
    g = StepGraph()
    p = g.state("p", (4, 6))
    new = g("softmax", p, axis=1)
    both = g("concat", new, p, axis=0)
    g.output("y", both)
    g.update("p", new)
    made = layout(g)
    assert ops(made) == ["softmax", "concat", "copy"]
    assert made.commands[-1].outputs[0].storage.name == "p"


def test_output_of_an_old_state_is_saved_first() -> None:
    g = update_graph()
    g.output("before", g.graph.inputs["p"].value)
    made = layout(g)
    assert ops(made) == ["copy", "adamw"]
    assert made.outputs["before"].storage.kind == "arena"


def test_swapped_states() -> None:
    g = StepGraph()
    a, b = g.state("a", (4,)), g.state("b", (4,))
    g.update("a", b)
    g.update("b", a)
    made = layout(g)
    assert ops(made) == ["copy"] * 4
    written = [command.outputs[0].storage.name for command in made.commands]
    assert sorted(written[:2]) == ["a.old", "b.old"]
    assert written[2:] == ["a", "b"]


def test_one_value_for_two_states() -> None:
    g = StepGraph()
    a, b = g.state("a", (4,)), g.state("b", (4,))
    new = g("add", a, b)
    g.update("a", new)
    g.update("b", new)
    made = layout(g)
    assert ops(made) == ["pointwise_group", "copy"]
    (source,) = made.commands[1].inputs
    assert source is not None
    assert source.storage.name == "a"


def test_state_cleared_by_a_constant_is_filled() -> None:
    g = StepGraph()
    g.state("total", (4, 6))
    g.update("total", g.constant(0.0, (4, 6)))
    assert ops(layout(g)) == ["fill"]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 23),

)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_reshaped_strides_agree_with_numpy(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(shape))
    array = np.arange(int(np.prod(shape))).reshape(shape).transpose(order)

    sizes = list(array.shape)
    new: list[int] = []
    size = array.size
    while size > 1:
        divisors = [d for d in range(2, size + 1) if size % d == 0]
        new.append(int(rng.choice(divisors)))
        size //= new[-1]
    strides = tuple(step // array.itemsize for step in array.strides)
    found = reshaped_strides(sizes, strides, new)
    reshaped = array.reshape(new)
    if np.shares_memory(array, reshaped):
        assert found is not None
        walked = np.lib.stride_tricks.as_strided(
            array, new, tuple(step * array.itemsize for step in found)
        )
        np.testing.assert_array_equal(walked, reshaped)
    elif found is not None:
        pytest.fail(f"{sizes} {strides} does not reshape to {new} without a copy")
