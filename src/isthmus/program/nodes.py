"""What fusion, storage and the executor ask of a node: its plan, layout needs, cost.

Nodes are operators of the standard, or one of two kinds that fusion makes:

    pointwise_group   attrs: group. Inputs broadcast to the shape of the outputs.
    matmul_epilogue   attrs: group, access, shape. Inputs a, b, bias (or None), then what the
                      epilogue reads; `shape` is that of the product. Group input 0 is the product.

and one that storage makes: `fill`, without inputs, with the attribute value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import ProgramError
from isthmus.ops.fused import (
    Group,
    epilogue_function,
    group_cost,
    plan_group,
    plan_pointwise,
)
from isthmus.ops.matmul import matmul_plan
from isthmus.ops.shaping import fill_launch
from isthmus.ops.standard import Cost, Plan, Slot, TensorSpec, View, operator
from isthmus.program.graph import Node

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__ = [
    "FUSED", "VIEWS", "cost_of_node", "inplace_inputs", "is_pointwise", "is_view", "plan_node",
    "strided_inputs",
]  # fmt: skip

VIEWS = frozenset({"reshape", "transpose", "broadcast_to", "slice"})
FUSED = frozenset({"pointwise_group", "matmul_epilogue"})


def is_view(node: Node) -> bool:
    return node.op in VIEWS


def is_pointwise(node: Node) -> bool:
    return node.op not in FUSED and node.op != "fill" and operator(node.op).is_pointwise


def strided_inputs(node: Node) -> Sequence[int]:
    """The inputs whose views may have any strides."""
    if node.op == "pointwise_group" or is_pointwise(node):
        return range(len(node.inputs))
    if node.op == "matmul_epilogue":
        return (0, 1)
    allowed = operator(node.op).strided_inputs
    return range(len(node.inputs)) if allowed is None else allowed


def inplace_inputs(node: Node, output: int) -> Sequence[int]:
    """The inputs whose memory output number `output` may take over, row-major and of its size."""
    if node.op == "pointwise_group" or is_pointwise(node):
        return range(len(node.inputs))
    if node.op == "matmul_epilogue":
        access: Sequence[str] = node.attrs["access"]
        return [3 + index for index, how in enumerate(access) if how == "full"]
    return operator(node.op).inplace.get(output, ())


def plan_node(
    node: Node,
    inputs: Sequence[View | None],
    outputs: Sequence[View],
    target: TargetDescription,
) -> Plan:
    """The launches of one node. Raises ProgramError for an operator without kernels."""
    if node.op == "pointwise_group":
        return plan_group(node.attrs["group"], _present(inputs), outputs, target)
    if node.op == "matmul_epilogue":
        return _plan_epilogue(node, inputs, outputs, target)
    if node.op == "fill":
        out = outputs[0]
        launch = fill_launch(Slot("output", 0), out, node.attrs["value"], target)
        return Plan((launch,) if out.size else ())
    record = operator(node.op)
    if record.is_pointwise:
        return plan_pointwise(node.op, _present(inputs), outputs, node.attrs, target)
    if record.plan is None:
        raise ProgramError(f"operator {node.op} has no kernel")
    return record.plan(inputs, outputs, node.attrs, target)


def _present(views: Sequence[View | None]) -> list[View]:
    found = [view for view in views if view is not None]
    assert len(found) == len(views), "element-wise operators have no optional inputs"
    return found


def _plan_epilogue(
    node: Node, inputs: Sequence[View | None], outputs: Sequence[View], target: TargetDescription
) -> Plan:
    a, b, bias, *others = inputs
    assert a is not None
    assert b is not None
    attrs: Mapping[str, Any] = node.attrs
    group: Group = attrs["group"]
    product = View.contiguous(attrs["shape"], outputs[0].dtype)
    dtypes = [a.dtype, *(view.dtype for view in _present(others))]
    stored = range(1, len(group.outputs))
    epilogue = epilogue_function(group, dtypes, attrs["access"], stored)
    extra = [Slot("input", 3 + index) for index in range(len(others))]
    extra += [Slot("output", index) for index in stored]
    return matmul_plan(a, b, bias, product, target, epilogue=epilogue, extra=extra)


def cost_of_node(
    node: Node, inputs: Sequence[TensorSpec | None], outputs: Sequence[TensorSpec]
) -> Cost:
    """Arithmetic and memory traffic of one node."""
    moved = sum(spec.size_bytes for spec in (*inputs, *outputs) if spec is not None)
    if node.op == "fill":
        return Cost(0, moved)
    if node.op == "pointwise_group":
        return group_cost(node.attrs["group"], [spec for spec in inputs if spec], outputs)
    if node.op == "matmul_epilogue":
        product = operator("matmul").cost(inputs[:3], outputs[:1], {})
        given = [outputs[0], *(spec for spec in inputs[3:] if spec)]
        return Cost(product.flops + group_cost(node.attrs["group"], given, outputs).flops, moved)
    return operator(node.op).cost(inputs, outputs, node.attrs)
