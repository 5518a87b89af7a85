"""Small programs that several tests train: captured once per test process."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from isthmus.program.program import Program

__all__ = ["example_module", "tiny_gpt"]

ROOT = Path(__file__).resolve().parents[2]


@lru_cache(maxsize=8)
def example_module(name: str) -> ModuleType:
    """examples/NAME.py as a module."""
    path = ROOT / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=4)
def tiny_gpt(dropout: float = 0.0) -> Program:
    """A GPT of two layers, 32 wide, 32 long, batches of 4."""
    gpt = example_module("gpt")
    config = gpt.Config(layers=2, width=32, heads=2, length=32, batch=4, dropout=dropout)
    return gpt.capture(config)
