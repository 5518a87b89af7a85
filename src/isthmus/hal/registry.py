"""Devices by name. Drivers of other packages register under the entry point `isthmus.drivers`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from isthmus.core.errors import DeviceError
from isthmus.core.target import TargetDescription
from isthmus.hal.drivers.cpu.device import CpuDevice
from isthmus.hal.drivers.null.device import NullDevice

__all__ = ["driver_names", "open_device"]

_BUILT_IN: dict[str, Callable[..., Any]] = {"cpu": CpuDevice, "null": NullDevice}


def _drivers() -> dict[str, Callable[[], Callable[..., Any]]]:
    found: dict[str, Callable[[], Callable[..., Any]]] = {
        name: (lambda driver=driver: driver) for name, driver in _BUILT_IN.items()
    }
    for point in entry_points(group="isthmus.drivers"):
        found.setdefault(point.name, point.load)
    return found


def driver_names() -> list[str]:
    """The devices that can be opened."""
    return sorted(_drivers())


def open_device(name: str, target: TargetDescription, **settings: Any) -> Any:
    """The device called `name`, described to the compiler by `target`.

    Raises: DeviceError naming the drivers that there are.
    """
    drivers = _drivers()
    if name not in drivers:
        raise DeviceError(
            f"there is no device {name!r}; there are {', '.join(sorted(drivers))}",
            hint="a driver package registers under the entry point isthmus.drivers",
        )
    return drivers[name]()(target, **settings)
