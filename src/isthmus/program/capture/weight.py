"""What a loss is a mean of, so that micro-batches of unequal size can be joined exactly.

A step in micro-batches adds up gradient x weight and divides by the sum of the weights. That is
the gradient of one large batch when each weight is the number of rows its loss is the mean of.
"""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.program.graph import Graph, Node, Value

__all__ = ["Weight", "weight_of"]

#: Operators that pass a scalar on as it is, whatever they do to its shape or type.
_PASSING = ("reshape", "copy", "cast", "broadcast_to", "neg")


@dataclass(frozen=True, slots=True)
class Weight:
    """How a loss depends on the size of its batch.

    kind: "rows" (a mean over `count` rows, known in each batch), "fixed" (a mean over the same
        number of rows in every batch), "sum" (not divided at all), "free" (does not depend on
        the batch) or "unknown".
    """

    kind: str
    count: Value | None = None


def weight_of(graph: Graph, loss: Value) -> Weight:
    """The weight of a loss, found in the operations that make it."""
    return _Finder(graph).find(loss)


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.on_state = {e.value for e in graph.inputs.values() if e.kind == "state"}
        self.on_batch = {
            e.value for e in graph.inputs.values() if e.kind == "batch" or e.role == "buffer"
        }
        for node in graph.nodes:
            random = node.op in ("uniform", "normal", "dropout")
            for reached in (self.on_state, self.on_batch):
                if any(value in reached for value in node.inputs):
                    reached.update(node.outputs)
            if random:
                self.on_batch.update(node.outputs)

    def find(self, value: Value) -> Weight:
        if value not in self.on_batch:
            return Weight("free")
        node = value.producer
        if node is None:
            return Weight("unknown")
        if node.op in _PASSING:
            return self._first(node)
        if node.op == "cross_entropy":
            kinds = {"mean": Weight("rows", node.outputs[2]), "sum": Weight("sum")}
            return kinds.get(node.attrs["reduction"], Weight("unknown"))
        if node.op == "mean":
            return Weight("fixed")
        if node.op == "sum":
            return Weight("sum")
        if node.op == "div":
            return self._quotient(node)
        if node.op == "mul":
            return self._product(node)
        if node.op in ("add", "sub"):
            return self._joined(*(self.find(v) for v in node.inputs if v is not None))
        return Weight("unknown")

    def _first(self, node: Node) -> Weight:
        source = node.inputs[0]
        return Weight("unknown") if source is None else self.find(source)

    def _quotient(self, node: Node) -> Weight:
        """sum / count is a mean over count rows; sum / number a mean over a fixed number."""
        divisor = node.inputs[1]
        if divisor is None or divisor in self.on_state:
            return Weight("unknown")
        above = self._first(node)
        if divisor not in self.on_batch:
            return Weight("fixed") if above.kind == "sum" else above
        return Weight("rows", _unclamped(divisor)) if above.kind == "sum" else Weight("unknown")

    def _product(self, node: Node) -> Weight:
        """A loss times a number has the weight of the loss."""
        a, b = node.inputs
        for loss, factor in ((a, b), (b, a)):
            if loss is not None and factor is not None and factor not in self.on_batch:
                return Weight("unknown") if factor in self.on_state else self.find(loss)
        return Weight("unknown")

    @staticmethod
    def _joined(a: Weight, b: Weight) -> Weight:
        for one, other in ((a, b), (b, a)):
            if one.kind == "free":
                # What does not depend on the batch counts once in a mean, too often in a sum.
                return Weight("unknown") if other.kind == "sum" else other
        same = a.kind == b.kind and a.count is b.count
        return a if same else Weight("unknown")


def _unclamped(count: Value) -> Value:
    """A count before it was kept from being 0: with no rows the weight is 0, not 1."""
    node = count.producer
    while node is not None and node.op in ("clamp", "maximum", "reshape", "cast"):
        source = node.inputs[0]
        if source is None or (node.op == "clamp" and node.attrs["high"] is not None):
            break
        if node.op == "maximum":
            floor = node.inputs[1].producer if node.inputs[1] is not None else None
            if floor is None or floor.op != "constant":
                break
        count, node = source, source.producer
    return count
