"""The interpreter: what each tile operation gives, and accesses that it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tile_kernels import F32_POINTER, I32_POINTER, Tile, TileKernel

from isthmus.core.errors import KernelError, ShapeError
from isthmus.core.location import Location
from isthmus.ir.builder import Builder
from isthmus.ir.core import Region
from isthmus.ir.interpreter import run
from isthmus.ir.types import F32, I1, I8, I32, I64, PointerType, TileType


def stored(rule, *shape, element=F32):
    """What `rule(kernel, x)` gives for the block x = 0, 1, 2, .. of `shape`."""
    k = TileKernel("rule", x=PointerType(element), out=PointerType(element))
    x, out = k.args()
    result = rule(k, k.load(x.broadcast_to(shape) + k.row_major(*shape)))
    data = np.arange(math.prod(shape)).astype(np.float32 if element is F32 else np.int32)
    values = np.zeros(result.shape, data.dtype)
    address = out + k.row_major(*result.shape) if result.shape else out
    k.store(address, result)
    run(k.finish(), [data, values])
    return values


def block(*shape):
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (lambda k, x: x.trans(), lambda a: a.T),
        (lambda k, x: x.reshape(2, 6), lambda a: a.reshape(2, 6)),
        (lambda k, x: k.emit("tile.cat", x, x), lambda a: np.concatenate([a, a])),
        (lambda k, x: k.emit("tile.join", x, x), lambda a: np.stack([a, a], -1)),
        (lambda k, x: k.reduce(x, 0), lambda a: a.sum(0)),
        (lambda k, x: k.reduce(x, 1, "maxnumf"), lambda a: a.max(1)),
        (lambda k, x: k.scan(x, 1), lambda a: a.cumsum(1)),
        (lambda k, x: k.scan(x, 0, reverse=True), lambda a: a[::-1].cumsum(0)[::-1]),
        (lambda k, x: k.dot(x, x.trans()), lambda a: a @ a.T),
        (lambda k, x: k.where(x > 3.0, x, 0.0), lambda a: np.where(a > 3, a, 0)),
    ],
)
def test_blocks(rule, expected):
    np.testing.assert_array_equal(stored(rule, 3, 4), expected(block(3, 4)))


def test_split_gives_both_halves():
    def rule(k, x):
        op = k.builder.create("tile.split", x.value)
        low, high = (Tile(k, result) for result in op.results)
        return high - low * 10.0

    values = stored(rule, 4, 2)
    np.testing.assert_array_equal(values, block(4, 2)[:, 1] - 10 * block(4, 2)[:, 0])


def test_gather_and_its_bounds():
    index = np.array([[2, 0, 1]] * 2, np.int32)

    def kernel(shift):
        k = TileKernel("gather", x=F32_POINTER, i=I32_POINTER, out=F32_POINTER)
        x, i, out = k.args()
        place = k.row_major(2, 3)
        found = k.emit("tile.gather", k.load(x + place), k.load(i + place) + shift, axis=1)
        k.store(out + place, found)
        return k.finish()

    data, result = block(2, 3), np.zeros((2, 3), np.float32)
    run(kernel(0), [data, index, result])
    np.testing.assert_array_equal(result, np.take_along_axis(data, index, 1))
    with pytest.raises(KernelError, match="index 3 along an axis of 3 elements"):
        run(kernel(1), [data, index, result])


def test_histogram_counts_unsigned_values_within_the_bins():
    k = TileKernel("histogram", x=PointerType(I8), out=I32_POINTER)
    x, out = k.args()
    index = k.arange(6)
    k.store(out + k.arange(4), k.emit("tile.histogram", k.load(x + index), index < 5, bins=4))
    counts = np.zeros(4, np.int32)
    run(k.finish(), [np.array([0, 3, 3, 4, -1, 2], np.int8), counts])
    assert counts.tolist() == [1, 0, 0, 2]


def test_region_reductions_carry_several_values():
    """The place of the first maximum; ties by the smaller place, through a branch."""

    def rule(builder: Builder, values):
        a, i, b, j = values
        greater = builder.emit("arith.cmpf", b, a, predicate="ogt")
        branch = builder.if_else(greater, [F32, I32])
        for region, pair in zip(branch.regions, ((b, j), (a, i)), strict=True):
            Builder(region).create("scf.yield", *pair)
        return list(branch.results)

    k = TileKernel("argmax", x=F32_POINTER, out=I32_POINTER)
    x, out = k.args()
    index = k.row_major(2, 4)
    _, place = k.combine("tile.reduce", [k.load(x + index), index], 1, rule)
    k.store(out + k.arange(2), place)
    result = np.zeros(2, np.int32)
    run(k.finish(), [np.float32([1, 5, 5, 2, 0, -1, -2, 0]), result])
    assert result.tolist() == [1, 4]


def test_atomics_act_lane_by_lane():
    k = TileKernel("atomics", x=I32_POINTER, old=I32_POINTER)
    x, old = k.args()
    index = k.arange(4)
    same = x.broadcast_to((4,))
    before = k.emit("tile.atomic_rmw", same, index + 1, index < 3, kind="add")
    k.store(old + index, before)
    swapped = k.emit("tile.atomic_cas", x, k.scalar(16, I32), k.scalar(-1, I32))
    k.store(old + 4, swapped)
    data, result = np.array([10], np.int32), np.full(5, 77, np.int32)
    run(k.finish(), [data, result])
    assert result.tolist() == [10, 11, 13, 0, 16]
    assert data.tolist() == [-1]


def test_programs_run_in_order_x_fastest():
    k = TileKernel("order", log=I32_POINTER, place=I32_POINTER)
    log, place = k.args()
    x, y = k.program_id(0), k.program_id(1)
    number = k.emit("tile.atomic_rmw", place, k.scalar(1, I32), kind="add")
    k.store(log + number, y * 10 + x)
    log_values, count = np.zeros(6, np.int32), np.zeros(1, np.int32)
    run(k.finish(), [log_values, count], (3, 2, 1))
    assert log_values.tolist() == [0, 1, 2, 10, 11, 12]


def test_while_runs_until_its_condition_fails():
    k = TileKernel("collatz", x=I32_POINTER)
    (x,) = k.args()
    start = k.load(x)
    before, body = Region([I32, I32]), Region([I32, I32])
    initial = [start.value, k.scalar(0, I32).value]
    op = k.builder.create("scf.while", *initial, type=[I32, I32], regions=[before, body])
    with k.inside(before):
        n, count = (Tile(k, value) for value in before.args)
        k.leave(n > 1, n, count, name="scf.condition")
    with k.inside(body):
        n, count = (Tile(k, value) for value in body.args)
        is_odd = (n & 1) > 0
        half = k.emit("arith.divsi", n, k.scalar(2, I32))
        k.leave(k.where(is_odd, n * 3 + k.scalar(1, I32), half), count + 1)
    k.store(x, Tile(k, op.results[1]))
    data = np.array([27], np.int32)
    run(k.finish(), [data])
    assert data.tolist() == [111]


def test_truth_values_are_bytes_in_memory():
    k = TileKernel("flags", x=PointerType(I8), out=PointerType(I8))
    x, out = k.args()
    index = k.arange(4)
    is_set = k.load(x + index).compare(0, "ne")
    flipped = k.emit("arith.xori", is_set, k.full((4,), 1, I1))
    wide = k.emit("arith.extui", flipped, type=TileType((4,), I8))
    k.store(out + index, wide)
    flags, result = np.array([True, False, True, False]), np.zeros(4, bool)
    run(k.finish(), [flags, result])
    np.testing.assert_array_equal(result, ~flags)


def copy_kernel(shift: int, masked: bool):
    k = TileKernel("copy", x=F32_POINTER, out=F32_POINTER, n=I32)
    x, out, n = k.args()
    index = k.arange(8) + (k.program_id() * 8 + shift)
    mask = (index < n) & (index >= 0) if masked else None
    k.builder.location = Location("kernels.py", 12, 5)
    k.store(out + index, k.load(x + index, mask), mask)
    return k.finish()


def test_masked_off_lanes_touch_nothing():
    data, result = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    run(copy_kernel(-3, masked=True), [data, result, 10], (2, 1, 1))
    np.testing.assert_array_equal(result, data)


@pytest.mark.parametrize(("shift", "element", "program"), [(-3, -3, 0), (0, 10, 1)])
def test_accesses_outside_an_argument_are_refused(shift, element, program):
    data = np.arange(10, dtype=np.float32)
    with pytest.raises(KernelError) as caught:
        run(copy_kernel(shift, masked=False), [data, data.copy(), 10], (2, 1, 1))
    message = str(caught.value)
    assert message.startswith("kernels.py:12:5: kernel copy, program ")
    assert (
        f"program ({program}, 0, 0): tile.load: it reads element {element} of argument x" in message
    )
    assert "which has 10 elements" in message


def test_b19_offsets_are_64_bits_wide():
    """Row 319 times stride 7864320 lies above 2**31: refused by its true place."""
    k = TileKernel("wide", x=F32_POINTER, row=I32, stride=I32)
    x, row, stride = k.args()
    k.store(x + row.to(I64) * stride.to(I64), 1.0)
    with pytest.raises(KernelError, match="element 2508718080 of argument x"):
        run(k.finish(), [np.zeros(4, np.float32), 319, 7864320])


def test_numbers_as_pointers_and_strided_arrays_are_refused():
    k = TileKernel("loose", x=F32_POINTER)
    (x,) = k.args()
    address = k.emit("ptr.cast", k.scalar(4096, I64), type=F32_POINTER)
    k.store(x, k.load(address))
    function = k.finish()
    with pytest.raises(KernelError, match="address 0x1000 belongs to no argument"):
        run(function, [np.zeros(4, np.float32)])
    with pytest.raises(ShapeError, match="takes contiguous arrays"):
        run(function, [np.zeros(8, np.float32)[::2]])


def test_assertions_stop_and_prints_are_handed_over():
    k = TileKernel("checks", x=I32_POINTER)
    (x,) = k.args()
    index = k.arange(3)
    values = k.load(x + index)
    k.builder.create("tile.print", values.value, prefix="values: ")
    k.builder.create("tile.assert", (values > 0).value, message="all above zero")
    printed: list[str] = []
    function = k.finish()
    run(function, [np.array([1, 2, 3], np.int32)], write=printed.append)
    assert printed == ["pid (0, 0, 0) values: [1, 2, 3]\n"]
    with pytest.raises(KernelError, match="all above zero"):
        run(function, [np.array([1, 0, 3], np.int32)], write=printed.append)


def test_b15_and_b17_reductions_have_the_documented_rules():
    values = np.float32([1, np.nan, 3, np.nan])
    for rotation in range(4):
        turned = np.roll(values, rotation)
        for kind, expected in (("maxnumf", 3), ("maximumf", np.nan)):
            k = TileKernel("nan", x=F32_POINTER, out=F32_POINTER)
            x, out = k.args()
            k.store(out, k.reduce(k.load(x + k.arange(4)), 0, kind))
            result = np.zeros(1, np.float32)
            run(k.finish(), [turned, result])
            np.testing.assert_array_equal(result, [expected])
    k = TileKernel("wrap", x=I32_POINTER)
    (x,) = k.args()
    k.store(x, k.reduce(k.full((128,), 1 << 30, I32)))
    total = np.ones(1, np.int32)
    run(k.finish(), [total])
    assert total.tolist() == [0]
