"""Tools for changing graphs: copies, uses, dead nodes, order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import replace

from isthmus.ops.standard import TensorSpec
from isthmus.program.graph import Graph, Node, Value

__all__ = ["copy_graph", "new_value", "remove_dead_nodes", "sort_nodes"]


def copy_graph(graph: Graph) -> Graph:
    """A copy with nodes and values of its own, so that passes leave the original as it is."""
    values: dict[Value, Value] = {}

    def copied(value: Value) -> Value:
        if value not in values:
            values[value] = Value(value.name, value.spec)
        return values[value]

    inputs = {
        name: replace(entry, value=copied(entry.value)) for name, entry in graph.inputs.items()
    }
    nodes = []
    for node in graph.nodes:
        made = Node(
            node.op,
            [None if value is None else copied(value) for value in node.inputs],
            [copied(value) for value in node.outputs],
            dict(node.attrs),
            node.source,
        )
        for index, value in enumerate(made.outputs):
            value.producer, value.index = made, index
        nodes.append(made)
    return Graph(
        graph.name,
        inputs,
        nodes,
        {name: copied(value) for name, value in graph.outputs.items()},
        {name: copied(value) for name, value in graph.updates.items()},
        dict(graph.metadata),
    )


def new_value(
    name: str, shape: tuple[int, ...], like: Value, producer: Node | None = None
) -> Value:
    """A value of the dtype of `like`."""
    return Value(name, TensorSpec(shape, like.spec.dtype), producer)


def remove_dead_nodes(graph: Graph) -> None:
    """Drop the nodes whose results nobody reads."""
    needed: set[Node] = set()
    waiting = [
        value.producer
        for value in (*graph.outputs.values(), *graph.updates.values())
        if value.producer is not None
    ]
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        needed.add(node)
        waiting += [value.producer for value in node.inputs if value and value.producer]
    graph.nodes = [node for node in graph.nodes if node in needed]


def sort_nodes(nodes: Iterable[Node], priority: Mapping[Node, int]) -> list[Node]:
    """The nodes in an order in which values are made before they are read, lowest priority
    number first where there is a choice."""
    listed = list(nodes)
    inside = set(listed)
    missing: dict[Node, int] = {}
    users: dict[Node, list[Node]] = {}
    for node in listed:
        producers = {v.producer for v in node.inputs if v and v.producer in inside}
        missing[node] = len(producers)
        for producer in producers:
            if producer is not None:
                users.setdefault(producer, []).append(node)
    places = {node: place for place, node in enumerate(listed)}
    ready = [(priority.get(node, 0), places[node]) for node in listed if not missing[node]]
    heapq.heapify(ready)
    ordered: list[Node] = []
    while ready:
        _, place = heapq.heappop(ready)
        node = listed[place]
        ordered.append(node)
        for user in users.get(node, ()):
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (priority.get(user, 0), places[user]))
    assert len(ordered) == len(listed), "the graph has a cycle"
    return ordered
