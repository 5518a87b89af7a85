"""Arguments of a launch: what they are, where they lie, their class for specialisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from isthmus.core.errors import DeviceError
from isthmus.hal.device import BufferRef
from isthmus.language.source import constant_text
from isthmus.language.values import constexpr, unwrap

__all__ = ["classify", "constant_key", "memory_range", "type_name"]

_NUMPY_NAMES: dict[np.dtype, str] = {
    np.dtype(kind): name
    for kind, name in (
        (np.bool_, "i1"), (np.int8, "i8"), (np.int16, "i16"), (np.int32, "i32"),
        (np.int64, "i64"), (np.uint8, "u8"), (np.uint16, "u16"), (np.uint32, "u32"),
        (np.uint64, "u64"), (np.float16, "f16"), (np.float32, "f32"), (np.float64, "f64"),
    )
}  # fmt: skip
#: Dtypes of ml_dtypes by name, so that it is not imported here: that takes half a second.
_EXTENSION_NAMES = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}
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
        name = _NUMPY_NAMES.get(array.dtype) or _EXTENSION_NAMES.get(array.dtype.name)
        if name is None:
            raise DeviceError(
                f"a kernel cannot take an array of {array.dtype}",
                hint=f"dtypes are {', '.join([*map(str, _NUMPY_NAMES), *_EXTENSION_NAMES])}",
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


def constant_key(value: Any) -> Any:
    """What tells compile-time values apart: kernels by their source, numbers by type and value.

    Raises: DeviceError for values that cannot be compared once and for all.
    """
    value = unwrap(value)
    text = constant_text(value)
    if text is not None:
        return text
    try:
        hash(value)
    except TypeError:
        raise DeviceError(
            f"{value!r} cannot be a compile-time value: {type(value).__name__} can change",
            hint="pass a number, string, dtype, kernel, or a tuple of these",
        ) from None
    return type(value), value


def classify(value: Any, specialize: bool) -> tuple[Any, ...]:
    """The class of a run-time argument: values of one class share compiled code.

    ("i32", divisible by 16), ("=1",), ("f32",), ("*f32", aligned to 16 bytes), ("none",),
    ("constant", key) and so on.
    Raises: DeviceError for what a kernel cannot take.
    """
    kind = type(value)
    if kind is int:
        if specialize and value == 1:
            return ("=1",)
        divisible = specialize and value % 16 == 0
        if -(2**31) <= value < 2**31:
            return ("i32", divisible)
        if not -(2**63) <= value < 2**64:
            raise DeviceError(f"{value} does not fit 64 bits")
        return ("i64" if value < 2**63 else "u64", divisible)
    if kind is float:
        return ("f32",)
    if kind is bool:
        return ("i1",)
    if value is None:
        return ("none",)
    if isinstance(value, BufferRef):
        raise DeviceError("a buffer reference has no dtype; pass an array")
    if isinstance(value, constexpr):
        return ("constant", constant_key(value))
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
    if constant_text(value) is not None:
        return ("constant", constant_key(value))
    raise DeviceError(
        f"a kernel cannot take {kind.__name__} {value!r}",
        hint="pass NumPy arrays, PyTorch CPU tensors, numbers, or constexpr values",
    )
