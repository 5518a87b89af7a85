"""Every use of PyTorch that is not public API, in one place.

Written for torch 2.9 to 2.13: `make_fx`, the decompositions, and the notes on traced nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta, set_stack_trace
from torch.utils._pytree import tree_map

from isthmus.core.errors import CaptureError

__all__ = ["core_operators", "place_of", "set_place", "trace", "without_onednn"]

#: Operators that stay whole instead of being decomposed.
_KEEP = (
    "embedding_dense_backward", "gelu_backward", "_log_softmax_backward_data",
    "_softmax_backward_data", "native_dropout_backward", "native_layer_norm_backward",
    "nll_loss_forward", "nll_loss_backward", "silu", "silu_backward", "threshold_backward",
    "tanh_backward", "sigmoid_backward", "_scaled_dot_product_flash_attention_for_cpu",
    "slice_backward", "select_backward", "stack", "addmm", "masked_fill", "native_layer_norm",
    "var", "mse_loss", "unbind", "baddbmm", "roll",
)  # fmt: skip

#: Operators that are core ATen, yet not in our standard, and come apart into those that are.
_ALSO = tuple(
    getattr(torch.ops.aten, name)
    for name in (
        "leaky_relu", "elu", "hardtanh", "linalg_vector_norm", "native_group_norm",
        "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    )
)  # fmt: skip


def _decompositions() -> dict[Any, Callable[..., Any]]:
    table = {**core_aten_decompositions(), **get_decompositions(_ALSO)}
    return {
        op: rule
        for op, rule in table.items()
        if not (isinstance(op, torch._ops.OpOverload) and op.overloadpacket.__name__ in _KEEP)
    }


@contextmanager
def without_onednn() -> Iterator[None]:
    """Trace operators as such instead of oneDNN's own, which nothing takes apart."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def set_place(place: str) -> None:
    """Give nodes that are traced from now on a place in the model."""
    set_stack_trace([place])


def place_of(node: torch.fx.Node) -> str:
    """The place in the model that a traced node was given, or nothing."""
    return node.meta.get("stack_trace") or ""


def trace(function: Callable[..., Any], arguments: Sequence[Any]) -> torch.fx.GraphModule:
    """The operations that `function` performs on `arguments`, mutations included.

    Raises: CaptureError where the function asks for the value of a tensor.
    """
    set_place("")
    try:
        with preserve_node_meta():
            return make_fx(function, tracing_mode="real")(*arguments)
    except RuntimeError as error:
        if "tracing tensor" not in str(error):
            raise
        raise CaptureError(
            "the model looks at the value of a tensor (an `if`, float() or int() of one), "
            "which a program cannot do",
            hint="use torch.where, or compute the choice outside the model",
        ) from error
    finally:
        set_place("")


def core_operators(first: torch.fx.GraphModule, arguments: Sequence[Any]) -> torch.fx.GraphModule:
    """A traced graph without mutations, in core operators.

    Raises: CaptureError for an operator that PyTorch itself cannot take apart.
    """

    def replay(*values: Any) -> Any:
        return torch.fx.Interpreter(first).run(*values)

    flat: list[Any] = []
    tree_map(flat.append, tuple(arguments))
    functional = torch.func.functionalize(replay, remove="mutations")
    try:
        with preserve_node_meta(), torch.no_grad():
            return make_fx(functional, decomposition_table=_decompositions())(*flat)
    except (NotImplementedError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CaptureError(f"PyTorch cannot trace this model: {reason}") from error
