"""Fusion: element-wise neighbours become one kernel, and matrix products take them along.

Every element-wise node starts as a cluster of its own. A cluster joins the one that reads it
where both walk the same elements (reshapes between them do not matter) and no other path leads
from the one to the other; small producers that repeat along dimensions join as well. Then
clusters with a large input in common join. Casts, constants, broadcasts and reshapes become part
of the clusters' index maps. A cluster that reads a product becomes its epilogue.

    fuse(graph) -> a new graph with `pointwise_group` and `matmul_epilogue` nodes
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from isthmus.ops.fused import (
    Group,
    Input,
    Operand,
    Result,
    Step,
    epilogue_access,
    frozen_attrs,
)
from isthmus.ops.standard import TensorSpec, View, operator
from isthmus.program.graph import Graph, Node, Value
from isthmus.program.index_maps import (
    Link,
    Shape,
    link_of,
    literal_of,
    reviewed_shape,
    root_of,
    unbroadcast,
    viewed,
)
from isthmus.program.nodes import is_pointwise, is_view
from isthmus.program.rewrite import copy_graph, new_value, remove_dead_nodes, sort_nodes
from isthmus.program.simplify import simplify

__all__ = ["fuse"]

#: Tensors and steps that one kernel may have.
MAX_TENSORS = 12
MAX_STEPS = 32
#: Arithmetic per element that is worth repeating instead of a pass over memory.
CHEAP_FLOPS = 4
#: Extra pointers that the epilogue of a product may read and write.
MAX_EXTRA = 4


@dataclass(slots=True, eq=False)
class _Cluster:
    """Nodes that become one: `shapes` says for each element-wise member the shape it has among
    the elements of `shape`, to which it broadcasts."""

    members: list[Node]
    shape: Shape = ()
    shapes: dict[Node, Shape] = field(default_factory=dict)
    product: Node | None = None

    @property
    def is_pointwise(self) -> bool:
        return bool(self.shapes)


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.priority = {node: place for place, node in enumerate(graph.nodes)}
        self.kept = set(graph.outputs.values()) | set(graph.updates.values())
        self.compute = [node for node in graph.nodes if not is_view(node) and node.op != "constant"]
        self.cluster: dict[Node, _Cluster] = {}
        for node in self.compute:
            made = _Cluster([node])
            if is_pointwise(node):
                made.shape = node.outputs[0].spec.shape
                made.shapes[node] = made.shape
            self.cluster[node] = made
        self.successors: dict[Node, set[Node]] = {node: set() for node in self.compute}
        self.predecessors: dict[Node, set[Node]] = {node: set() for node in self.compute}
        for node in self.compute:
            for value in node.inputs:
                root = root_of(value) if value is not None else None
                if root is not None and root.op != "constant":
                    self.successors[root].add(node)
                    self.predecessors[node].add(root)
        self.readers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self.readers.setdefault(value, []).append(node)

    # Which clusters may join

    def _next(self, cluster: _Cluster) -> set[_Cluster]:
        found = {self.cluster[user] for node in cluster.members for user in self.successors[node]}
        found.discard(cluster)
        return found

    def _reaches(self, start: Iterable[_Cluster], goal: _Cluster) -> bool:
        last = max(self.priority[node] for node in goal.members)
        seen: set[_Cluster] = set()
        waiting = list(start)
        while waiting:
            cluster = waiting.pop()
            if cluster is goal:
                return True
            if cluster in seen:
                continue
            seen.add(cluster)
            if len(cluster.members) > 1 or self.priority[cluster.members[0]] <= last:
                waiting += self._next(cluster)
        return False

    def _has_detour(self, first: _Cluster, second: _Cluster) -> bool:
        """Whether a path leads from `first` through others to `second`."""
        return self._reaches([one for one in self._next(first) if one is not second], second)

    def _is_used_outside(self, value: Value, *clusters: _Cluster) -> bool:
        """Whether `value`, itself or as a view, is needed by other nodes than the members."""
        waiting = [value]
        while waiting:
            current = waiting.pop()
            if current in self.kept:
                return True
            for node in self.readers.get(current, ()):
                if is_view(node):
                    waiting += node.outputs
                elif self.cluster.get(node) not in clusters:
                    return True
        return False

    def _inner(self, value: Value, cluster: _Cluster) -> Link | None:
        """The link to a member of `cluster` that makes `value`."""
        link = link_of(value)
        if link is None or link.value.producer is None:
            return None
        return link if self.cluster.get(link.value.producer) is cluster else None

    def _outer_inputs(self, node: Node, cluster: _Cluster) -> list[Value]:
        """What `node` reads from outside of `cluster`, literals left out."""
        return [
            value
            for value in node.inputs
            if value is not None and literal_of(value) is None and not self._inner(value, cluster)
        ]

    def _fits(self, value: Value, old: Shape, new: Shape) -> bool:
        """Whether an outer input can be read over `new` without a copy."""
        value = unbroadcast(value)
        shape = reviewed_shape(value.spec.shape, old, new)
        if shape is None:
            return False
        if shape == value.spec.shape:
            return True
        node = value.producer
        while node is not None and node.op == "reshape":
            node = viewed(node).producer
        return node is None or not is_view(node)

    def _moved(self, cluster: _Cluster, new: Shape) -> dict[Node, Shape] | None:
        """The members' shapes among the elements of `new`, in the same order as before."""
        shapes: dict[Node, Shape] = {}
        for node, own in cluster.shapes.items():
            moved = reviewed_shape(own, cluster.shape, new)
            if moved is None:
                return None
            local = node.outputs[0].spec.shape
            if not all(self._fits(v, local, moved) for v in self._outer_inputs(node, cluster)):
                return None
            shapes[node] = moved
        return shapes

    def _is_opaque(self, first: _Cluster, second: _Cluster) -> bool:
        """Whether a member of `second` reads `first` through a view that moves elements."""
        for node in second.members:
            for value in node.inputs:
                root = root_of(value) if value is not None else None
                if root is not None and self.cluster.get(root) is first:
                    assert value is not None
                    if self._inner(value, first) is None:
                        return True
        return False

    def _tensor_count(self, first: _Cluster, second: _Cluster) -> int:
        """Inputs and outputs of both together."""
        tensors: set[Value] = set()
        both = {first, second}
        for node in (*first.members, *second.members):
            for value in node.inputs:
                if value is None or literal_of(value) is not None:
                    continue
                link = link_of(value)
                producer = link.value.producer if link else None
                if producer is None or self.cluster.get(producer) not in both:
                    tensors.add(unbroadcast(value))
            for value in node.outputs:
                users = {self.cluster.get(user) for user in self.successors[node]}
                if users - both or self._is_used_outside(value, second):
                    tensors.add(value)
        return len(tensors)

    def _join(self, first: _Cluster, second: _Cluster, shapes: dict[Node, Shape]) -> None:
        second.members = sorted(
            [*first.members, *second.members], key=lambda node: self.priority[node]
        )
        second.shapes.update(shapes)
        for node in first.members:
            self.cluster[node] = second

    def _may_join(self, first: _Cluster, second: _Cluster) -> bool:
        return (
            len(first.members) + len(second.members) <= MAX_STEPS
            and not self._is_opaque(first, second)
            and not self._has_detour(first, second)
            and self._tensor_count(first, second) <= MAX_TENSORS
        )

    # The three kinds of joining

    def join_producers(self) -> None:
        """Producers with consumers, in the order of execution."""
        for node in self.compute:
            if not is_pointwise(node):
                continue
            for value in node.inputs:
                link = link_of(value) if value is not None else None
                producer = link.value.producer if link else None
                if link is None or producer is None or not is_pointwise(producer):
                    continue
                first, second = self.cluster[producer], self.cluster[node]
                if first is not second:
                    self._join_producer(first, second, producer, node, link)

    def _join_producer(
        self, first: _Cluster, second: _Cluster, producer: Node, node: Node, link: Link
    ) -> None:
        local, own = node.outputs[0].spec.shape, second.shapes[node]
        seen = reviewed_shape(link.shape, local, own)
        if seen is None:
            return
        whole = first.shapes[producer] == first.shape
        if math.prod(first.shape) == math.prod(second.shape) and whole:
            target = second.shape
            if seen != target and math.prod(seen) != math.prod(target):
                return
        else:
            # repeats along some dimensions: only what nobody else needs, and cheap
            target = seen
            outside = any(
                self._is_used_outside(value, first, second)
                for member in first.members
                for value in member.outputs
            )
            flops = sum(_flops_each(member) for member in first.members)
            if outside or not whole:
                return
            if math.prod(first.shape) > 1 and flops > CHEAP_FLOPS:
                return
        shapes = self._moved(first, target)
        if shapes is not None and self._may_join(first, second):
            self._join(first, second, shapes)

    def join_siblings(self) -> None:
        """Clusters of one shape that read the same large tensor."""
        by_input: dict[Value, list[_Cluster]] = {}
        for node in self.compute:
            cluster = self.cluster[node]
            if not cluster.is_pointwise:
                continue
            for value in self._outer_inputs(node, cluster):
                if value.spec.shape == cluster.shape:
                    listed = by_input.setdefault(value, [])
                    if cluster not in listed:
                        listed.append(cluster)
        for clusters in by_input.values():
            for place, first in enumerate(clusters):
                for second in clusters[place + 1 :]:
                    alive = self.cluster[first.members[0]], self.cluster[second.members[0]]
                    self._join_sibling(*alive)

    def _join_sibling(self, first: _Cluster, second: _Cluster) -> None:
        if first is second or first.shape != second.shape:
            return
        if self._reaches(self._next(second), first):
            first, second = second, first
        if self._reaches(self._next(second), first):
            return
        if self._may_join(first, second):
            self._join(first, second, dict(first.shapes))

    def join_products(self) -> None:
        """Each product with the cluster that reads it, later products first."""
        for node in reversed(self.compute):
            if node.op != "matmul" or not node.outputs[0].spec.dtype.is_float:
                continue
            product = node.outputs[0]
            candidates = {self.cluster[user] for user in self.successors[node]}
            for cluster in sorted(candidates, key=lambda one: self.priority[one.members[0]]):
                if self._takes_product(cluster, node, product):
                    cluster.product = node
                    cluster.members = sorted(
                        [node, *cluster.members], key=lambda one: self.priority[one]
                    )
                    self.cluster[node] = cluster
                    break

    def _takes_product(self, cluster: _Cluster, node: Node, product: Value) -> bool:
        shape = product.spec.shape
        if not cluster.is_pointwise or cluster.product is not None:
            return False
        if math.prod(cluster.shape) != product.spec.size:
            return False
        alone = self.cluster[node]
        if self._is_opaque(alone, cluster) or self._has_detour(alone, cluster):
            return False
        reads: set[Value] = set()
        for member in cluster.members:
            for value in self._outer_inputs(member, cluster):
                local, own = member.outputs[0].spec.shape, cluster.shapes[member]
                link = link_of(value)
                if link is not None and link.value is product:
                    if reviewed_shape(link.shape, local, own) != cluster.shape:
                        return False
                    continue
                inner = unbroadcast(value)
                seen = reviewed_shape(inner.spec.shape, local, own)
                seen = None if seen is None else reviewed_shape(seen, cluster.shape, shape)
                if seen is None or not self._fits(inner, inner.spec.shape, seen):
                    return False
                if epilogue_access(View.contiguous(seen, inner.spec.dtype), shape) is None:
                    return False
                reads.add(inner)
        outputs = len(self._outputs(cluster)) + self._is_used_outside(product, cluster)
        return outputs > 0 and len(reads) + outputs - 1 <= MAX_EXTRA

    # New nodes

    def _outputs(self, cluster: _Cluster) -> list[Value]:
        """The members' results that are needed outside."""
        return [
            value
            for node in cluster.members
            if node in cluster.shapes
            for value in node.outputs
            if self._is_used_outside(value, cluster)
        ]

    def rebuild(self) -> None:
        """Replace the clusters by nodes."""
        nodes = [node for node in self.graph.nodes if is_view(node) or node.op == "constant"]
        made: list[_Cluster] = []
        for node in self.compute:
            cluster = self.cluster[node]
            if not cluster.is_pointwise:
                nodes.append(node)
            elif cluster not in made:
                made.append(cluster)
                nodes += _Builder(self, cluster).nodes
        self.graph.nodes = nodes
        remove_dead_nodes(self.graph)
        self.graph.nodes = sort_nodes(self.graph.nodes, self.priority)


