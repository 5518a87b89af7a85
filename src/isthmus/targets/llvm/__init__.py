"""Nest functions to LLVM IR text, and LLVM IR text to objects and assembly."""
