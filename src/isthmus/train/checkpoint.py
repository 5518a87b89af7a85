"""Checkpoints: one safetensors file that holds all state, published by rename.

The header's metadata carries the run as JSON: step, sampler position, RNG seed, configuration,
program and corpus digests. A checkpoint is complete or it is not there: it is written beside its
final name, flushed to disk, and renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from isthmus.core.errors import CheckpointError

__all__ = ["FORMAT_VERSION", "Checkpoint", "load_checkpoint", "save_checkpoint"]

FORMAT_VERSION = 1
_KEY = "isthmus"


@dataclass(slots=True)
class Checkpoint:
    """What a checkpoint file holds: `run` is plain JSON data, `state` arrays by name."""

    run: dict[str, Any]
    state: dict[str, np.ndarray]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write `path` so that a reader sees the old file or the whole new one.

    Raises: CheckpointError when the disk is full or the folder is not writable; the old file
        and the folder are then as they were.
    """
    header = {_KEY: json.dumps({"version": FORMAT_VERSION, **checkpoint.run})}
    state = {name: np.asarray(array, order="C") for name, array in checkpoint.state.items()}
    content = save(state, metadata=header)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise CheckpointError(
            f"cannot save checkpoint {path}: {error.strerror}",
            hint="the previous checkpoint is intact; make room or choose another --out",
        ) from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises: CheckpointError when the file is missing, truncated, of another kind, or newer.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            run = json.loads(metadata.get(_KEY, "null"))
            if not isinstance(run, dict):
                raise CheckpointError(f"{path} is a safetensors file, but not a checkpoint of ours")
            if run.get("version") != FORMAT_VERSION:
                raise CheckpointError(
                    f"{path} has checkpoint format {run.get('version')}; "
                    f"this version reads format {FORMAT_VERSION}",
                    hint="use the version of Isthmus that wrote it, or a newer one",
                )
            names = list(file.keys())
            state = {name: file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise CheckpointError(f"no such checkpoint: {path}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error.strerror}") from error
    except (SafetensorError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path} is not a whole checkpoint: {error}",
            hint="it is truncated or damaged; resume from an earlier one",
        ) from error
    return Checkpoint(run, state)
