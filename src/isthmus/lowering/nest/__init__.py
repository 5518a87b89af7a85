"""Tile programs to loop nests over vectors: what CPUs and other vector machines run."""

from isthmus.lowering.nest.lower import LoweredKernel, lower

__all__ = ["LoweredKernel", "lower"]
