"""Tile programs to loop nests over vectors: what CPUs and other vector machines run."""
