"""Reading program files: JSON text (see `program/encoding.py`) and stored weights.

Weights lie in NAME.safetensors beside NAME.json; the text holds their digest.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from isthmus.core.errors import ProgramError, UserError
from isthmus.program.encoding import FORMAT, FORMAT_VERSION, decode_graph
from isthmus.program.program import Program

__all__ = ["decode_program", "load_program"]


def decode_program(data: dict[str, Any]) -> Program:
    """The program of JSON data. Raises ProgramError."""
    if data.get("format") != FORMAT:
        raise ProgramError("this is not a program file")
    version = data.get("version")
    if version != FORMAT_VERSION:
        raise ProgramError(
            f"the program has format version {version}; this version reads {FORMAT_VERSION}",
            hint="use the version of Isthmus that wrote it, or a newer one",
        )
    graphs = {name: decode_graph(name, graph) for name, graph in data["graphs"].items()}
    return Program(data["name"], graphs, metadata=data.get("metadata", {}))


def load_program(path: Path | str) -> Program:
    """Read a program file. Needs no PyTorch.

    Raises: ProgramError when the file is missing, truncated, newer, or names unknown operators.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProgramError(f"cannot read program {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProgramError(f"{path} is not a program: it is not text") from error
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ProgramError("this is not a program file")
        program = decode_program(data)
        if "weights" in data:
            program.weights = _load_weights(path, data["weights"])
    except json.JSONDecodeError as error:
        raise ProgramError(
            f"{path}:{error.lineno}: the program is truncated or damaged: {error.msg}"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise ProgramError(f"{path} is damaged: {error!r}") from error
    except UserError as error:
        raise ProgramError(f"{path}: {error.message}", hint=error.hint) from error
    return program


def _load_weights(path: Path, entry: dict[str, str]) -> dict[str, np.ndarray]:
    file = path.with_name(entry["file"])
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ProgramError(
            f"cannot read its weights {file}: {error.strerror}",
            hint="keep the .safetensors file beside the .json file",
        ) from error
    if hashlib.sha256(content).hexdigest() != entry["digest"]:
        raise ProgramError(f"its weights {file} are damaged, or belong to another program")
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise ProgramError(f"its weights {file} are damaged: {error}") from error
