"""Every use of PyTorch that is not public API, in one place.

Written for torch 2.9 to 2.13: `make_fx` and the core ATen decompositions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_map

__all__ = ["trace", "trace_functional"]

#: Operators that stay whole instead of being decomposed.
_KEEP = (
    "embedding_dense_backward", "gelu_backward", "_log_softmax_backward_data",
    "_softmax_backward_data", "native_dropout_backward", "native_layer_norm_backward",
    "nll_loss_forward", "nll_loss_backward", "silu", "silu_backward", "threshold_backward",
    "tanh_backward", "sigmoid_backward", "_scaled_dot_product_flash_attention_for_cpu",
    "slice_backward", "select_backward", "stack", "addmm", "masked_fill", "native_layer_norm",
    "_fused_rms_norm", "_fused_rms_norm_backward", "var", "mse_loss", "unbind", "baddbmm",
)  # fmt: skip


def _decompositions() -> dict[Any, Callable[..., Any]]:
    table = core_aten_decompositions()
    return {
        op: rule
        for op, rule in table.items()
        if not (isinstance(op, torch._ops.OpOverload) and op.overloadpacket.__name__ in _KEEP)
    }


def trace(function: Callable[..., Any], arguments: Sequence[Any]) -> torch.fx.GraphModule:
    """The operations that `function` performs on `arguments`, mutations included."""
    return make_fx(function, tracing_mode="real", record_stack_traces=True)(*arguments)


def trace_functional(
    function: Callable[..., Any], arguments: Sequence[Any]
) -> torch.fx.GraphModule:
    """Two stages: all operations, backward included; then without mutations, in core operators."""
    first = trace(function, arguments)

    def replay(*values: Any) -> Any:
        return torch.fx.Interpreter(first).run(*values)

    flat: list[Any] = []
    tree_map(flat.append, tuple(arguments))
    with preserve_node_meta(), torch.no_grad():
        functional = torch.func.functionalize(replay, remove="mutations")
        return make_fx(functional, decomposition_table=_decompositions(), tracing_mode="real")(
            *flat
        )
