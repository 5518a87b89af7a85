"""Which nodes become one kernel, and which must not."""

from __future__ import annotations

from step_graphs import StepGraph

from isthmus.ops.fused import Input, Literal, Result
from isthmus.program.fusion import fuse
from isthmus.program.graph import Graph, Node
from isthmus.program.index_maps import reviewed_shape


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def only(graph: Graph, op: str) -> Node:
    (node,) = [node for node in graph.nodes if node.op == op]
    return node


def steps(node: Node) -> list[str]:
    return [step.op for step in node.attrs["group"].steps]


def test_chain_becomes_one_group() -> None:
    g = StepGraph()
    x = g.batch("x", (4, 8))
    g.output("y", g("exp", g("mul", g("add", x, x), x)))
    fused = fuse(g.graph)
    assert ops(fused) == ["pointwise_group"]
    assert steps(fused.nodes[0]) == ["add", "mul", "exp"]
    assert len(fused.nodes[0].inputs) == 1


def test_the_given_graph_stays_as_it_is() -> None:
    g = StepGraph()
    g.output("y", g("exp", g("neg", g.batch("x", (4,)))))
    fuse(g.graph)
    assert ops(g.graph) == ["neg", "exp"]
    assert g.graph.nodes[0].outputs[0].producer is g.graph.nodes[0]


def test_result_needed_twice_is_a_second_output() -> None:
    g = StepGraph()
    a = g("exp", g.batch("x", (4, 8)))
    g.output("a", a)
    g.output("b", g("neg", a))
    fused = fuse(g.graph)
    assert ops(fused) == ["pointwise_group"]
    assert fused.nodes[0].attrs["group"].outputs == (Result(0), Result(1))


def test_constants_become_literals() -> None:
    g = StepGraph()
    half = g.constant(0.5)
    ones = g("broadcast_to", g.constant(1.0), shape=(4, 8))
    g.output("y", g("add", g("mul", g.batch("x", (4, 8)), half), ones))
    fused = fuse(g.graph)
    assert ops(fused) == ["pointwise_group"]
    group = fused.nodes[0].attrs["group"]
    assert isinstance(group.steps[0].operands[1], Literal)
    dtype = fused.nodes[0].outputs[0].spec.dtype
    assert group.steps[1].operands == (Result(0), Literal(1.0, dtype))


def test_broadcast_is_part_of_the_index_map() -> None:
    g = StepGraph()
    bias = g("broadcast_to", g.state("bias", (8,)), shape=(4, 8))
    g.output("y", g("add", g.batch("x", (4, 8)), bias))
    fused = fuse(g.graph)
    assert ops(fused) == ["pointwise_group"]
    assert fused.nodes[0].inputs[1].name == "bias"


def test_reshape_between_neighbours_is_seen_through() -> None:
    g = StepGraph()
    a = g("add", g.batch("x", (6, 8)), g.state("bias", (8,)))
    b = g("reshape", a, shape=(2, 3, 8))
    g.output("y", g("mul", b, g.batch("z", (2, 3, 8))))
    fused = fuse(g.graph)
    group = only(fused, "pointwise_group")
    assert steps(group) == ["add", "mul"]
    assert group.outputs[0].spec.shape == (2, 3, 8)
    assert [v.spec.shape for v in group.inputs] == [(2, 3, 8), (8,), (2, 3, 8)]


def test_transposed_reader_does_not_join() -> None:
    g = StepGraph()
    a = g("exp", g.batch("x", (8, 8)))
    g.output("y", g("add", a, g("transpose", a, order=(1, 0))))
    assert ops(fuse(g.graph)).count("pointwise_group") == 2


def test_no_cycle_through_another_operator() -> None:
    g = StepGraph()
    a = g("exp", g.batch("x", (4, 8)))
    total = g("sum", a, axes=(1,), keepdims=True)
    g.output("y", g("div", a, total))
    fused = fuse(g.graph)
    assert ops(fused) == ["pointwise_group", "sum", "pointwise_group"]


def test_no_cycle_through_a_joined_group() -> None:
    g = StepGraph()
    x = g.batch("x", (4, 8))
    a = g("exp", x)
    b = g("sum", a, axes=(1,), keepdims=True)
    c = g("add", x, b)
    g.output("p", g("mul", a, c))
    g.output("q", g("sum", c, axes=(0,), keepdims=False))
    fused = fuse(g.graph)
    assert [steps(n) for n in fused.nodes if n.op == "pointwise_group"] == [["exp"], ["add", "mul"]]


def test_siblings_share_their_large_input() -> None:
    g = StepGraph()
    x = g.batch("x", (64, 8))
    g.output("a", g("exp", x))
    g.output("b", g("neg", x))
    assert ops(fuse(g.graph)) == ["pointwise_group"]


