"""The states of a program: parameters, optimizer state and buffers, shared by its graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isthmus.core.errors import DTypeError, ProgramError, ShapeError
from isthmus.ir.numpy_types import numpy_dtype
from isthmus.ops.standard import TensorSpec

__all__ = ["States"]


class States:
    """State buffers by name on one device, made when a graph first asks for them.

    `states[name]` is the content as a NumPy array over the buffer, without a copy.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._specs: dict[str, TensorSpec] = {}
        self._buffers: dict[str, Any] = {}

    def buffer(self, name: str, spec: TensorSpec) -> Any:
        """The buffer of a state. Raises ProgramError where another graph gave another spec."""
        known = self._specs.setdefault(name, spec)
        if known != spec:
            raise ProgramError(f"state {name!r} is {known} in one graph and {spec} in another")
        if name not in self._buffers:
            self._buffers[name] = self.device.allocate(max(spec.size_bytes, 1))
        return self._buffers[name]

    def __contains__(self, name: str) -> bool:
        return name in self._specs

    def __iter__(self) -> Any:
        return iter(self._specs)

    def spec(self, name: str) -> TensorSpec:
        return self._specs[name]

    def __getitem__(self, name: str) -> np.ndarray:
        spec = self._specs[name]
        return self._buffers[name].view(numpy_dtype(spec.dtype), spec.shape)

    @property
    def size_bytes(self) -> int:
        return sum(spec.size_bytes for spec in self._specs.values())

    def state_dict(self) -> dict[str, np.ndarray]:
        """All states as arrays over their buffers."""
        return {name: self[name] for name in self._specs}

    def load_state_dict(self, content: Mapping[str, np.ndarray]) -> None:
        """Overwrite all states. Raises ProgramError, ShapeError or DTypeError and changes nothing
        where a state is missing, unknown or of another shape or dtype."""
        missing = [name for name in self._specs if name not in content]
        unknown = [name for name in content if name not in self._specs]
        if missing or unknown:
            what = f"has no {missing[0]!r}" if missing else f"holds {unknown[0]!r}, unknown here"
            raise ProgramError(
                f"the given state {what}",
                hint=f"this program has {len(self._specs)} states; the given state "
                f"{len(content)}: load the state of the same program",
            )
        for name, array in content.items():
            check_array(f"state {name!r}", array, self._specs[name])
        for name, array in content.items():
            np.copyto(self[name], array)


def check_array(what: str, array: Any, spec: TensorSpec) -> None:
    """Raise ShapeError or DTypeError where an array is not what `spec` says."""
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"{what} is a {type(array).__name__}; expected a NumPy array {spec}",
        )
    if array.shape != spec.shape:
        raise ShapeError(
            f"{what} has shape {list(array.shape)}; expected {list(spec.shape)}",
            hint="programs have fixed shapes: capture again with an example of this shape",
        )
    if array.dtype != numpy_dtype(spec.dtype):
        raise DTypeError(
            f"{what} is {array.dtype}; expected {numpy_dtype(spec.dtype)}",
            hint=f"convert it with array.astype({str(numpy_dtype(spec.dtype))!r})",
        )
