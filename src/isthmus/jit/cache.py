"""Compiled kernels on disk: one file an entry, published by rename, checked when read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from functools import lru_cache
from pathlib import Path

import llvmlite

from isthmus.core.config import config
from isthmus.hal.device import EntryPoint
from isthmus.jit.statistics import statistics

__all__ = ["load_entry", "package_digest", "store_entry"]

_MAGIC = b"isthmus kernel 1\n"


@lru_cache(maxsize=1)
def package_digest() -> str:
    """A digest of what decides the code of a kernel: the compiler's own source and LLVM's version."""
    digest = hashlib.sha256(f"llvmlite {llvmlite.__version__}".encode())
    root = Path(__file__).resolve().parents[1]
    for package in ("core", "ir", "language", "passes", "lowering", "targets", "jit"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _path(key: str) -> Path:
    return config().cache_dir / "kernels" / key[:2] / f"{key}.bin"


def load_entry(key: str) -> tuple[bytes, EntryPoint] | None:
    """The object and entry point stored under `key`; None when there is none or it is damaged."""
    path = _path(key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    header_end = content.find(b"\n", len(_MAGIC))
    body = content[header_end + 1 :]
    try:
        if not content.startswith(_MAGIC) or header_end < 0:
            raise ValueError("not an entry")
        header = json.loads(content[len(_MAGIC) : header_end])
        if hashlib.sha256(body).hexdigest() != header["digest"]:
            raise ValueError("the code is damaged")
        entry = EntryPoint(header["name"], tuple(header["parameters"]), header["scratch_bytes"])
    except (ValueError, KeyError, TypeError):
        statistics.count("corrupt_entries")
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return body, entry


def store_entry(key: str, code: bytes, entry: EntryPoint) -> None:
    """Store an object under `key`. A cache that cannot be written is no error."""
    header = {
        "name": entry.name,
        "parameters": entry.parameters,
        "scratch_bytes": entry.scratch_bytes,
        "digest": hashlib.sha256(code).hexdigest(),
    }
    content = _MAGIC + json.dumps(header).encode() + b"\n" + code
    path = _path(key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(partial).replace(path)
        except OSError:
            Path(partial).unlink(missing_ok=True)
