"""Tile programs to loop nests over vectors: what CPUs and other vector machines run."""

from isthmus.lowering.nest.aliases import written_arguments
from isthmus.lowering.nest.lower import LoweredKernel, lower

__all__ = ["LoweredKernel", "lower", "written_arguments"]
