"""Settings, read from the environment in this one place.

ISTHMUS_NUM_THREADS   threads per launch (default: the cores this process may use)
ISTHMUS_CACHE_DIR     where compiled kernels are kept (default: ~/.cache/isthmus)
ISTHMUS_STRICT        1: a fallback is an error instead of a counted report
ISTHMUS_TRACEBACK     1: the command line shows tracebacks for user errors
ISTHMUS_THREAD_POOL   auto, libgomp or own: what parallel launches go through
ISTHMUS_VERIFY        1: the IR is checked before and after every pass
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from isthmus.core.errors import ConfigError

__all__ = ["Config", "available_cores", "config"]


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force, read from the environment when `config()` is called."""

    num_threads: int
    cache_dir: Path
    strict: bool
    show_traceback: bool
    thread_pool: str
    verify: bool


def available_cores() -> int:
    """Cores this process may use: CPU affinity and the cgroup quota, whichever is smaller."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _cgroup_cores()
    return max(1, min(cores, quota) if quota else cores)


def _cgroup_cores() -> int | None:
    """Whole cores of the cgroup v2 or v1 CPU quota; None without a quota."""
    root = Path("/sys/fs/cgroup")
    try:
        quota, period = (root / "cpu.max").read_text().split()
        if quota == "max":
            return None
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # not cgroup v2: look for the v1 files
    try:
        quota_us = int((root / "cpu/cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return max(1, math.ceil(quota_us / period_us)) if quota_us > 0 else None


def _flag(name: str) -> bool:
    text = os.environ.get(name, "0")
    if text not in ("0", "1", ""):
        raise ConfigError(f"{name} is {text!r}; it must be 0 or 1")
    return text == "1"


def config() -> Config:
    """Read the settings. Raises ConfigError naming the variable and what it allows."""
    threads_text = os.environ.get("ISTHMUS_NUM_THREADS", "")
    if threads_text and not (threads_text.isdigit() and int(threads_text) > 0):
        raise ConfigError(
            f"ISTHMUS_NUM_THREADS is {threads_text!r}; it must be a whole number above 0"
        )
    pool = os.environ.get("ISTHMUS_THREAD_POOL", "auto")
    if pool not in ("auto", "libgomp", "own"):
        raise ConfigError(f"ISTHMUS_THREAD_POOL is {pool!r}; it must be auto, libgomp or own")
    default_cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "isthmus"
    return Config(
        num_threads=int(threads_text) if threads_text else available_cores(),
        cache_dir=Path(os.environ.get("ISTHMUS_CACHE_DIR") or default_cache).expanduser(),
        strict=_flag("ISTHMUS_STRICT"),
        show_traceback=_flag("ISTHMUS_TRACEBACK"),
        thread_pool=pool,
        verify=_flag("ISTHMUS_VERIFY"),
    )
