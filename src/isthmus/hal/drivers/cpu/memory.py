"""Host memory as buffers."""

from __future__ import annotations

import mmap

import numpy as np

from isthmus.core.errors import DeviceError

__all__ = ["HostBuffer"]

_ALIGNMENT = 64
_HUGE_PAGE = 2 << 20


class HostBuffer:
    """Zeroed host memory, aligned to 64 bytes; large ones start at a huge page.

    `address` is where it lies; `view` gives it as a NumPy array without a copy.
    """

    __slots__ = ("_bytes", "_owner", "address", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        if size_bytes < 0:
            raise DeviceError(f"cannot allocate {size_bytes} bytes")
        self.size_bytes = size_bytes
        try:
            if size_bytes >= 4 * _HUGE_PAGE:
                self._owner: object = mmap.mmap(-1, size_bytes + _HUGE_PAGE)
                if hasattr(mmap, "MADV_HUGEPAGE"):
                    self._owner.madvise(mmap.MADV_HUGEPAGE)  # type: ignore[attr-defined]
                raw = np.frombuffer(self._owner, dtype=np.uint8)  # type: ignore[arg-type]
                alignment = _HUGE_PAGE
            else:
                raw = np.zeros(size_bytes + _ALIGNMENT, dtype=np.uint8)
                self._owner = raw
                alignment = _ALIGNMENT
        except (OSError, MemoryError, ValueError) as error:
            raise DeviceError(
                f"cannot allocate {size_bytes} bytes of host memory: {error}",
                hint="use a smaller batch, or a machine with more memory",
            ) from error
        start = -raw.ctypes.data % alignment
        self._bytes = raw[start : start + size_bytes]
        self.address: int = raw.ctypes.data + start

    @classmethod
    def wrap(cls, array: np.ndarray) -> HostBuffer:
        """Existing memory of a contiguous array, kept alive by the buffer."""
        if not array.flags.c_contiguous:
            raise DeviceError("only contiguous arrays can be wrapped as a buffer")
        self = cls.__new__(cls)
        self.size_bytes = array.nbytes
        self._owner = array
        self._bytes = array.reshape(-1).view(np.uint8)
        self.address = array.ctypes.data
        return self

    def view(self, dtype: np.dtype, shape: tuple[int, ...], offset_bytes: int = 0) -> np.ndarray:
        """A NumPy array over part of the buffer.

        Raises: DeviceError when it reaches past the end.
        """
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if offset_bytes < 0 or offset_bytes + size > self.size_bytes:
            raise DeviceError(
                f"bytes {offset_bytes} to {offset_bytes + size} reach past a buffer "
                f"of {self.size_bytes} bytes"
            )
        part = self._bytes[offset_bytes : offset_bytes + size]
        return part.view(dtype).reshape(shape)

    def read(self, offset_bytes: int, size_bytes: int) -> bytes:
        return self.view(np.dtype(np.uint8), (size_bytes,), offset_bytes).tobytes()

    def write(self, offset_bytes: int, content: bytes) -> None:
        target = self.view(np.dtype(np.uint8), (len(content),), offset_bytes)
        target[:] = np.frombuffer(content, dtype=np.uint8)
