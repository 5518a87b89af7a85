"""Random kernels on blocks: machine code against NumPy.

Data are small whole numbers (and NaN), so that sums are exact in any order and results must be
equal bit for bit. Every value is built twice, as tile IR and as an array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_kernels import Kernel
from tile_kernels import F32_POINTER, Tile, TileKernel

from isthmus.ir.types import F32, I32
from isthmus.targets import target_named

SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
LEVELS = st.sampled_from(["sse42", "avx2", "host"])


@dataclass
class Pair:
    """One value: as tile IR and as NumPy."""

    tile: Tile
    array: np.ndarray


def described(level: str):
    return target_named("host") if level == "host" else target_named("x86_64", level=level)


class RandomKernel:
    """Draws loads, element-wise chains, reductions, scans and shape changes over [m, n]."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.m = draw(st.sampled_from([1, 2, 3, 4, 7, 8, 16, 17]))
        self.n = draw(st.sampled_from([1, 2, 3, 5, 8, 13, 16, 33, 64, 100]))
        names = {f"x{i}": F32_POINTER for i in range(3)} | {"limit_m": I32, "limit_n": I32}
        self.outputs = draw(st.integers(1, 3))
        names |= {f"out{i}": F32_POINTER for i in range(self.outputs)}
        self.k = TileKernel("random", **names)
        self.limits = (draw(st.integers(0, self.m + 1)), draw(st.integers(0, self.n + 1)))
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
        self.buffers = [self._buffer() for _ in range(3)]
        self.values: list[Pair] = []
        self.results: list[np.ndarray] = []
        self.steps: list[str] = []

    def __repr__(self) -> str:
        return f"<{self.m}x{self.n} limits {self.limits}: {', '.join(self.steps)}>"

    def _buffer(self) -> np.ndarray:
        data = self.rng.integers(-4, 5, 4 * self.m * self.n + 64).astype(np.float32)
        if self.draw(st.booleans()):
            data[self.rng.random(data.size) < 0.05] = np.nan
        return data

    def pick(self) -> Pair:
        number = self.draw(st.integers(0, len(self.values) - 1))
        self.steps.append(f"%{number}")
        return self.values[number]

    def build(self) -> None:
        for _ in range(self.draw(st.integers(1, 3))):
            self.load()
        for _ in range(self.draw(st.integers(1, 9))):
            step = self.draw(st.sampled_from(STEPS))
            self.steps.append(f"%{len(self.values)} = {step}")
            getattr(self, step)()
        for position in range(self.outputs):
            self.store(position)

    # Steps -----------------------------------------------------------------------------------

    def mask(self, shape: tuple[int, int]) -> Pair | None:
        k, kind = self.k, self.draw(st.sampled_from(["none", "rows", "columns", "both", "late"]))
        self.steps.append(f"mask {kind}")
        row, column = k.grid(*shape)
        rows, columns = np.mgrid[: shape[0], : shape[1]]
        if kind == "none":
            return None
        if kind == "late":
            start = self.draw(st.integers(0, 5))
            return Pair(column >= start, columns[:1] >= start)
        tests = {
            "rows": (row < k.arg("limit_m"), rows[:, :1] < self.limits[0]),
            "columns": (column < k.arg("limit_n"), columns[:1] < self.limits[1]),
        }
        if kind != "both":
            return Pair(*tests[kind])
        return Pair(tests["rows"][0] & tests["columns"][0], tests["rows"][1] & tests["columns"][1])

    def load(self) -> None:
        k, draw = self.k, self.draw
        source = draw(st.integers(0, 2))
        m, n = self.m, self.n
        kind = draw(st.sampled_from(["dense", "row", "column", "transposed", "backward", "double"]))
        self.steps.append(f"load x{source} {kind}")
        row, column = k.grid(m, n)
        rows, columns = np.mgrid[:m, :n]
        offset, index = {
            "dense": (row * n + column, rows * n + columns),
            "row": (column + 3, columns[:1] + 3),
            "column": (row * 2, rows[:, :1] * 2),
            "transposed": (column * m + row, columns * m + rows),
            "backward": (column * -1 + row * n + (n - 1), rows * n + n - 1 - columns),
            "double": (row * (2 * n) + column * 2 + 1, rows * 2 * n + columns * 2 + 1),
        }[kind]
        mask = self.mask(index.shape)
        pointer = k.arg(f"x{source}") + offset
        array = self.buffers[source][index]
        if mask is None:
            self.values.append(Pair(k.load(pointer), array))
            return
        if mask.tile.shape != index.shape and any(
            a != b and b == 1 for a, b in zip(mask.array.shape, index.shape, strict=True)
        ):
            pointer = pointer.broadcast_to((m, n))
        other = draw(st.sampled_from([None, 0.0, -3.0, np.inf]))
        filled = np.where(mask.array, array, np.float32(other or 0.0)).astype(np.float32)
        self.values.append(Pair(k.load(pointer, mask.tile, other), filled))

    def arithmetic(self) -> None:
        left, right = self.pick(), self.pick()
        name = self.draw(st.sampled_from(["add", "sub", "max", "min"]))
        if name == "add":
            pair = Pair(left.tile + right.tile, left.array + right.array)
        elif name == "sub":
            pair = Pair(left.tile - right.tile, left.array - right.array)
        else:
            rule = np.fmax if name == "max" else np.fmin
            tiles = self.k.broadcast(left.tile, right.tile)
            pair = Pair(self.k.emit(f"arith.{name}numf", *tiles), rule(left.array, right.array))
        self.values.append(pair)

    def scale(self) -> None:
        value = self.pick()
        factor = self.draw(st.sampled_from([0.5, -1.0, 2.0, 0.0]))
        self.values.append(Pair(value.tile * factor, value.array * np.float32(factor)))

    def select(self) -> None:
        test, yes, no = self.pick(), self.pick(), self.pick()
        self.values.append(
            Pair(
                self.k.where(test.tile > 0.0, yes.tile, no.tile),
                np.where(test.array > 0, yes.array, no.array),
            )
        )

    def where_index(self) -> None:
        value = self.pick()
        _, column = self.k.grid(self.m, self.n)
        columns = np.arange(self.n)[None, :]
        self.values.append(
            Pair(
                self.k.where(column < self.k.arg("limit_n"), value.tile, 1.0),
                np.where(columns < self.limits[1], value.array, np.float32(1)),
            )
        )

    def index_as_data(self) -> None:
        value = self.pick()
        row, column = self.k.grid(self.m, self.n)
        index = (row * 3 - column).to(F32)
        rows, columns = np.mgrid[: self.m, : self.n]
        self.values.append(
            Pair(value.tile + index, value.array + (rows * 3 - columns).astype(np.float32))
        )

    def reduce(self) -> None:
        value, axis = self.pick(), self.draw(st.integers(0, 1))
        kind = self.draw(st.sampled_from(["addf", "maxnumf", "minimumf"]))
        rule = {"addf": np.sum, "maxnumf": np.fmax.reduce, "minimumf": np.min}[kind]
        reduced = self.k.reduce(value.tile, axis, kind)
        tile = reduced[None, :] if axis == 0 else reduced[:, None]
        self.values.append(Pair(tile, np.expand_dims(rule(value.array, axis=axis), axis)))

    def total(self) -> None:
        value = self.pick()
        tile = self.k.reduce(self.k.reduce(value.tile, 1), 0)
        self.values.append(
            Pair(tile.broadcast_to((1, 1)), value.array.sum(dtype=np.float32).reshape(1, 1))
        )

    def scan(self) -> None:
        value, axis = self.pick(), self.draw(st.integers(0, 1))
        reverse = self.draw(st.booleans())
        turned = np.flip(value.array, axis) if reverse else value.array
        array = np.cumsum(turned, axis, dtype=np.float32)
        array = np.flip(array, axis) if reverse else array
        self.values.append(Pair(self.k.scan(value.tile, axis, reverse=reverse), array))

    def turn(self) -> None:
        """Through another shape and back, so that all values broadcast."""
        value = self.pick()
        shape = value.array.shape
        if self.draw(st.booleans()):
            tile = value.tile.trans().reshape(value.array.size).reshape(*shape)
            self.values.append(Pair(tile, value.array.T.reshape(shape)))
        else:
            flipped = value.tile.trans() * 2.0
            self.values.append(Pair(flipped.trans() + value.tile, value.array * 2 + value.array))

    def loop(self) -> None:
        value, other = self.pick(), self.pick()
        shape = np.broadcast_shapes(value.array.shape, other.array.shape)
        first, step = value.tile.broadcast_to(shape), other.tile.broadcast_to(shape)
        with self.k.loop(0, self.k.arg("limit_m"), 4, first, step) as loop:
            a, b = loop.carried
            self.k.leave(*((b, a + step) if self.draw(st.booleans()) else (a + b, b)))
            swaps = self.k.builder.region.terminator.operands[0] is b.value
        a, b = (np.broadcast_to(pair.array, shape) for pair in (value, other))
        constant = b
        for _ in range(0, self.limits[0], 4):
            a, b = (b, a + constant) if swaps else (a + b, b)
        self.values += [Pair(loop.results[0], a), Pair(loop.results[1], b)]

    def store(self, position: int) -> None:
        value = self.pick() if position else self.values[-1]
        m, n = self.m, self.n
        row, column = self.k.grid(m, n)
        mask = self.mask((m, n))
        backward = self.draw(st.booleans())
        offset = column * -1 + (row * n + (n - 1)) if backward else row * n + column
        result = np.full((m, n), 77, np.float32)
        array = np.broadcast_to(value.array, (m, n))
        if mask is not None:
            array = np.where(mask.array, array, np.float32(77))
        result[:] = array[:, ::-1] if backward else array
        self.results.append(result)
        pointer = (self.k.arg(f"out{position}") + offset).broadcast_to((m, n))
        self.k.store(pointer, value.tile, None if mask is None else mask.tile)


