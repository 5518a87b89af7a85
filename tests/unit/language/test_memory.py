"""Loads, stores, block pointers, descriptors and atomics."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.support.language_kernels import build_body, run_body


def test_masked_lanes_give_other_or_zero_and_touch_nothing() -> None:
    data = np.arange(1, 9, dtype=np.float32)
    out = np.full((3, 16), -5, np.float32)
    run_body(
        """
        lanes = tl.arange(0, 16) - 4
        mask = (lanes >= 0) & (lanes < 8)
        tl.store(x1 + tl.arange(0, 16), tl.load(x0 + lanes, mask=mask))
        tl.store(x1 + 16 + tl.arange(0, 16), tl.load(x0 + lanes, mask=mask, other=float("-inf")))
        tl.store(x1 + 32 + lanes, tl.load(x0 + lanes, mask), mask=mask)
        """,
        data,
        out,
    )
    inside = np.r_[np.zeros(4), data, np.zeros(4)]
    np.testing.assert_array_equal(out[0], inside)
    np.testing.assert_array_equal(out[1], np.where(inside > 0, inside, -np.inf))
    np.testing.assert_array_equal(out[2], np.r_[data, np.full(8, -5)])


def test_float_fill_of_integers_saturates() -> None:
    out = np.zeros(4, np.int64)
    run_body(
        """
        lanes = tl.arange(0, 4)
        tl.store(x1 + lanes, tl.load(x0 + lanes, mask=lanes < 2, other=float("-inf")))
        """,
        np.array([5, 6, 7, 8], np.int64),
        out,
    )
    np.testing.assert_array_equal(out, [5, 6, -(2**63), -(2**63)])


def test_scalar_masks_and_scalar_pointers() -> None:
    data, out = np.array([3, 4], np.int64), np.zeros(4, np.int64)
    run_body(
        """
        off = tl.program_id(0) > 3
        tl.store(x1, tl.load(x0 + 1, mask=off, other=9))
        tl.store(x1 + 1, tl.load(x0 + 1))
        tl.store(x1 + 2, 5, mask=off)
        tl.store(x1 + 3, tl.load(x0, mask=True))
        """,
        data,
        out,
    )
    np.testing.assert_array_equal(out, [9, 4, 0, 3])


@pytest.mark.parametrize(
    "kind",
    [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16,
     np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2],
)  # fmt: skip
def test_every_dtype_comes_and_goes(kind: Any) -> None:
    data = np.array([0, 1, 2, 3, 16, 24, 60, 96]).astype(kind)
    out, wide = np.zeros(8, kind), np.zeros(8, np.float32)
    run_body(
        """
        lanes = tl.arange(0, 8)
        x = tl.load(x0 + lanes)
        tl.static_assert(x.dtype == x0.dtype.element_ty)
        tl.store(x1 + lanes, x)
        tl.store(x2 + lanes, x.to(tl.float32))
        """,
        data,
        out,
        wide,
    )
    np.testing.assert_array_equal(out.view(np.uint8), data.view(np.uint8))
    np.testing.assert_array_equal(wide, data.astype(np.float32))


def test_truth_values_lie_in_bytes() -> None:
    data = np.array([True, False, True, True])
    out = np.zeros(4, np.bool_)
    run_body(
        """
        lanes = tl.arange(0, 4)
        x = tl.load(x0 + lanes, mask=lanes < 3, other=False)
        tl.static_assert(x.dtype == tl.int1)
        tl.store(x1 + lanes, x)
        """,
        data,
        out,
    )
    np.testing.assert_array_equal(out, [True, False, True, False])
    function = build_body("tl.store(b + tl.arange(0, 4), tl.arange(0, 4) > 1)")
    store = next(op for op in function.walk() if op.name == "tile.store")
    assert str(store.operands[1].type) == "tile<4xi8>"


def test_pointers_to_integers_and_back() -> None:
    """A table of addresses, as grouped products pass it."""
    rows = [np.arange(4, dtype=np.float32) + 10 * row for row in range(3)]
    table = np.array([row.ctypes.data for row in rows], np.int64)
    out = np.zeros((3, 4), np.float32)
    run_body(
        """
        pid = tl.program_id(0)
        row = tl.load(x0 + pid).to(tl.pointer_type(tl.float32))
        lanes = tl.arange(0, 4)
        tl.store(x1 + pid * 4 + lanes, tl.load(row + lanes))
        """,
        table,
        out,
        grid=(3,),
    )
    np.testing.assert_array_equal(out, np.stack(rows))


def test_unsigned_offsets_are_not_negative() -> None:
    function = build_body("tl.store(p + tl.load(u + tl.arange(0, 4)), 1.0)")
    names = [op.name for op in function.walk()]
    assert "arith.extui" in names
    assert "arith.extsi" not in names


A = np.arange(7 * 13, dtype=np.float32).reshape(7, 13)


def test_block_pointers() -> None:
    out = np.full((16, 16), -1, np.float32)
    sums = np.zeros(1, np.float32)
    run_body(
        """
        rows, columns = 7, 13
        a = tl.make_block_ptr(x0, (rows, columns), (columns, 1), (0, 0), (4, 8), (1, 0))
        o = tl.make_block_ptr(base=x1, shape=(16, 16), strides=(16, 1), offsets=(0, 0),
                              block_shape=(4, 8), order=(1, 0))
        total = tl.zeros((4, 8), tl.float32)
        for i in range(2):
            for j in range(2):
                block = tl.load(a, boundary_check=(0, 1), padding_option="zero")
                total += block
                tl.store(o, block, boundary_check=(0,))
                a = tl.advance(a, (0, 8))
                o = tl.advance(o, [0, 8])
            a = a.advance((4, -16))
            o = tl.advance(o, (4, -16))
        tl.store(x2, tl.sum(total))
        """,
        A,
        out,
        sums,
    )
    wanted = np.zeros((8, 16), np.float32)
    wanted[:7, :13] = A
    np.testing.assert_array_equal(out[:8], wanted)
    np.testing.assert_array_equal(out[8:], -1)
    assert sums[0] == A.sum()


def test_block_pointers_pad_with_nan() -> None:
    out = np.zeros((8, 16), np.float32)
    run_body(
        """
        a = tl.make_block_ptr(x0, (7, 13), (13, 1), (0, 0), (8, 16), (1, 0))
        block = tl.load(a, boundary_check=(0, 1), padding_option="nan")
        tl.store(x1 + tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :], block)
        """,
        A,
        out,
    )
    wanted = np.full((8, 16), np.nan, np.float32)
    wanted[:7, :13] = A
    np.testing.assert_array_equal(out, wanted)


def test_tensor_descriptors() -> None:
    out = np.full((7, 13), -1, np.float32)
    run_body(
        """
        a = tl.make_tensor_descriptor(x0, shape=[7, 13], strides=[13, 1], block_shape=[4, 8])
        o = tl.make_tensor_descriptor(x1, [7, 13], [13, 1], [4, 8])
        for i in range(0, 7, 4):
            for j in range(0, 13, 8):
                o.store([i, j], a.load([i, j]) * 2)
        tl.static_assert(a.block_shape == [4, 8])
        """,
        A,
        out,
    )
    np.testing.assert_array_equal(out, 2 * A)


def test_atomics_count_and_give_the_old_value() -> None:
    counter, old = np.zeros(1, np.int32), np.zeros(64, np.int32)
    total, bits = np.zeros(1, np.float32), np.array([0, 2**31 - 1, 0, -5, 7], np.int32)
    run_body(
        """
        pid = tl.program_id(0)
        tl.store(x1 + pid, tl.atomic_add(x0, 1, sem="relaxed", scope="gpu"))
        tl.atomic_add(x2, 0.5)
        tl.atomic_or(x3, 1 << (pid % 31))
        tl.atomic_and(x3 + 1, ~(1 << (pid % 31)))
        tl.atomic_xor(x3 + 2, pid)
        tl.atomic_max(x3 + 3, pid)
        tl.atomic_min(x3 + 4, pid - 5)
        """,
        counter, old, total, bits, grid=(64,),
    )  # fmt: skip
    assert counter[0] == 64
    assert sorted(old.tolist()) == list(range(64))
    assert total[0] == 32
    xor = 0
    for pid in range(64):
        xor ^= pid
    np.testing.assert_array_equal(bits, [2**31 - 1, 0, xor, 63, -5])


def test_atomics_of_blocks_masks_and_repeated_places() -> None:
    bins = np.zeros(4, np.float32)
    run_body(
        """
        lanes = tl.arange(0, 16)
        tl.atomic_add(x0 + lanes % 4, lanes.to(tl.float32), mask=lanes < 10)
        """,
        bins,
    )
    np.testing.assert_array_equal(bins, [0 + 4 + 8, 1 + 5 + 9, 2 + 6, 3 + 7])


def test_atomic_extremes_of_floats() -> None:
    values = np.array([3.5, -2.25, 0.0, -7.5, 12.0, -0.5], np.float32)
    best = np.array([-1.0, 1.0], np.float32)
    run_body(
        """
        x = tl.load(x0 + tl.program_id(0))
        tl.atomic_max(x1, x)
        tl.atomic_min(x1 + 1, x)
        """,
        values,
        best,
        grid=(6,),
    )
    np.testing.assert_array_equal(best, [12.0, -7.5])


def test_compare_and_exchange() -> None:
    place, old = np.array([5, 6], np.int32), np.zeros(3, np.int32)
    run_body(
        """
        tl.store(x1, tl.atomic_cas(x0, 5, 50))
        tl.store(x1 + 1, tl.atomic_cas(x0 + 1, 5, 50))
        tl.store(x1 + 2, tl.atomic_xchg(x0 + 1, 9))
        """,
        place,
        old,
    )
    np.testing.assert_array_equal(place, [50, 9])
    np.testing.assert_array_equal(old, [5, 6, 6])


def test_hints_are_accepted() -> None:
    build_body(
        """
        lanes = tl.max_contiguous(tl.multiple_of(n * 16 + tl.arange(0, 16), 16), 16)
        tl.assume(n > 0)
        x = tl.load(p + lanes, eviction_policy="evict_last", cache_modifier=".cg", volatile=True)
        tl.debug_barrier()
        tl.store(p + lanes, x, eviction_policy="evict_first", cache_modifier=".wt")
        tl.device_print("x", x)
        tl.device_assert(n > 0, "n")
        """
    )


def test_device_assert_is_kept_in_debug_builds() -> None:
    body = "tl.device_assert(n > 0, 'n must be positive')"
    assert not any(op.name == "tile.assert" for op in build_body(body).walk())
    kept = [
        op for op in build_body(body, options={"debug": True}).walk() if op.name == "tile.assert"
    ]
    assert kept[0].attrs["message"] == "n must be positive"
