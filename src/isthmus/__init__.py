"""Isthmus: a training toolchain that decouples AI software from hardware."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from isthmus.jit.autotune import Config, autotune, heuristics
from isthmus.jit.decorator import cdiv, jit, next_power_of_2

if TYPE_CHECKING:
    from isthmus.program.capture import capture, record_initialisers
    from isthmus.program.file import load_program
    from isthmus.program.program import Program
    from isthmus.program.session import Session

__version__ = "0.1.0"
__all__ = [
    "Config", "Program", "Session", "autotune", "capture", "cdiv", "heuristics", "jit",
    "load_program", "next_power_of_2", "record_initialisers",
]  # fmt: skip

#: Names that need more than the core: loaded when first used.
_LATER = {
    "capture": "isthmus.program.capture",
    "record_initialisers": "isthmus.program.capture",
    "Program": "isthmus.program.program",
    "load_program": "isthmus.program.file",
    "Session": "isthmus.program.session",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'isthmus' has no attribute {name!r}")
