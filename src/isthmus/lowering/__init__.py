"""Tile IR to what machines run; every machine number comes from a target description."""
