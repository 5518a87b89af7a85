"""ATen operators as standard operators: one short rule each.

Importing this package fills the table `convert.RULES`.
"""

from isthmus.program.capture.aten import (
    indexing,
    optimizers,
    pointwise,
    products,
    randomness,
    reductions,
    views,
)

__all__ = ["indexing", "optimizers", "pointwise", "products", "randomness", "reductions", "views"]