class _Builder:
    """Makes the node of one cluster, with the reshapes around it."""

    def __init__(self, fusion: _Fusion, cluster: _Cluster) -> None:
        self.fusion = fusion
        self.cluster = cluster
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []
        self.steps: list[Step] = []
        self.results: dict[Value, Operand] = {}
        self.numbers: dict[Value, int] = {}
        product = cluster.product
        self.space = cluster.shape
        if product is not None:
            self.space = product.outputs[0].spec.shape
            self.results[product.outputs[0]] = Input(0)
            self.inputs.append(product.outputs[0])
        members = [node for node in cluster.members if node is not product]
        for node in sort_nodes(members, fusion.priority):
            self._add(node)
        self._finish(members)

    def _add(self, node: Node) -> None:
        operands = tuple(self._operand(node, value) for value in node.inputs if value is not None)
        step = Step(node.op, operands, frozen_attrs(node.op, node.attrs))
        if step in self.steps:
            self.results[node.outputs[0]] = Result(self.steps.index(step))
            return
        self.steps.append(step)
        self.results[node.outputs[0]] = Result(len(self.steps) - 1)

    def _operand(self, node: Node, value: Value) -> Operand:
        literal = literal_of(value)
        if literal is not None:
            return literal
        link = link_of(value)
        if link is not None and link.value in self.results:
            return self.results[link.value]
        inner = unbroadcast(value)
        local, own = node.outputs[0].spec.shape, self.cluster.shapes[node]
        shape = reviewed_shape(inner.spec.shape, local, own)
        if shape is not None and self.cluster.product is not None:
            shape = reviewed_shape(shape, self.cluster.shape, self.space)
        assert shape is not None, "checked before joining"
        read = self._reshaped(inner, shape) if shape != inner.spec.shape else inner
        if read not in self.numbers:
            self.numbers[read] = len(self.inputs)
            self.inputs.append(read)
        return Input(self.numbers[read])

    def _reshaped(self, value: Value, shape: Shape) -> Value:
        while value.producer is not None and value.producer.op == "reshape":
            value = viewed(value.producer)
        if value.spec.shape == shape:
            return value
        for read in self.numbers:
            node = read.producer
            if node in self.nodes and node.inputs[0] is value and read.spec.shape == shape:
                return read
        made = new_value(f"{value.name}.as{len(self.inputs)}", shape, value)
        node = Node("reshape", [value], [made], {"shape": shape})
        made.producer = node
        self.nodes.append(node)
        return made

    def _finish(self, members: Sequence[Node]) -> None:
        fusion, cluster = self.fusion, self.cluster
        outputs = fusion._outputs(cluster)
        product = cluster.product
        first = max(cluster.members, key=lambda node: fusion.priority[node])
        sources = [node.source for node in members if node.source]
        node = Node("pointwise_group", [*self.inputs], [], {}, sources[-1] if sources else "")
        kept: list[Operand] = []
        seen: dict[Operand, Value] = {}
        after: list[Node] = []
        if product is not None and fusion._is_used_outside(product.outputs[0], cluster):
            outputs = [*outputs, product.outputs[0]]
        for value in outputs:
            operand = self.results[value]
            if operand in seen:  # the same step twice: one result under two names
                stored = seen[operand]
            else:
                is_product = product is not None and value is product.outputs[0]
                shape = self.space if is_product else cluster.shape
                stored = value
                if value.spec.shape != shape:
                    stored = Value(f"{value.name}.fused", TensorSpec(shape, value.spec.dtype))
                stored.producer, stored.index = node, len(node.outputs)
                node.outputs.append(stored)
                kept.append(operand)
                seen[operand] = stored
            if stored is not value:
                view = Node("reshape", [stored], [value], {"shape": value.spec.shape})
                value.producer, value.index = view, 0
                after.append(view)
                fusion.priority[view] = fusion.priority[first]
        group = Group(tuple(self.steps), tuple(kept))
        node.attrs["group"] = group
        if product is not None:
            node.op = "matmul_epilogue"
            reads = self.inputs[1:]
            bias = product.inputs[2] if len(product.inputs) > 2 else None
            node.inputs = [product.inputs[0], product.inputs[1], bias, *reads]
            node.attrs["shape"] = self.space
            node.attrs["access"] = tuple(
                epilogue_access(View.contiguous(read.spec.shape, read.spec.dtype), self.space)
                for read in reads
            )
        fusion.priority[node] = fusion.priority[first]
        for one in self.nodes:
            fusion.priority[one] = fusion.priority[first]
        self.nodes += [node, *after]


