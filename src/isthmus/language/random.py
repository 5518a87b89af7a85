"""Random numbers by counters: Philox (Salmon et al. 2011), bit for bit those of Triton.

A number depends on the seed and its offset only, so every target and grid gives the same.
"""

from __future__ import annotations

# pyright: reportAssignmentType=false, reportArgumentType=false, reportOperatorIssue=false
# ruff: noqa: SIM108  (kernels have no conditional expressions of blocks)
from isthmus.language.math import cos, log, sin, sqrt, umulhi
from isthmus.language.operations import (
    maximum,
    static_assert,
    static_range,
    to_tensor,
    where,
)
from isthmus.language.source import helper
from isthmus.language.types import int32, int64, uint32, uint64
from isthmus.language.values import constexpr

__all__ = [
    "pair_uniform_to_normal", "philox", "philox_impl", "rand", "rand4x", "randint", "randint4x",
    "randn", "randn4x", "uint_to_uniform_float",
]  # fmt: skip

ROUNDS = constexpr(10)


@helper
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: constexpr = ROUNDS):
    """Four words after `n_rounds` rounds over the counter (c0, c1, c2, c3) and key (k0, k1)."""
    if c0.dtype == uint32:
        KEY_A: constexpr = 0x9E3779B9
        KEY_B: constexpr = 0xBB67AE85
        ROUND_A: constexpr = 0xD2511F53
        ROUND_B: constexpr = 0xCD9E8D57
    else:
        static_assert(c0.dtype == uint64, "philox works on uint32 and uint64")
        KEY_A: constexpr = 0x9E3779B97F4A7C15
        KEY_B: constexpr = 0xBB67AE8584CAA73B
        ROUND_A: constexpr = 0xD2E7470EE14C6C93
        ROUND_B: constexpr = 0xCA5A826395121157
    for _ in static_range(n_rounds):
        before_0, before_2 = c0, c2
        c0 = umulhi(before_2, ROUND_B) ^ c1 ^ k0
        c2 = umulhi(before_0, ROUND_A) ^ c3 ^ k1
        c1 = before_2 * ROUND_B
        c3 = before_0 * ROUND_A
        k0 = k0 + KEY_A
        k1 = k1 + KEY_B
    return c0, c1, c2, c3


@helper
def philox(seed, c0, c1, c2, c3, n_rounds: constexpr = ROUNDS):
    """Four blocks of random words for a seed of 64 bits and four blocks of counters."""
    seed = to_tensor(seed)
    static_assert(seed.dtype.is_int(), "the seed is a whole number")
    seed = seed.to(uint64)
    c0 = to_tensor(c0)
    c1 = to_tensor(c1)
    c2 = to_tensor(c2)
    c3 = to_tensor(c3)
    if c0.dtype.primitive_bitwidth == 32:
        word: constexpr = uint32
        high = (seed >> 32).to(uint32)
        low = seed.to(uint32)
    else:
        static_assert(c0.dtype.primitive_bitwidth == 64, "philox works on 32 and 64 bits")
        word: constexpr = uint64
        high = to_tensor(0).to(uint64)
        low = seed
    return philox_impl(
        c0.to(word, bitcast=True),
        c1.to(word, bitcast=True),
        c2.to(word, bitcast=True),
        c3.to(word, bitcast=True),
        low,
        high,
        n_rounds,
    )


@helper
def randint(seed, offset, n_rounds: constexpr = ROUNDS):
    """A block of random uint32, one per offset."""
    first, _, _, _ = randint4x(seed, offset, n_rounds)
    return first


@helper
def randint4x(seed, offset, n_rounds: constexpr = ROUNDS):
    """Four blocks of random uint32."""
    offset = to_tensor(offset)
    low = offset.to(uint32)
    zero = low * 0
    if offset.dtype.primitive_bitwidth > 32:
        high = (offset >> 32).to(uint32)
    else:
        high = zero
    return philox(seed, low, high, zero, zero, n_rounds)


@helper
def uint_to_uniform_float(x):
    """A random integer as a float32 in [0, 1): its magnitude times a scale that keeps below 1."""
    if x.dtype.primitive_bitwidth == 32:
        x = x.to(int32, bitcast=True)
        scale = 4.6566127342e-10
    else:
        static_assert(x.dtype.primitive_bitwidth == 64, "words have 32 or 64 bits")
        x = x.to(int64, bitcast=True)
        scale = 1.0842020432385337e-19
    x = where(x < 0, ~x, x)
    return x * scale


@helper
def rand(seed, offset, n_rounds: constexpr = ROUNDS):
    """A block of float32 in [0, 1), one per offset."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@helper
def rand4x(seed, offsets, n_rounds: constexpr = ROUNDS):
    """Four blocks of float32 in [0, 1)."""
    i0, i1, i2, i3 = randint4x(seed, offsets, n_rounds)
    return (
        uint_to_uniform_float(i0),
        uint_to_uniform_float(i1),
        uint_to_uniform_float(i2),
        uint_to_uniform_float(i3),
    )


@helper
def pair_uniform_to_normal(u1, u2):
    """Two normal numbers from two uniform ones (Box and Muller)."""
    u1 = maximum(1.0e-7, u1)
    angle = 6.283185307179586 * u2
    radius = sqrt(-2.0 * log(u1))
    return radius * cos(angle), radius * sin(angle)


@helper
def randn(seed, offset, n_rounds: constexpr = ROUNDS):
    """A block of float32 from the normal distribution, one per offset."""
    i0, i1, _, _ = randint4x(seed, offset, n_rounds)
    first, _ = pair_uniform_to_normal(uint_to_uniform_float(i0), uint_to_uniform_float(i1))
    return first


@helper
def randn4x(seed, offset, n_rounds: constexpr = ROUNDS):
    """Four blocks of float32 from the normal distribution."""
    u0, u1, u2, u3 = rand4x(seed, offset, n_rounds)
    n0, n1 = pair_uniform_to_normal(u0, u1)
    n2, n3 = pair_uniform_to_normal(u2, u3)
    return n0, n1, n2, n3
