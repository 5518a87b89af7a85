# ruff: noqa: A004, N813  (the names are the language's own)
"""The kernel language: decorated Python functions into tile IR, with caret diagnostics.

`import isthmus.language as tl` inside kernel files; docs/language.md says what each name means.
"""

from __future__ import annotations

from isthmus.language import math
from isthmus.language.blocks import (
    arange,
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    full,
    gather,
    histogram,
    interleave,
    item,
    join,
    num_programs,
    permute,
    program_id,
    ravel,
    reshape,
    split,
    squeeze,
    trans,
    unsqueeze,
    view,
    zeros,
    zeros_like,
)  # fmt: skip
from isthmus.language.expressions import TargetFacts
from isthmus.language.math import (
    abs,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
)  # fmt: skip
from isthmus.language.memory import (
    advance,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_store,
    atomic_xchg,
    atomic_xor,
    load,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store,
    store_tensor_descriptor,
)  # fmt: skip
from isthmus.language.operations import (
    PropagateNan,
    add,
    assume,
    cast,
    cdiv,
    clamp,
    debug_barrier,
    device_assert,
    device_print,
    dot_scaled,
    inline_asm_elementwise,
    max_constancy,
    max_contiguous,
    maximum,
    minimum,
    mul,
    multiple_of,
    sigmoid,
    static_assert,
    static_print,
    static_range,
    sub,
    to_tensor,
    where,
)  # fmt: skip
from isthmus.language.operations import range_ as range
from isthmus.language.random import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)  # fmt: skip
from isthmus.language.reductions import (
    argmax,
    argmin,
    associative_scan,
    cumprod,
    cumsum,
    dot,
    max,
    min,
    reduce,
    reduce_or,
    sum,
    xor_sum,
)  # fmt: skip
from isthmus.language.standard import bitonic_merge, flip, softmax, sort, swizzle2d, topk
from isthmus.language.types import (
    bfloat16,
    block_type,
    dtype,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pointer_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)  # fmt: skip
from isthmus.language.values import Tensor as tensor
from isthmus.language.values import TensorDescriptor as tensor_descriptor
from isthmus.language.values import constexpr, constexpr_function

#: What the kernel is compiled for: `tl.target.vector_bits` and the like.
target = TargetFacts()

__all__ = [
    "PropagateNan", "abs", "add", "advance", "arange", "argmax", "argmin", "associative_scan",
    "assume", "atomic_add", "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min",
    "atomic_or", "atomic_store", "atomic_xchg", "atomic_xor", "bfloat16", "bitonic_merge",
    "block_type", "broadcast", "broadcast_to", "cast", "cat", "cdiv", "ceil", "clamp",
    "constexpr", "constexpr_function", "cos", "cumprod", "cumsum", "debug_barrier",
    "device_assert", "device_print", "div_rn", "dot", "dot_scaled", "dtype", "erf", "exp", "exp2",
    "expand_dims", "fdiv", "flip", "float16", "float32", "float64", "float8e4nv", "float8e5",
    "floor", "fma", "full", "gather", "histogram", "inline_asm_elementwise", "int1", "int16",
    "int32", "int64", "int8", "interleave", "item", "join", "load", "load_tensor_descriptor",
    "log", "log2", "make_block_ptr", "make_tensor_descriptor", "math", "max", "max_constancy",
    "max_contiguous", "maximum", "min", "minimum", "mul", "multiple_of", "num_programs",
    "pair_uniform_to_normal", "permute", "philox", "philox_impl", "pointer_type", "program_id",
    "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "range", "ravel", "reduce",
    "reduce_or", "reshape", "rsqrt", "sigmoid", "sin", "softmax", "sort", "split", "sqrt",
    "sqrt_rn", "squeeze", "static_assert", "static_print", "static_range", "store",
    "store_tensor_descriptor", "sub", "sum", "swizzle2d", "target", "tensor",
    "tensor_descriptor", "to_tensor", "topk", "trans", "uint16", "uint32", "uint64", "uint8",
    "uint_to_uniform_float", "umulhi", "unsqueeze", "view", "void", "where", "xor_sum", "zeros",
    "zeros_like",
]  # fmt: skip
