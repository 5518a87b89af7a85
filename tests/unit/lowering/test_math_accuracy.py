"""Errors of the vector math in units of the last place, against float64 (mpmath for f64)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from isthmus.core.target import TargetDescription
from isthmus.ir.builder import Builder
from isthmus.ir.core import Function
from isthmus.ir.types import F32, I8, I32, I64, PointerType, ScalarType, VectorType
from isthmus.lowering.nest import math as vector_math

BLOCK = 16


def unary_kernel(
    name: str, target: TargetDescription, element: ScalarType = F32, inputs: int = 1
) -> Function:
    """out[i] = name(in[i], ..) for whole vectors."""
    fn = Function(
        f"{name}_{element}",
        [PointerType(I64), PointerType(I32), I64, I64, PointerType(I8)],
    )
    b = Builder(fn)
    pointers = []
    for position in range(inputs + 1):
        slot = b.emit("ptr.add", fn.args[0], b.i64(position))
        address = b.emit("nest.load", slot, type=I64)
        pointers.append(b.emit("ptr.cast", address, type=PointerType(element)))
    _, body = b.for_loop(fn.args[2], fn.args[3], b.i64(1))
    with b.at(body):
        offset = b.emit("arith.muli", body.args[0], b.i64(BLOCK))
        vector = VectorType((BLOCK,), element)
        values = [
            b.emit("nest.load", b.emit("ptr.add", pointer, offset), type=vector)
            for pointer in pointers[:-1]
        ]
        result = vector_math.expand(b, name, values, target)
        b.create("nest.store", result, b.emit("ptr.add", pointers[-1], offset))
        b.create("scf.yield")
    b.create("func.return")
    return fn


def run(native: Callable, name: str, target: TargetDescription, *inputs: np.ndarray) -> np.ndarray:
    element = {"float32": F32}[inputs[0].dtype.name]
    fn = unary_kernel(name, target, element, len(inputs))
    size = inputs[0].size
    padded = -(-size // BLOCK) * BLOCK
    arrays = [np.resize(array, padded) for array in inputs]
    out = np.zeros(padded, inputs[0].dtype)
    native(fn, target)(fn.name, [*arrays, out], span=(0, padded // BLOCK))
    return out[:size]


def ulp_error(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """|got - expected| in units of the last place of `expected` rounded to f32."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(np.float32)
        spacing = np.abs(np.spacing(np.abs(rounded))).astype(np.float64)
        spacing = np.where(np.isinf(rounded), 2.0**104, spacing)
        error = np.abs(got.astype(np.float64) - expected) / spacing
    same = (got == rounded) | (np.isnan(got) & np.isnan(expected))
    return np.where(
        same, np.minimum(np.nan_to_num(error), 0.5), np.where(np.isnan(error), np.inf, error)
    )
