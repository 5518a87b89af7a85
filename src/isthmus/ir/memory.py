"""The interpreter's memory: NumPy arrays behind made-up addresses, every access checked.

Array number k starts at address (k + 1) * 2**41 + 2**40, so that an address tells which array
it belongs to, how far it lies outside, and is divisible by 16 like real ones. Pointers are then
plain int64 values, and every operation that moves values moves pointers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.core.errors import ShapeError
from isthmus.ir.numpy_types import numpy_dtype
from isthmus.ir.types import I1, I8, ScalarType

__all__ = ["BadAccess", "Memory"]

_SLOT_BITS = 41
_MIDDLE = 1 << (_SLOT_BITS - 1)


class BadAccess(Exception):  # noqa: N818  (turned into a KernelError where it happens)
    """An access outside all arrays; the message says where."""


class Memory:
    """Arrays by made-up address. Each must be contiguous; writes change it in place."""

    def __init__(self) -> None:
        self._bytes: list[np.ndarray] = []
        self._names: list[str] = []

    def add(self, array: np.ndarray, name: str) -> int:
        """The address of the array's first element.

        Raises: ShapeError for an array that is not contiguous.
        """
        if not array.flags.c_contiguous:
            raise ShapeError(
                f"argument {name} has shape {array.shape} and strides {array.strides}: the "
                "interpreter takes contiguous arrays",
                hint="pass the array that owns the memory, or a copy",
            )
        self._bytes.append(array.reshape(-1).view(np.uint8))
        self._names.append(name)
        return (len(self._bytes) << _SLOT_BITS) + _MIDDLE

    def read(self, addresses: np.ndarray, element: ScalarType) -> np.ndarray:
        """One value per address, which may have any shape. Raises BadAccess."""
        result = np.zeros(addresses.shape, numpy_dtype(_stored(element)))
        for number in self._arrays(addresses, element):
            lanes, positions = self._positions(addresses, number, element)
            result[lanes] = self._view(number, element)[positions]
        return result != 0 if element is I1 else result

    def write(self, addresses: np.ndarray, values: np.ndarray, element: ScalarType) -> None:
        """One value per address, in row-major order: the last of several writes stays."""
        values = values.astype(numpy_dtype(_stored(element)))
        for number in self._arrays(addresses, element):
            lanes, positions = self._positions(addresses, number, element)
            self._view(number, element)[positions] = values[lanes]

    def _arrays(self, addresses: np.ndarray, element: ScalarType) -> Sequence[int]:
        """The numbers of all arrays accessed, once every address has been checked."""
        numbers = (addresses >> _SLOT_BITS) - 1
        for number in np.unique(numbers):
            if not 0 <= number < len(self._bytes):
                place = int(addresses[numbers == number].flat[0])
                raise BadAccess(f"address {place:#x} belongs to no argument")
            offsets = self._offsets(addresses[numbers == number], int(number))
            size = element.size_bytes
            count = self._bytes[number].size // size
            bad = (offsets < 0) | (offsets >= count * size) | (offsets % size != 0)
            if bad.any():
                offset = int(offsets[bad].flat[0])
                where = f"element {offset // size}" if offset % size == 0 else f"byte {offset}"
                raise BadAccess(f"{where} of {self._names[number]}, which has {count} elements")
        return [int(number) for number in np.unique(numbers)]

    def _offsets(self, addresses: np.ndarray, number: int) -> np.ndarray:
        return addresses - ((number + 1) << _SLOT_BITS) - _MIDDLE

    def _positions(
        self, addresses: np.ndarray, number: int, element: ScalarType
    ) -> tuple[np.ndarray, np.ndarray]:
        """(which lanes access array `number`, the elements they access)."""
        lanes = (addresses >> _SLOT_BITS) - 1 == number
        return lanes, self._offsets(addresses[lanes], number) // element.size_bytes

    def _view(self, number: int, element: ScalarType) -> np.ndarray:
        data = self._bytes[number]
        whole = data.size // element.size_bytes * element.size_bytes
        return data[:whole].view(numpy_dtype(_stored(element)))


def _stored(element: ScalarType) -> ScalarType:
    return I8 if element is I1 else element
