"""Temporary: stands in for `jit` until that package is in place."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from isthmus.language.source import KernelSource

try:
    import isthmus.jit.decorator  # noqa: F401
except ImportError:

    class _Kernel:
        def __init__(self, function: Any) -> None:
            self.source = KernelSource(function)
            self.__name__ = function.__name__

    stub = ModuleType("isthmus.jit.decorator")
    stub.jit = _Kernel  # type: ignore[attr-defined]
    sys.modules["isthmus.jit.decorator"] = stub
