"""How a model was initialised, so that a program can start without stored weights."""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus.core.errors import CaptureError
from isthmus.program.capture.convert import op_name, to_array, uniform_value

__all__ = ["initialiser_of", "record_initialisers"]


@dataclass(frozen=True, slots=True)
class _Record:
    """How a tensor was filled, with what tells whether it is still that tensor and content."""

    storage: StorageWeakRef
    digest: int
    initialiser: dict[str, Any]


_records: dict[int, _Record] = {}


def _digest(tensor: torch.Tensor) -> int:
    return zlib.crc32(to_array(tensor).tobytes())


class _Recorder(TorchDispatchMode):
    """Notes in-place random fills, and forgets tensors that are changed in another way."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = op_name(func)
        made: dict[str, Any] | None = None
        given = [*args[1:], *(kwargs or {}).values()]
        numbers = [n for n in given if isinstance(n, (int, float)) and not isinstance(n, bool)]
        if name == "normal_":
            mean, std = (*numbers, 0.0, 1.0)[:2] if len(numbers) != 1 else (numbers[0], 1.0)
            made = {"kind": "normal", "mean": float(mean), "std": float(std)}
        elif name == "uniform_":
            low, high = (*numbers, 0.0, 1.0)[:2] if len(numbers) != 1 else (numbers[0], 1.0)
            made = {"kind": "uniform", "low": float(low), "high": float(high)}
        if args and isinstance(args[0], torch.Tensor) and name.split(".")[0].endswith("_"):
            storage = args[0].untyped_storage()
            whole = args[0].numel() * args[0].element_size() == storage.nbytes()
            if made is not None and whole and args[0].device.type == "cpu":
                reference = StorageWeakRef(storage)
                _records[storage.data_ptr()] = _Record(reference, _digest(args[0]), made)
            else:
                _records.pop(storage.data_ptr(), None)
        return result


@contextmanager
def record_initialisers() -> Iterator[None]:
    """Note how parameters made inside this block are initialised.

    with isthmus.record_initialisers():
        model = MyModel()

    `isthmus.capture` then writes distributions into the program instead of stored weights, for
    the parameters that still hold what they were filled with.
    """
    with _Recorder():
        yield


def initialiser_of(
    name: str, tensor: torch.Tensor, given: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The initialiser of one parameter: as given, as recorded, a constant, or "stored".

    given: patterns of parameter names (shell style) -> initialiser.
    Raises: CaptureError for an initialiser of unknown kind.
    """
    for pattern, entry in given.items():
        if fnmatch.fnmatchcase(name, pattern):
            kinds = ("zeros", "ones", "constant", "normal", "uniform", "stored")
            if entry.get("kind") not in kinds:
                raise CaptureError(
                    f"unknown initialiser {entry!r} for {name}",
                    hint=f"kinds are {', '.join(kinds)}",
                )
            return dict(entry)
    value = uniform_value(tensor)
    if value is not None:
        if value in (0.0, 1.0):
            return {"kind": "zeros" if value == 0.0 else "ones"}
        return {"kind": "constant", "value": value}
    record = _records.get(tensor.untyped_storage().data_ptr())
    if record is None or record.storage.expired() or record.digest != _digest(tensor):
        return {"kind": "stored"}
    return dict(record.initialiser)