def _flops_each(node: Node) -> float:
    """Arithmetic per element of an element-wise node."""
    inputs = [None if value is None else value.spec for value in node.inputs]
    outputs = [value.spec for value in node.outputs]
    return operator(node.op).cost(inputs, outputs, node.attrs).flops / max(outputs[0].size, 1)


def _repeat_cheap_producers(graph: Graph) -> None:
    """Give each element-wise reader its own copy of a cheap node with one tensor input, so that
    the result need not go through memory."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and node not in readers.setdefault(value, []):
                readers[value].append(node)
    kept = set(graph.outputs.values()) | set(graph.updates.values())
    nodes: list[Node] = []
    copies: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        users = readers.get(node.outputs[0], []) if node.outputs else []
        given = [value for value in node.inputs if value is not None]
        tensors = [value for value in given if literal_of(value) is None]
        repeat = (
            is_pointwise(node)
            and len(tensors) == 1
            and len(users) > 1
            and node.outputs[0] not in kept
            and all(is_pointwise(user) for user in users)
            and tensors[0].spec.size_bytes <= node.outputs[0].spec.size_bytes
            and _flops_each(node) <= CHEAP_FLOPS
        )
        if not repeat:
            nodes.append(node)
            continue
        for number, user in enumerate(users):
            value = node.outputs[0]
            made = Value(f"{value.name}.{number}", value.spec)
            again = Node(node.op, list(node.inputs), [made], dict(node.attrs), node.source)
            made.producer = again
            user.inputs = [made if one is value else one for one in user.inputs]
            copies.setdefault(node, []).append(again)
        nodes += copies[node]
    graph.nodes = nodes


def fuse(graph: Graph, *, epilogues: bool = True) -> Graph:
    """A copy of `graph` with fused nodes."""
    made = copy_graph(graph)
    simplify(made)
    _repeat_cheap_producers(made)
    fusion = _Fusion(made)
    fusion.join_producers()
    fusion.join_siblings()
    if epilogues:
        fusion.join_products()
    fusion.rebuild()
    return made