def test_small_cheap_producer_joins() -> None:
    g = StepGraph()
    scale = g("reciprocal", g("reshape", g.batch("n", (4,)), shape=(4, 1)))
    g.output("y", g("mul", g.batch("x", (4, 8)), scale))
    fused = fuse(g.graph)
    assert [node.op for node in fused.nodes if node.op != "reshape"] == ["pointwise_group"]


def test_cheap_cast_is_repeated_rather_than_stored() -> None:
    g = StepGraph()
    wide = g("cast", g.batch("x", (4, 8), "bf16"), dtype="f32")
    a = g("exp", wide)
    b = g("sum", a, axes=(1,), keepdims=True)
    g.output("y", g("mul", wide, b))
    fused = fuse(g.graph)
    assert [steps(n) for n in fused.nodes if n.op == "pointwise_group"] == [
        ["cast", "exp"], ["cast", "mul"],
    ]  # fmt: skip


def test_product_takes_bias_gelu_and_keeps_what_backward_needs() -> None:
    g = StepGraph()
    x, w, b = g.batch("x", (2, 3, 8)), g.state("w", (8, 16)), g.state("b", (16,))
    flat = g("matmul", g("reshape", x, shape=(6, 8)), w)
    hidden = g("add", g("reshape", flat, shape=(2, 3, 16)), b)
    g.output("h", hidden)
    g.output("y", g("gelu", hidden))
    fused = fuse(g.graph)
    node = only(fused, "matmul_epilogue")
    assert "matmul" not in ops(fused)
    assert steps(node) == ["add", "gelu"]
    assert node.attrs["access"] == ("row",)
    assert node.attrs["shape"] == (6, 16)
    assert [v.spec.shape for v in node.outputs] == [(2, 3, 16)] * 2


def test_residual_is_read_in_full_by_the_epilogue() -> None:
    g = StepGraph()
    x, w = g.batch("x", (6, 8)), g.state("w", (8, 8))
    g.output("y", g("add", x, g("matmul", x, w)))
    node = only(fuse(g.graph), "matmul_epilogue")
    assert node.attrs["access"] == ("full",)
    assert node.attrs["group"].steps[0].operands == (Input(1), Input(0))


def test_product_needed_by_others_is_stored_too() -> None:
    g = StepGraph()
    x, w = g.batch("x", (6, 8)), g.state("w", (8, 8))
    product = g("matmul", x, w)
    g.output("p", product)
    g.output("y", g("neg", product))
    node = only(fuse(g.graph), "matmul_epilogue")
    assert node.attrs["group"].outputs == (Result(0), Input(0))


def test_product_of_two_products_takes_the_later_one() -> None:
    g = StepGraph()
    x, w, v = g.batch("x", (6, 8)), g.state("w", (8, 8)), g.state("v", (8, 8))
    g.output("y", g("mul", g("matmul", x, w), g("matmul", x, v)))
    assert sorted(ops(fuse(g.graph))) == ["matmul", "matmul_epilogue"]


def test_transposed_product_is_swapped() -> None:
    g = StepGraph()
    x, y = g.batch("x", (6, 8)), g.batch("y", (6, 4))
    product = g("matmul", g("transpose", x, order=(1, 0)), y)
    g.output("dw", g("transpose", product, order=(1, 0)))
    fused = fuse(g.graph)
    matmul = only(fused, "matmul")
    assert matmul.inputs[1].name == "x"
    assert matmul.outputs[0].spec.shape == (4, 8)


def test_concatenation_is_written_in_its_final_order() -> None:
    g = StepGraph()
    parts = [g.batch(name, (1, 4, 2, 3)) for name in "qkv"]
    joined = g("transpose", g("concat", *parts, axis=0), order=(1, 0, 3, 2))
    g.output("y", g("reshape", joined, shape=(4, 18)))
    fused = fuse(g.graph)
    concat = only(fused, "concat")
    assert concat.attrs["axis"] == 1
    assert concat.outputs[0].spec.shape == (4, 3, 3, 2)
    assert ops(fused)[-1] == "reshape"


def test_square_of_a_power() -> None:
    g = StepGraph()
    g.output("y", g("pow", g.batch("x", (4,)), g.constant(2.0)))
    assert steps(fuse(g.graph).nodes[0]) == ["square"]


def test_reviewed_shapes() -> None:
    assert reviewed_shape((8,), (6, 8), (2, 3, 8)) == (8,)
    assert reviewed_shape((6, 1), (6, 8), (2, 3, 8)) == (2, 3, 1)
    assert reviewed_shape((6, 8), (6, 8), (48,)) == (48,)
    assert reviewed_shape((1, 1), (6, 8), (48,)) == ()
    assert reviewed_shape((6, 1), (6, 8), (48,)) is None
    assert reviewed_shape((3, 8), (2, 3, 8), (6, 8)) is None
