"""Random numbers: Philox-4x32-10, the same bits on every device and any number of threads.

The key input is i64[2]: seed and step. For element e of an operator with attribute `stream`:

    counter = (c low 32 bits, c high 32 bits, stream, step low 32 bits)
    key     = (seed low 32 bits, seed high 32 bits)
    c = (e // 1024) * 256 + e % 256,  word = (e // 256) % 4

One counter gives four words; word w of 256 neighbouring counters fills 256 neighbouring
elements, so that blocks store contiguously. Elements are numbered in row-major order.

uniform  low + (high - low) * (word >> (32 - p)) * 2^-p, p = mantissa bits + 1 (32 for f64)
normal   mean + std * sqrt(-2 log u) * cos(2 pi v) for words 0 and 2, sin for 1 and 3, where
         u = (word 0 or 2 + 1) * 2^-32 and v = (word 1 or 3) * 2^-32
dropout  keeps an element where word >= p * 2^32 and divides it by 1 - p

Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus.language as tl
from isthmus.core.dtypes import DType
from isthmus.core.errors import ProgramError
from isthmus.jit.decorator import jit
from isthmus.ops.rules import (
    BOOL,
    FLOATS,
    Arrays,
    Specs,
    as_dtype,
    cost_of,
    prod,
    real,
    require_dtypes,
    require_shape,
    tolerances,
)
from isthmus.ops.schedule import accumulate_type, ceil_div, inputs, outputs
from isthmus.ops.standard import (
    REQUIRED,
    Attrs,
    Launch,
    Operator,
    Plan,
    TensorSpec,
    View,
    register,
)

if TYPE_CHECKING:
    from isthmus.core.target import TargetDescription

__all__ = ["philox", "random_words"]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox(counter: tuple[np.ndarray, ...], key: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Philox-4x32-10 of four arrays of 32-bit words (held in uint64)."""
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(10):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> _32) ^ c1 ^ np.uint64(k0),
            second & _LOW,
            (first >> _32) ^ c3 ^ np.uint64(k1),
            first & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def random_words(key: np.ndarray, stream: int, size: int) -> np.ndarray:
    """[groups of 1024, word 4, lane 256] words that cover `size` elements."""
    seed, step = (int(number) & 0xFFFFFFFFFFFFFFFF for number in np.asarray(key, np.int64))
    groups = -(-size // 1024)
    counter = np.arange(groups * 256, dtype=np.uint64)
    fixed = np.zeros_like(counter)
    words = philox(
        (
            counter & _LOW,
            counter >> _32,
            fixed + np.uint64(stream & 0xFFFFFFFF),
            fixed + np.uint64(step & 0xFFFFFFFF),
        ),
        (seed & 0xFFFFFFFF, seed >> 32),
    )
    return np.stack([word.reshape(groups, 256) for word in words], axis=1)


def _infer(name: str) -> object:
    def infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
        _check_key(name, specs[0])
        spec = TensorSpec(tuple(attrs["shape"]), as_dtype(attrs["dtype"]))
        require_dtypes(name, "the result", spec, FLOATS)
        return [spec]

    return infer


def _check_key(name: str, key: TensorSpec) -> None:
    require_dtypes(name, "key", key, ("i64",))
    require_shape(name, "key", key, (2,))


def uniform_bits(dtype: DType) -> int:
    """How many of a word's top bits a uniform number of `dtype` is made of."""
    return 32 if dtype.name == "f64" else dtype.mantissa_bits + 1


def _uniform_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    shape, dtype = tuple(attrs["shape"]), as_dtype(attrs["dtype"])
    words = random_words(arrays[0], attrs["stream"], prod(shape)).reshape(-1)[: prod(shape)]
    bits = uniform_bits(dtype)
    unit = (words >> np.uint64(32 - bits)).astype(np.float64) * 2.0**-bits
    return [(attrs["low"] + (attrs["high"] - attrs["low"]) * unit).reshape(shape)]


def _normal_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    shape = tuple(attrs["shape"])
    words = random_words(arrays[0], attrs["stream"], prod(shape)).astype(np.float64)
    radius = np.sqrt(-2.0 * np.log((words[:, 0::2] + 1.0) * 2.0**-32))
    angle = 2.0 * np.pi * (words[:, 1::2] * 2.0**-32)
    values = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    flat = values.reshape(-1)[: prod(shape)]
    return [(attrs["mean"] + attrs["std"] * flat).reshape(shape)]


def dropout_threshold(probability: float) -> int:
    """Words below this number drop their element."""
    return round(probability * 2.0**32)


def _dropout_infer(specs: Specs, attrs: Attrs) -> list[TensorSpec]:
    x, key = specs
    require_dtypes("dropout", "x", x, FLOATS)
    _check_key("dropout", key)
    if not 0.0 <= attrs["p"] <= 1.0:
        raise ProgramError(f"dropout: p is {attrs['p']}; it must be within 0 and 1")
    return [x, TensorSpec(x.shape, BOOL)]


def _dropout_reference(arrays: Arrays, attrs: Attrs) -> list[np.ndarray]:
    x, probability = real(arrays[0]), attrs["p"]
    words = random_words(arrays[1], attrs["stream"], x.size).reshape(-1)[: x.size]
    mask = (words >= np.uint64(dropout_threshold(probability))).reshape(x.shape)
    scale = 1.0 / (1.0 - probability) if probability < 1.0 else 0.0
    return [np.where(mask, x * scale, 0.0), mask]


#: Groups of 1024 elements per program.
GROUPS = 8


@jit
def philox_words(key_ptr, counter, stream):
    """Four blocks of 32-bit words for a block of 64-bit counters."""
    seed = tl.load(key_ptr)
    step = tl.load(key_ptr + 1)
    c0 = counter.to(tl.uint32)
    c1 = (counter >> 32).to(tl.uint32)
    c2 = tl.full(counter.shape, stream, tl.uint32)
    c3 = tl.full(counter.shape, 0, tl.uint32) + step.to(tl.uint32)
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    first = tl.full((), 0xD2511F53, tl.uint32)
    second = tl.full((), 0xCD9E8D57, tl.uint32)
    for _ in tl.static_range(10):
        high_0 = tl.umulhi(c0, first)
        high_2 = tl.umulhi(c2, second)
        low_0 = c0 * first
        low_2 = c2 * second
        c0 = high_2 ^ c1 ^ k0
        c1 = low_2
        c2 = high_0 ^ c3 ^ k1
        c3 = low_0
        k0 = k0 + tl.full((), 0x9E3779B9, tl.uint32)
        k1 = k1 + tl.full((), 0xBB67AE85, tl.uint32)
    return c0, c1, c2, c3


@jit
def unit(word, BITS: tl.constexpr, ACC: tl.constexpr):
    """[0, 1) from the top BITS bits of a word."""
    return (word >> (32 - BITS)).to(ACC) * (1.0 / (1 << BITS))


@jit(do_not_specialize=["stream"])
def uniform_kernel(
    key_ptr, out_ptr, size, stream, LOW: tl.constexpr, WIDTH: tl.constexpr,
    BITS: tl.constexpr, GROUPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """GROUPS groups of 1024 elements per program."""
    group = (tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)).to(tl.int64)[:, None]
    lane = tl.arange(0, 256)[None, :]
    w0, w1, w2, w3 = philox_words(key_ptr, group * 256 + lane, stream)
    place = group * 1024 + lane
    tl.store(out_ptr + place, unit(w0, BITS, ACC) * WIDTH + LOW, mask=place < size)
    place += 256
    tl.store(out_ptr + place, unit(w1, BITS, ACC) * WIDTH + LOW, mask=place < size)
    place += 256
    tl.store(out_ptr + place, unit(w2, BITS, ACC) * WIDTH + LOW, mask=place < size)
    place += 256
    tl.store(out_ptr + place, unit(w3, BITS, ACC) * WIDTH + LOW, mask=place < size)


TWO_TO_MINUS_32 = tl.constexpr(2.0**-32)


@jit
def normal_pair(a, b, MEAN: tl.constexpr, STD: tl.constexpr, ACC: tl.constexpr):
    """Two blocks of normal numbers from two blocks of words (Box and Muller)."""
    radius = tl.sqrt(-2.0 * tl.log((a.to(ACC) + 1.0) * TWO_TO_MINUS_32)) * STD
    angle = b.to(ACC) * (TWO_TO_MINUS_32 * 6.283185307179586)
    return radius * tl.cos(angle) + MEAN, radius * tl.sin(angle) + MEAN


@jit(do_not_specialize=["stream"])
def normal_kernel(
    key_ptr, out_ptr, size, stream, MEAN: tl.constexpr, STD: tl.constexpr,
    GROUPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """GROUPS groups of 1024 elements per program."""
    group = (tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)).to(tl.int64)[:, None]
    lane = tl.arange(0, 256)[None, :]
    w0, w1, w2, w3 = philox_words(key_ptr, group * 256 + lane, stream)
    z0, z1 = normal_pair(w0, w1, MEAN, STD, ACC)
    z2, z3 = normal_pair(w2, w3, MEAN, STD, ACC)
    place = group * 1024 + lane
    tl.store(out_ptr + place, z0, mask=place < size)
    tl.store(out_ptr + place + 256, z1, mask=place + 256 < size)
    tl.store(out_ptr + place + 512, z2, mask=place + 512 < size)
    tl.store(out_ptr + place + 768, z3, mask=place + 768 < size)


@jit
def drop(
    x_ptr, out_ptr, mask_ptr, place, size, word,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Keep the elements whose word is not below the threshold."""
    inside = place < size
    kept = word.to(tl.int64) >= THRESHOLD
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(ACC)
    tl.store(out_ptr + place, tl.where(kept, x * SCALE, 0.0), mask=inside)
    tl.store(mask_ptr + place, kept, mask=inside)


@jit(do_not_specialize=["stream"])
def dropout_kernel(
    x_ptr, key_ptr, out_ptr, mask_ptr, size, stream, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, GROUPS: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """GROUPS groups of 1024 elements per program."""
    group = (tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)).to(tl.int64)[:, None]
    lane = tl.arange(0, 256)[None, :]
    w0, w1, w2, w3 = philox_words(key_ptr, group * 256 + lane, stream)
    place = group * 1024 + lane
    drop(x_ptr, out_ptr, mask_ptr, place, size, w0, THRESHOLD, SCALE, ACC)
    drop(x_ptr, out_ptr, mask_ptr, place + 256, size, w1, THRESHOLD, SCALE, ACC)
    drop(x_ptr, out_ptr, mask_ptr, place + 512, size, w2, THRESHOLD, SCALE, ACC)
    drop(x_ptr, out_ptr, mask_ptr, place + 768, size, w3, THRESHOLD, SCALE, ACC)


def _launch(kernel: Any, size: int, args: dict[str, Any]) -> Plan:
    if size == 0:
        return Plan(())
    groups = min(GROUPS, ceil_div(size, 1024))
    grid = (ceil_div(size, 1024 * groups), 1, 1)
    return Plan((Launch(kernel, {**args, "size": size, "GROUPS": groups}, grid),))


def _uniform_plan(
    _views: Sequence[Any], outs: Sequence[View], attrs: Attrs, _target: TargetDescription
) -> Plan:
    (out,) = outs
    args = {
        "key_ptr": inputs(0), "out_ptr": outputs(0), "stream": attrs["stream"],
        "LOW": float(attrs["low"]), "WIDTH": float(attrs["high"]) - float(attrs["low"]),
        "BITS": uniform_bits(out.dtype), "ACC": accumulate_type(out.dtype),
    }  # fmt: skip
    return _launch(uniform_kernel, out.size, args)


def _normal_plan(
    _views: Sequence[Any], outs: Sequence[View], attrs: Attrs, _target: TargetDescription
) -> Plan:
    (out,) = outs
    args = {
        "key_ptr": inputs(0), "out_ptr": outputs(0), "stream": attrs["stream"],
        "MEAN": float(attrs["mean"]), "STD": float(attrs["std"]),
        "ACC": accumulate_type(out.dtype),
    }  # fmt: skip
    return _launch(normal_kernel, out.size, args)


def _dropout_plan(
    views: Sequence[Any], _outs: Sequence[View], attrs: Attrs, _target: TargetDescription
) -> Plan:
    probability = attrs["p"]
    args = {
        "x_ptr": inputs(0), "key_ptr": inputs(1), "out_ptr": outputs(0), "mask_ptr": outputs(1),
        "stream": attrs["stream"], "THRESHOLD": dropout_threshold(probability),
        "SCALE": 1.0 / (1.0 - probability) if probability < 1.0 else 0.0,
        "ACC": accumulate_type(views[0].dtype),
    }  # fmt: skip
    return _launch(dropout_kernel, views[0].size, args)


_RANDOM_FLOPS = 30  # ten rounds of integer work for four words
register(
    Operator(
        name="uniform",
        doc=__doc__ or "",
        inputs=("key",),
        infer=_infer("uniform"),  # type: ignore[arg-type]
        reference=_uniform_reference,
        plan=_uniform_plan,
        cost=cost_of(_RANDOM_FLOPS),
        attrs={"shape": REQUIRED, "dtype": "f32", "low": 0.0, "high": 1.0, "stream": 0},
        tolerance=tolerances(2, "exact bits, then one product and one sum", absolute_ulps=2),
        gradient="none",
        nan="never NaN",
        random=True,
    )
)
register(
    Operator(
        name="normal",
        doc="Normal numbers by Box and Muller from Philox words; see uniform.",
        inputs=("key",),
        infer=_infer("normal"),  # type: ignore[arg-type]
        reference=_normal_reference,
        plan=_normal_plan,
        cost=cost_of(_RANDOM_FLOPS + 30),
        attrs={"shape": REQUIRED, "dtype": "f32", "mean": 0.0, "std": 1.0, "stream": 0},
        tolerance=tolerances(
            16, "log, cos and sin of rounded arguments: absolute", absolute_ulps=16
        ),
        gradient="none",
        nan="never NaN",
        random=True,
    )
)
register(
    Operator(
        name="dropout",
        doc="x with elements dropped with probability p, the rest divided by 1 - p, and the mask "
        "of kept elements; see uniform for the random bits.",
        inputs=("x", "key"),
        infer=_dropout_infer,
        reference=_dropout_reference,
        plan=_dropout_plan,
        cost=cost_of(_RANDOM_FLOPS),
        attrs={"p": 0.5, "stream": 0},
        tolerance=tolerances(2, "one product with a rounded factor"),
        gradient="grad * mask / (1 - p), by capture",
        nan="a dropped NaN becomes 0",
        inplace={0: (0,)},
        random=True,
    )
)
