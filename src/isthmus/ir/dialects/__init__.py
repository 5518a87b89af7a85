"""The op tables: arith and math (element-wise), tile (blocks), scf (control), nest (vectors)."""

from isthmus.ir.dialects import arith, math, nest, scf, tile

__all__ = ["arith", "math", "nest", "scf", "tile"]
