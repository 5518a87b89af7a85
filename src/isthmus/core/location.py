"""Where something stands in a source file, and how to show it."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

__all__ = ["Location"]


@dataclass(frozen=True, slots=True)
class Location:
    """A span on one source line; `line` and `column` count from 1, `end_column` is exclusive."""

    file: str
    line: int
    column: int = 1
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def excerpt(self) -> list[str]:
        """The source line and a caret span below it; empty when the file cannot be read."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return []
        width = max(1, self.end_column - self.column)
        return [f"  {text}", "  " + " " * (self.column - 1) + "^" * width]
