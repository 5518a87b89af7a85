"""The targets by name."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import lru_cache

from isthmus.core.errors import ConfigError, DeviceError
from isthmus.core.target import TargetDescription
from isthmus.targets import x86_64

__all__ = ["TARGETS", "host_target", "target_named"]

#: Name -> what makes a description of one of its feature levels.
TARGETS: dict[str, Callable[..., TargetDescription]] = {"x86_64": x86_64.describe}

_HOSTS: dict[str, Callable[[], TargetDescription]] = {
    "x86_64": x86_64.describe_host,
    "AMD64": x86_64.describe_host,
}


@lru_cache(maxsize=1)
def host_target() -> TargetDescription:
    """The machine that this process runs on. Raises DeviceError where there is no target for it."""
    machine = platform.machine()
    if machine not in _HOSTS:
        raise DeviceError(
            f"there is no target for {machine} processors; there is one for: {', '.join(TARGETS)}"
        )
    return _HOSTS[machine]()


def target_named(name: str, **options: str) -> TargetDescription:
    """A description by name ("host", "x86_64"), with options such as `level="avx2"`."""
    if name == "host" or (name in TARGETS and not options):
        return host_target() if name == "host" else TARGETS[name]()
    if name not in TARGETS:
        raise ConfigError(f"unknown target {name!r}; known targets: host, {', '.join(TARGETS)}")
    return TARGETS[name](**options)
