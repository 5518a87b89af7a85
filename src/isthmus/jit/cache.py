"""Compiled kernels on disk, under a key that covers everything that decides their code."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import llvmlite

from isthmus.core import cache
from isthmus.hal.device import EntryPoint
from isthmus.jit.statistics import statistics

__all__ = ["load_kernel", "package_digest", "store_kernel"]

_KIND = "kernels"


@lru_cache(maxsize=1)
def package_digest() -> str:
    """A digest of what decides a kernel's code: the compiler's own source and LLVM's version."""
    digest = hashlib.sha256(f"llvmlite {llvmlite.__version__}".encode())
    root = Path(__file__).resolve().parents[1]
    for package in ("core", "ir", "language", "passes", "lowering", "targets", "jit"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def load_kernel(key: str) -> tuple[bytes, EntryPoint] | None:
    """The object and entry point stored under `key`; None when there is none or it is damaged."""
    found = cache.load_entry(_KIND, key, lambda: statistics.count("corrupt_entries"))
    if found is None:
        return None
    header, code = found
    try:
        entry = EntryPoint(header["name"], tuple(header["parameters"]), header["scratch_bytes"])
    except (KeyError, TypeError):
        statistics.count("corrupt_entries")
        return None
    return code, entry


def store_kernel(key: str, code: bytes, entry: EntryPoint) -> None:
    """Store an object and its entry point under `key`, where the cache can be written."""
    header = {
        "name": entry.name, "parameters": entry.parameters, "scratch_bytes": entry.scratch_bytes,
    }  # fmt: skip
    cache.store_entry(_KIND, key, header, code)
