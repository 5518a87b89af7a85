"""Finding what a command line names: program files, the bundled program, kernels in files."""

from __future__ import annotations

import importlib.util
import sys
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from isthmus.core.errors import ConfigError
from isthmus.program.file import load_program
from isthmus.program.program import Program

__all__ = ["BUNDLED", "find_object", "find_program", "load_module"]

BUNDLED = "gpt"


def find_program(name: str | None) -> tuple[Program, str]:
    """The program of a file, or the bundled one ("gpt" or None), and the name that finds it again.

    Raises: ProgramError for a file that is missing or damaged.
    """
    if name is None or name == BUNDLED:
        with resources.as_file(resources.files("isthmus.program") / "bundled" / "gpt.json") as path:
            return load_program(path), BUNDLED
    path = Path(name)
    return load_program(path), str(path.resolve())


def load_module(path: Path) -> ModuleType:
    """Import a Python file by its path. Raises ConfigError when it is not there."""
    if not path.is_file():
        raise ConfigError(f"no such file: {path}", hint="give FILE.py:NAME")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file", hint="its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def find_object(reference: str) -> Any:
    """The object that "FILE.py:NAME" names. Raises ConfigError listing what the file has."""
    file, separator, name = reference.rpartition(":")
    if not separator or not name:
        raise ConfigError(f"{reference!r} names no object", hint="give FILE.py:NAME")
    module = load_module(Path(file))
    if not hasattr(module, name):
        names = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        raise ConfigError(
            f"{file} has no {name!r}; it has {', '.join(names) or 'nothing callable'}"
        )
    return getattr(module, name)
