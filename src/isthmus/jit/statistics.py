"""Counters of the compiler: what was compiled, why, and what came from a cache."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Statistics", "statistics"]


@dataclass(slots=True)
class Statistics:
    """compiles: kernels compiled; reasons: why each specialisation was needed, counted."""

    compiles: int = 0
    memory_hits: int = 0
    disk_hits: int = 0
    corrupt_entries: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, counter: str, reason: str | None = None) -> None:
        """Add one to a counter, and to a reason."""
        with self._lock:
            setattr(self, counter, getattr(self, counter) + 1)
            if reason is not None:
                self.reasons[reason] += 1


#: The counters of this process.
statistics = Statistics()
