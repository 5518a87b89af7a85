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

import numpy as np

from isthmus.core.dtypes import DType
from isthmus.core.errors import ProgramError
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
from isthmus.ops.standard import REQUIRED, Attrs, Operator, TensorSpec, register

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


_RANDOM_FLOPS = 30  # ten rounds of integer work for four words
register(
    Operator(
        name="uniform",
        doc=__doc__ or "",
        inputs=("key",),
        infer=_infer("uniform"),  # type: ignore[arg-type]
        reference=_uniform_reference,
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
        cost=cost_of(_RANDOM_FLOPS),
        attrs={"p": 0.5, "stream": 0},
        tolerance=tolerances(2, "one product with a rounded factor"),
        gradient="grad * mask / (1 - p), by capture",
        nan="a dropped NaN becomes 0",
        inplace={0: (0,)},
        random=True,
    )
)
