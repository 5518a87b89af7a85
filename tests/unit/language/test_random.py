"""Philox: known answers, and the numbers that Triton makes from them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.language_kernels import run_body

from isthmus.ops.random import philox


def words(body: str, size: int = 4) -> np.ndarray:
    out = np.zeros(size, np.uint32)
    run_body(body, out)
    return out


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [  # the known answers of the Random123 distribution
        ("0", "0", [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ("0xffffffff", "0xffffffff", [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ],
)
def test_known_answers(counter: str, key: str, wanted: list[int]) -> None:
    body = f"""
        c = tl.full((), {counter}, tl.uint32)
        k = tl.full((), {key}, tl.uint32)
        a, b, c, d = tl.philox_impl(c, c, c, c, k, k)
        tl.store(x0, a)
        tl.store(x0 + 1, b)
        tl.store(x0 + 2, c)
        tl.store(x0 + 3, d)
        """
    np.testing.assert_array_equal(words(body), wanted)


@pytest.mark.parametrize("seed", [0, 42, 2**32 + 7, 2**63 - 1])
def test_randint_of_offsets(seed: int) -> None:
    body = f"tl.store(x0 + tl.arange(0, 64), tl.randint({seed}, 5 + tl.arange(0, 64)))"
    offsets = np.arange(5, 69, dtype=np.uint64)
    zero = np.zeros_like(offsets)
    wanted = philox((offsets, zero, zero, zero), (seed & 0xFFFFFFFF, seed >> 32))[0]
    np.testing.assert_array_equal(words(body, 64), wanted.astype(np.uint32))


def test_offsets_beyond_32_bits_use_the_second_word() -> None:
    body = "tl.store(x0 + tl.arange(0, 4), tl.randint(1, tl.arange(0, 4).to(tl.int64) + (1 << 40)))"
    offsets = np.arange(4, dtype=np.uint64) + (1 << 40)
    zero = np.zeros_like(offsets)
    low, high = offsets & np.uint64(0xFFFFFFFF), offsets >> np.uint64(32)
    wanted = philox((low, high, zero, zero), (1, 0))[0]
    np.testing.assert_array_equal(words(body), wanted.astype(np.uint32))


def test_rand_is_the_magnitude_times_a_scale() -> None:
    out, raw = np.zeros(1024, np.float32), np.zeros(1024, np.int32)
    run_body(
        """
        lanes = tl.arange(0, 1024)
        tl.store(x0 + lanes, tl.rand(7, lanes))
        tl.store(x1 + lanes, tl.randint(7, lanes))
        """,
        out,
        raw,
    )
    size = np.where(raw < 0, ~raw, raw)
    np.testing.assert_array_equal(out, size.astype(np.float32) * np.float32(4.6566127342e-10))
    assert 0 <= out.min() < out.max() < 1
    assert abs(out.mean() - 0.5) < 0.03


def test_four_at_a_time_and_normal_numbers() -> None:
    out = np.zeros((5, 1024), np.float32)
    run_body(
        """
        lanes = tl.arange(0, 1024)
        a, b, c, d = tl.rand4x(3, lanes)
        tl.store(x0 + lanes, a)
        tl.store(x0 + 1024 + lanes, b)
        tl.store(x0 + 2048 + lanes, tl.randn(3, lanes))
        w, x, y, z = tl.randn4x(3, lanes)
        tl.store(x0 + 3072 + lanes, w)
        tl.store(x0 + 4096 + lanes, z)
        """,
        out,
    )
    u1, u2 = np.maximum(out[0].astype(np.float64), 1e-7), out[1].astype(np.float64)
    np.testing.assert_allclose(
        out[2], np.sqrt(-2 * np.log(u1)) * np.cos(2 * np.pi * u2), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(out[2], out[3])
    assert abs(out[4].mean()) < 0.1
    assert abs(out[4].std() - 1) < 0.1
