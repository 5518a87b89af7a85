"""Members of run-time values: `x.shape`, `x.to(...)`, `descriptor.load(...)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isthmus.language import blocks, math, memory, operations, reductions, standard
from isthmus.language.emitter import Emitter, describe
from isthmus.language.values import BlockPointer, Builtin, Tensor, TensorDescriptor

__all__ = ["Method", "call", "member"]


@dataclass(frozen=True, slots=True)
class Method:
    """A function of the language bound to its first argument."""

    builtin: Any
    owner: Any


_MODULES = (blocks, math, memory, operations, reductions, standard)
_NAMES = (
    "abs", "advance", "argmax", "argmin", "associative_scan", "atomic_add", "atomic_and",
    "atomic_cas", "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_store",
    "atomic_xchg", "atomic_xor", "broadcast_to", "cast", "cdiv", "ceil", "cos", "cumprod",
    "cumsum", "erf", "exp", "exp2", "expand_dims", "flip", "floor", "gather", "histogram", "item",
    "log", "log2", "max", "min", "permute", "ravel", "reduce", "reduce_or", "reshape", "rsqrt",
    "sigmoid", "sin", "softmax", "sort", "split", "sqrt", "sqrt_rn", "store", "sum", "to",
    "trans", "view", "xor_sum",
)  # fmt: skip
_BLOCK: dict[str, Any] = {
    name: next(getattr(module, name) for module in _MODULES if hasattr(module, name))
    for name in _NAMES
}
_DESCRIPTOR: dict[str, Any] = {
    "load": memory.load_tensor_descriptor,
    "store": memory.store_tensor_descriptor,
}


def call(emitter: Emitter, name: str, block: Tensor, *arguments: Any) -> Any:
    """block.name(*arguments) for functions built in Python."""
    function = _BLOCK[name]
    assert isinstance(function, Builtin), f"{name} is written in the language"
    return function.build(emitter, block, *arguments)


def member(emitter: Emitter, value: Any, name: str) -> Any:
    """value.name of a block, a block pointer or a descriptor."""
    if isinstance(value, Tensor):
        if name in ("shape", "dtype", "type", "numel"):
            return getattr(value, name)
        if name == "T":
            return call(emitter, "trans", value)
        if name in _BLOCK:
            return Method(_BLOCK[name], value)
    elif isinstance(value, TensorDescriptor):
        if name in ("shape", "strides", "block_shape", "dtype"):
            return getattr(value, name)
        if name in _DESCRIPTOR:
            return Method(_DESCRIPTOR[name], value)
    elif isinstance(value, BlockPointer):
        if name == "dtype":
            return value.base.dtype
        if name in ("advance", "store"):
            return Method(_BLOCK[name], value)
    return emitter.fail(
        "K207", f"{describe(value)} has no {name}", "see docs/language.md for its members"
    )
