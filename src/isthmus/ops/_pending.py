"""Temporary: stands in for the kernel language and `jit` until those packages are in place."""

from __future__ import annotations

import sys
from types import ModuleType

import isthmus.language as tl

try:
    import isthmus.jit.decorator  # noqa: F401
except ImportError:
    stub = ModuleType("isthmus.jit.decorator")
    stub.jit = lambda function: function  # type: ignore[attr-defined]
    sys.modules["isthmus.jit.decorator"] = stub
if not hasattr(tl, "constexpr"):
    tl.constexpr = type("constexpr", (), {"__init__": lambda self, value: None})  # type: ignore[attr-defined]