STEPS = (
    "arithmetic", "arithmetic", "scale", "select", "where_index", "index_as_data", "reduce",
    "reduce", "total", "scan", "turn", "loop", "load",
)  # fmt: skip


@st.composite
def kernels(draw: st.DrawFn) -> RandomKernel:
    kernel = RandomKernel(draw)
    with np.errstate(invalid="ignore"):
        kernel.build()
    return kernel


@SETTINGS
@given(kernels(), LEVELS)
def test_machine_code_equals_numpy(kernel, level):
    outputs = [np.full((kernel.m, kernel.n), 77, np.float32) for _ in kernel.results]
    compiled = Kernel(kernel.k.finish(), described(level))
    compiled(*kernel.buffers, *kernel.limits, *outputs)
    for output, expected in zip(outputs, kernel.results, strict=True):
        np.testing.assert_array_equal(output, expected)


@SETTINGS
@given(
    st.integers(0, 40), st.integers(1, 40), st.integers(-3, 3), st.integers(-3, 3),
    st.sampled_from([0, 7]), LEVELS,
)  # fmt: skip
def test_copies_within_one_buffer(n, block, stride, shift, gap, level):
    """x[i + shift] = x[stride * i] in one program: all loads come before all stores."""
    k = TileKernel("copy", x=F32_POINTER, n=I32)
    x, limit = k.args()
    index = k.arange(block)
    value = k.load(x + (index * stride + 150), index < limit)
    k.store(x + (index + (150 + shift + gap)), value + 1.0, index < limit)
    data = np.arange(300, dtype=np.float32)
    expected = data.copy()
    count = min(n, block)
    taken = data[150 + stride * np.arange(count)] + 1
    expected[150 + shift + gap : 150 + shift + gap + count] = taken
    Kernel(k.finish(), described(level))(data, n)
    np.testing.assert_array_equal(data, expected)


@pytest.mark.parametrize("level", ["sse42", "avx2", "host"])
def test_generated_code_is_the_same_every_time(level):
    def text() -> str:
        k = TileKernel("same", x=F32_POINTER, out=F32_POINTER, n=I32)
        x, out, n = k.args()
        row, column = k.grid(8, 40)
        value = k.load(x + (row * n + column), (row < n) & (column < n))
        k.store(out + (row * n + column), value - k.reduce(value, 1)[:, None], column < n)
        return Kernel(k.finish(), described(level)).text

    assert text() == text()
