"""Rewrites before fusion that make products and element-wise nodes easier to fuse."""

from __future__ import annotations

from isthmus.program.graph import Graph, Node, Value
from isthmus.program.rewrite import new_value, remove_dead_nodes

__all__ = ["simplify"]

#: Exponent -> the operator that computes the power.
_POWERS = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal", -0.5: "rsqrt"}


def simplify(graph: Graph) -> None:
    """Powers by known exponents; transposed products and concatenations."""
    for node in graph.nodes:
        if node.op == "pow":
            _replace_power(node)
    _transpose_products(graph)
    _transpose_before_concat(graph)
    remove_dead_nodes(graph)


def _replace_power(node: Node) -> None:
    base, exponent = node.inputs
    producer = exponent.producer if exponent is not None else None
    if base is None or producer is None or producer.op != "constant":
        return
    name = _POWERS.get(float(producer.attrs["value"]))
    if name is not None and base.spec.shape == node.outputs[0].spec.shape:
        node.op, node.inputs, node.attrs = name, [base], {}


def _transpose_products(graph: Graph) -> None:
    """transpose(a @ b) as transpose(b) @ transpose(a) where nobody reads a @ b itself."""
    readers = graph.users()
    kept = set(graph.outputs.values()) | set(graph.updates.values())
    nodes: list[Node] = []
    replaced: set[Node] = set()
    for node in graph.nodes:
        product = node.inputs[0].producer if node.op == "transpose" and node.inputs[0] else None
        if (
            product is None
            or product.op != "matmul"
            or any(value is not None for value in product.inputs[2:])
            or not _swaps_last_two(tuple(node.attrs["order"]))
            or len(readers[product.outputs[0]]) > 1
            or product.outputs[0] in kept
        ):
            nodes.append(node)
            continue
        a, b = product.inputs[:2]
        assert a is not None
        assert b is not None
        swapped = [_swap(value, nodes) for value in (b, a)]
        made = Node("matmul", [*swapped], node.outputs, dict(product.attrs), product.source)
        made.outputs[0].producer = made
        nodes.append(made)
        replaced.add(product)
    graph.nodes = [node for node in nodes if node not in replaced]


def _transpose_before_concat(graph: Graph) -> None:
    """transpose(concat(xs)) as concat(transpose(x) for x in xs) where nobody reads the
    concatenation itself: one pass over memory instead of two."""
    readers = graph.users()
    kept = set(graph.outputs.values()) | set(graph.updates.values())
    nodes: list[Node] = []
    for node in graph.nodes:
        joined = node.inputs[0].producer if node.op == "transpose" and node.inputs[0] else None
        if (
            joined is None
            or joined.op != "concat"
            or len(readers[joined.outputs[0]]) > 1
            or joined.outputs[0] in kept
        ):
            nodes.append(node)
            continue
        order = tuple(node.attrs["order"])
        turned: list[Value | None] = []
        for value in joined.inputs:
            assert value is not None
            turn = Node("transpose", [value], [], {"order": order}, node.source)
            shape = tuple(value.spec.shape[axis] for axis in order)
            turn.outputs.append(new_value(f"{value.name}.t", shape, value, turn))
            nodes.append(turn)
            turned += turn.outputs
        axis = order.index(joined.attrs["axis"] % len(order))
        made = Node("concat", turned, node.outputs, {"axis": axis}, joined.source)
        made.outputs[0].producer = made
        nodes.append(made)
    graph.nodes = nodes


def _swaps_last_two(order: tuple[int, ...]) -> bool:
    rank = len(order)
    return rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2)


def _swap(value: Value, nodes: list[Node]) -> Value:
    """`value` with its last two dimensions swapped; a swap undone where it is one."""
    producer = value.producer
    if (
        producer is not None
        and producer.op == "transpose"
        and _swaps_last_two(tuple(producer.attrs["order"]))
        and producer.inputs[0] is not None
    ):
        return producer.inputs[0]
    shape = value.spec.shape
    rank = len(shape)
    node = Node("transpose", [value], [], {"order": (*range(rank - 2), rank - 1, rank - 2)})
    made = new_value(f"{value.name}.t", (*shape[:-2], shape[-1], shape[-2]), value, node)
    node.outputs.append(made)
    nodes.append(node)
    return made
