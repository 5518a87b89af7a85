"""What the operator records share: shape and dtype rules, costs, tolerances, rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from isthmus.core.dtypes import DTYPES, DType, dtype_named
from isthmus.core.errors import DTypeError, ShapeError
from isthmus.ops.standard import Attrs, Cost, TensorSpec, Tolerance

__all__ = [
    "ACCUMULATE", "BOOL", "F32", "F64", "FLOATS", "I64", "Arrays", "Specs", "as_dtype",
    "broadcast_shapes", "cost_of", "integer_type", "normal_axes", "normal_axis",
    "real", "require_dtypes", "require_same_dtype", "require_shape", "round_to", "statistics_dtype",
    "tolerances",
]  # fmt: skip

Specs = Sequence[Any]  # TensorSpec, or None for an absent optional input
Arrays = Sequence[Any]  # numpy.ndarray, or None for an absent optional input

BOOL, F32, F64, I64 = (DTYPES[name] for name in ("bool", "f32", "f64", "i64"))
FLOATS = ("f16", "bf16", "f32", "f64")
#: Float dtype -> the dtype that sums and statistics are kept in.
ACCUMULATE: Mapping[str, DType] = {"f16": F32, "bf16": F32, "f32": F32, "f64": F64}


def as_dtype(value: Any) -> DType:
    """The dtype an attribute names, given as a DType or by name."""
    return value if isinstance(value, DType) else dtype_named(str(value))


def statistics_dtype(dtype: DType) -> DType:
    """What means, log-sum-exps and the like of `dtype` are kept in."""
    return ACCUMULATE.get(dtype.name, F32)


def require_dtypes(op: str, name: str, spec: TensorSpec, allowed: Sequence[str]) -> None:
    if spec.dtype.name not in allowed:
        raise DTypeError(
            f"{op}: {name} is {spec.dtype}; allowed: {', '.join(allowed)}",
            hint="cast it to an allowed dtype first",
        )


def require_same_dtype(op: str, specs: Sequence[TensorSpec]) -> DType:
    names = {spec.dtype.name for spec in specs}
    if len(names) > 1:
        raise DTypeError(
            f"{op}: inputs have different dtypes {', '.join(sorted(names))}",
            hint="cast them to one dtype first",
        )
    return specs[0].dtype


def require_shape(op: str, name: str, spec: TensorSpec, shape: Sequence[int]) -> None:
    if spec.shape != tuple(shape):
        raise ShapeError(f"{op}: {name} has shape {list(spec.shape)}, expected {list(shape)}")


def broadcast_shapes(op: str, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The NumPy broadcast of `shapes`; raises ShapeError naming them."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if -axis <= len(shape)} - {1}
        if len(sizes) > 1:
            given = " and ".join(str(list(shape)) for shape in shapes)
            raise ShapeError(
                f"{op}: shapes {given} do not broadcast",
                hint="aligned from the right, sizes must be equal or 1",
            )
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def normal_axis(op: str, axis: int, rank: int) -> int:
    """`axis` counted from the front."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{op}: axis {axis} is outside a tensor of {rank} dimensions")
    return axis % rank


def normal_axes(op: str, axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Sorted axes counted from the front; None stands for all of them."""
    if axes is None:
        return tuple(range(rank))
    given = [axes] if isinstance(axes, int) else list(axes)
    normal = sorted(normal_axis(op, axis, rank) for axis in given)
    if len(set(normal)) != len(normal):
        raise ShapeError(f"{op}: axes {given} name one dimension twice")
    return tuple(normal)


def real(array: Any) -> np.ndarray:
    """Any numbers as float64."""
    return np.asarray(array).astype(np.float64)


_INTEGER_TYPES = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
}  # fmt: skip


def integer_type(dtype: DType) -> Any:
    """The NumPy dtype of a bool or integer dtype."""
    return np.dtype(_INTEGER_TYPES[dtype.name])


def round_to(values: np.ndarray, dtype: DType) -> np.ndarray:
    """float64 values rounded to nearest even in float `dtype`, kept as float64."""
    if dtype.name == "f64":
        return values
    mantissa = dtype.mantissa_bits
    bias = 2 ** (dtype.exponent_bits - 1) - 1
    lowest = 1 - bias  # the exponent of the smallest normal number
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(values)
        unit = np.ldexp(1.0, np.maximum(exponent - 1, lowest) - mantissa)
        rounded = np.rint(values / unit) * unit
    if dtype.name == "f8e4m3":  # no infinity; the top code is NaN
        largest, overflow = 448.0, np.nan
    else:
        largest, overflow = (2.0 - 2.0**-mantissa) * 2.0**bias, np.inf
    finite = np.isfinite(values)
    rounded = np.where(finite & (np.abs(rounded) > largest), np.copysign(overflow, values), rounded)
    return np.where(finite, rounded, values)


def cost_of(
    flops: Callable[[Specs, Sequence[TensorSpec], Attrs], int] | int,
) -> Callable[[Specs, Sequence[TensorSpec], Attrs], Cost]:
    """A cost rule: `flops` per output element (a number) or in all (a function); every input
    is read and every output written once."""

    def cost(inputs: Specs, outputs: Sequence[TensorSpec], attrs: Attrs) -> Cost:
        moved = sum(spec.size_bytes for spec in (*inputs, *outputs) if spec is not None)
        if callable(flops):
            return Cost(int(flops(inputs, outputs, attrs)), moved)
        return Cost(flops * (outputs[0].size if outputs else 0), moved)

    return cost


_SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 0.0}


def tolerances(
    ulps: float,
    reason: str,
    *,
    absolute_ulps: float = 0.0,
    dtypes: Sequence[str] = FLOATS,
    half_ulps: float = 0.0,
) -> dict[str, Tolerance]:
    """Tolerances for the float dtypes.

    ulps: units of epsilon of the dtype computed in (f32 for f16 and bf16), relative.
    absolute_ulps: the same as an absolute error, for results that may cancel, where inputs
        are of magnitude 1.
    half_ulps: for f16 and bf16, units of their own epsilon on top of the final rounding, where
        inputs to a step are themselves rounded.
    """
    table = {}
    for name in dtypes:
        work = ACCUMULATE[name].epsilon
        relative, absolute = ulps * work, absolute_ulps * work
        why = reason
        if name in ("f16", "bf16"):
            epsilon = DTYPES[name].epsilon
            relative += epsilon * (0.5 + half_ulps) * 1.01
            absolute += half_ulps * epsilon * (1.0 if absolute_ulps else 0.0)
            why += f"; computed in f32 and rounded once to {name}"
        table[name] = Tolerance(relative, absolute + _SMALLEST[name], why)
    return table


def prod(values: Sequence[int]) -> int:
    return math.prod(values)
