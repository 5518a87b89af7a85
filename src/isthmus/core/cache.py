"""Files that can be made again: one entry a file, published by rename, checked when read.

Safe with many processes: a reader sees a whole entry or none, and a damaged one counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from isthmus.core.config import config

__all__ = ["load_entry", "store_entry"]

_MAGIC = b"isthmus cache 1\n"


def _path(kind: str, key: str) -> Path:
    return config().cache_dir / kind / key[:2] / f"{key}.bin"


def load_entry(
    kind: str, key: str, on_damage: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], bytes] | None:
    """Header and content stored under `key`; None when there is none or it is damaged.

    A damaged entry is removed, after `on_damage` was called.
    """
    path = _path(kind, key)
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    header_end = stored.find(b"\n", len(_MAGIC))
    content = stored[header_end + 1 :]
    try:
        if not stored.startswith(_MAGIC) or header_end < 0:
            raise ValueError("not an entry")
        header = json.loads(stored[len(_MAGIC) : header_end])
        if hashlib.sha256(content).hexdigest() != header.pop("digest"):
            raise ValueError("the content is damaged")
    except (ValueError, KeyError, TypeError, AttributeError):
        on_damage()
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return header, content


def store_entry(kind: str, key: str, header: Mapping[str, Any], content: bytes) -> None:
    """Store an entry under `key`. A cache that cannot be written is no error."""
    full = {**header, "digest": hashlib.sha256(content).hexdigest()}
    stored = _MAGIC + json.dumps(full).encode() + b"\n" + content
    path = _path(kind, key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(stored)
            Path(partial).replace(path)
        except OSError:
            Path(partial).unlink(missing_ok=True)
