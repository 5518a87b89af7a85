"""One JSON object per line and event, appended as it happens."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TextIO

from isthmus.core.errors import DataError

__all__ = ["MetricsWriter", "read_metrics"]


class MetricsWriter:
    """Appends events to `path`; `keep_steps` first drops later steps of an older run."""

    def __init__(self, path: Path, keep_steps: int | None = None) -> None:
        kept: list[dict[str, Any]] = []
        if keep_steps is not None and path.exists():
            kept = [event for event in read_metrics(path) if event.get("step", 0) <= keep_steps]
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text("".join(_line(event) for event in kept), encoding="utf-8")
        partial.replace(path)
        self._file: TextIO = path.open("a", encoding="utf-8", buffering=1)

    def write(self, event: str, **values: Any) -> None:
        self._file.write(_line({"event": event, **values}))

    def close(self) -> None:
        self._file.close()


def _line(event: dict[str, Any]) -> str:
    plain = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in event.items()
    }
    return json.dumps(plain) + "\n"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All events of a metrics file; a half-written last line is left out.

    Raises: DataError when the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"cannot read metrics {path}: {error.strerror}") from error
    events = []
    for position, line in enumerate(lines):
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError as error:
            if position == len(lines) - 1:
                break
            raise DataError(f"{path}:{position + 1}: not JSON: {error}") from error
    return events
