"""Arguments of a launch: what they are, their class for specialisation, their slot value."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.core.errors import DeviceError
from isthmus.hal.device import BufferRef

__all__ = ["classify", "memory_range", "type_name"]

_NUMPY_NAMES: dict[np.dtype, str] = {
    np.dtype(kind): name
    for kind, name in (
        (np.bool_, "i1"), (np.int8, "i8"), (np.int16, "i16"), (np.int32, "i32"),
        (np.int64, "i64"), (np.uint8, "u8"), (np.uint16, "u16"), (np.uint32, "u32"),
        (np.uint64, "u64"), (np.float16, "f16"), (np.float32, "f32"), (np.float64, "f64"),
        (ml_dtypes.bfloat16, "bf16"), (ml_dtypes.float8_e4m3fn, "f8e4m3"),
        (ml_dtypes.float8_e5m2, "f8e5m2"),
    )
}  # fmt: skip
#: PyTorch dtypes by their text, so that PyTorch is never imported here.
_TORCH_NAMES = {
    "torch.bool": "i1", "torch.int8": "i8", "torch.int16": "i16", "torch.int32": "i32",
    "torch.int64": "i64", "torch.uint8": "u8", "torch.float16": "f16", "torch.float32": "f32",
    "torch.float64": "f64", "torch.bfloat16": "bf16", "torch.float8_e4m3fn": "f8e4m3",
    "torch.float8_e5m2": "f8e5m2",
}  # fmt: skip
_torch_dtypes: dict[Any, str] = {}


def type_name(array: Any) -> str | None:
    """The element type of an array or CPU tensor in signature spelling; None for anything else.

    Raises: DeviceError for tensors on other devices and dtypes that kernels do not know.
    """
    if isinstance(array, np.ndarray):
        name = _NUMPY_NAMES.get(array.dtype)
        if name is None:
            raise DeviceError(
                f"a kernel cannot take an array of {array.dtype}",
                hint=f"dtypes are {', '.join(str(d) for d in _NUMPY_NAMES)}",
            )
        return name
    if hasattr(array, "data_ptr") and hasattr(array, "dtype"):
        name = _torch_dtypes.get(array.dtype)
        if name is None:
            name = _TORCH_NAMES.get(str(array.dtype))
            if name is None:
                raise DeviceError(f"a kernel cannot take a tensor of {array.dtype}")
            _torch_dtypes[array.dtype] = name
        device = getattr(array, "device", None)
        if device is not None and device.type != "cpu":
            raise DeviceError(
                f"a tensor on {device} was given to a kernel on the CPU",
                hint="move it with tensor.cpu()",
            )
        return name
    return None


def memory_range(array: Any) -> tuple[int, int]:
    """(first address, address behind the last byte) that an array's elements lie in."""
    if isinstance(array, np.ndarray):
        start = array.ctypes.data
        if array.flags.c_contiguous:
            return start, start + array.nbytes
        low = high = start
        for size, stride in zip(array.shape, array.strides, strict=True):
            if size == 0:
                return start, start
            if stride < 0:
                low += (size - 1) * stride
            else:
                high += (size - 1) * stride
        return low, high + array.itemsize
    start, item = array.data_ptr(), array.element_size()
    last = sum(
        (size - 1) * stride for size, stride in zip(array.shape, array.stride(), strict=True)
    )
    return start, start + (last + 1) * item if array.numel() else start


def classify(value: Any, specialize: bool) -> tuple[Any, ...]:
    """The class of a run-time argument: values of one class share compiled code."""
    kind = type(value)
    if kind is int:
        if specialize:
            if value == 1:
                return ("=1",)
            aligned = value % 16 == 0
        else:
            aligned = False
        if -(2**31) <= value < 2**31:
            return ("i32", aligned)
        if value < 2**63:
            return ("i64", aligned)
        return ("u64", aligned)
    if kind is float:
        return ("f32",)
    if kind is bool:
        return ("i1",)
    if value is None:
        return ("none",)
    if isinstance(value, BufferRef):
        raise DeviceError("a buffer reference has no dtype; pass an array")
    name = type_name(value)
    if name is not None:
        address = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
        return ("*" + name, address % 16 == 0)
    if isinstance(value, np.integer):
        return classify(int(value), specialize)
    if isinstance(value, np.floating):
        return ("f64",) if isinstance(value, np.float64) else ("f32",)
    if isinstance(value, np.bool_):
        return ("i1",)
    raise DeviceError(
        f"a kernel cannot take {kind.__name__} {value!r}",
        hint="pass NumPy arrays, PyTorch CPU tensors, numbers, or constexpr values",
    )


_F32 = struct.Struct("<f")
_F64 = struct.Struct("<d")


def slot_value(kind: str, value: Any) -> int:
    """The 64-bit slot of a number."""
    if kind == "f32":
        try:
            return int.from_bytes(_F32.pack(value), "little")
        except OverflowError:
            return int.from_bytes(_F32.pack(float("inf") if value > 0 else -float("inf")), "little")
    if kind == "f64":
        return int.from_bytes(_F64.pack(value), "little")
    return int(value) & 0xFFFFFFFFFFFFFFFF
