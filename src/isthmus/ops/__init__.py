"""The operator standard: every operator a record with reference, rules and kernels."""

from isthmus.ops import (
    attention,
    cross_entropy,
    elementwise,
    embedding,
    indexing,
    layer_norm,
    matmul,
    optimizers,
    random,
    reductions,
    rms_norm,
    shaping,
    softmax,
    views,
)
from isthmus.ops.standard import OPERATORS, Operator, TensorSpec, operator

__all__ = [
    "OPERATORS", "Operator", "TensorSpec", "attention", "cross_entropy", "elementwise",
    "embedding", "indexing", "layer_norm", "matmul", "operator", "optimizers", "random",
    "reductions", "rms_norm", "shaping", "softmax", "views",
]  # fmt: skip
