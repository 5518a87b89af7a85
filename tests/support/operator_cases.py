"""Sample inputs for every operator of the standard: what the conformance tests run.

A case is the inputs (NumPy arrays, None for an absent one) and the attributes of one application.
`cases(op, dtype)` gives the cases of an operator whose float inputs have `dtype`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isthmus.core.dtypes import DTYPES
from isthmus.ir.numpy_types import numpy_dtype
from isthmus.ops import OPERATORS

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i32", "i64", "i8", "u8")


@dataclass(frozen=True)
class Case:
    """One application: a name for the test, inputs, attributes."""

    name: str
    inputs: Sequence[np.ndarray | None]
    attrs: dict[str, Any] = field(default_factory=dict)


class Sampler:
    """Draws arrays of one dtype, in the profiles that every operator must bear."""

    def __init__(self, dtype: str, seed: int) -> None:
        self.name = dtype
        self.dtype = numpy_dtype(DTYPES[dtype])
        self.random = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        if DTYPES[self.name].is_float:
            return (self.random.standard_normal(shape) * scale).astype(self.dtype)
        if self.name == "bool":
            return self.random.random(shape) < 0.5
        low = 0 if self.name.startswith("u") else -20
        return self.random.integers(low, 20, shape).astype(self.dtype)

    def positive(self, *shape: int) -> np.ndarray:
        if DTYPES[self.name].is_float:
            return (self.random.random(shape) * 3 + 0.05).astype(self.dtype)
        return self.random.integers(1, 20, shape).astype(self.dtype)

    def index(self, high: int, *shape: int) -> np.ndarray:
        return self.random.integers(0, high, shape).astype(np.int64)

    def special(self, *shape: int) -> np.ndarray:
        """Normal numbers with NaN, infinities, zeros of both signs and extremes among them."""
        x = self.normal(*shape)
        if DTYPES[self.name].is_float and x.size:
            values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 30, -30])
            places = self.random.permutation(x.size)[: min(x.size, 8)]
            x.reshape(-1)[places] = values[: places.size].astype(self.dtype)
        return x


Generator = Callable[[Sampler], Iterator[Case]]
GENERATORS: dict[str, Generator] = {}


def generator(*names: str) -> Callable[[Generator], Generator]:
    def keep(function: Generator) -> Generator:
        for name in names:
            GENERATORS[name] = function
        return function

    return keep


def transposed(x: np.ndarray) -> np.ndarray:
    """The same numbers with the last two dimensions stored the other way round."""
    return np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2)


# ---------------------------------------------------------------- element-wise

SHAPES = {"odd": (3, 37), "one": (1,), "scalar": (), "empty": (0, 4), "long": (5000,)}
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal", "pow", "div", "remainder", "floor_divide")
ATTRS: dict[str, list[dict[str, Any]]] = {
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "gelu_backward": [{"approximate": "none"}, {"approximate": "tanh"}],
    "clamp": [{"low": -0.5, "high": 1.25}, {"low": None, "high": 1.0}],
}


def pointwise_cases(name: str, draw: Sampler) -> Iterator[Case]:
    op = OPERATORS[name]
    if name == "cast":
        for dtype in ("bool", "i8", "i32", "i64", "f16", "bf16", "f32", "f64"):
            yield Case(f"to {dtype}", [draw.special(3, 37)], {"dtype": dtype})
        return
    attr_sets = ATTRS.get(name, [{}])
    for attrs in attr_sets:
        if name == "clamp" and not DTYPES[draw.name].is_float:
            attrs = {key: None if value is None else int(value * 8) for key, value in attrs.items()}

        def inputs(
            draw_one: Callable[..., np.ndarray], shapes: Sequence[tuple[int, ...]]
        ) -> list[np.ndarray]:
            arrays = [draw_one(*shape) for shape in shapes]
            if name == "where":
                arrays[0] = draw.random.random(shapes[0]) < 0.5
            if name in ("tanh_backward", "sigmoid_backward"):
                arrays[1] = np.tanh(arrays[1].astype(np.float64)).astype(arrays[1].dtype)
            return arrays

        count = len(op.inputs)
        one = draw.positive if name in POSITIVE else draw.normal
        for profile, shape in SHAPES.items():
            yield Case(f"{profile} {attrs}", inputs(one, [shape] * count), attrs)
        yield Case(f"special {attrs}", inputs(draw.special, [(9, 11)] * count), attrs)
        yield Case(
            f"transposed {attrs}", [transposed(x) for x in inputs(one, [(13, 21)] * count)], attrs
        )
        if count > 1:
            shapes = [(7, 1, 5), (3, 1), (1,)][:count]
            yield Case(f"broadcast {attrs}", inputs(one, shapes), attrs)
            repeated = [np.broadcast_to(x, (6, 10)) for x in inputs(one, [(1, 10)] * count)]
            yield Case(f"stride 0 {attrs}", repeated, attrs)


# ---------------------------------------------------------------- shaping


@generator("copy")
def copy_cases(draw: Sampler) -> Iterator[Case]:
    x = draw.special(6, 5, 4, 7)
    yield Case("contiguous", [x])
    for order in ((1, 0, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0), (0, 1, 3, 2), (2, 3, 0, 1)):
        yield Case(f"order {order}", [x.transpose(order)])
    yield Case("matrix transposed", [draw.normal(130, 71).T])
    yield Case("sliced", [x[::2, 1:4, :, 1::3]])
    yield Case("stride 0", [np.broadcast_to(draw.normal(1, 5, 1), (3, 5, 4))])
    yield Case("one", [draw.normal(1, 1)])
    yield Case("scalar", [draw.normal()])
    yield Case("empty", [draw.normal(3, 0)])


@generator("concat")
def concat_cases(draw: Sampler) -> Iterator[Case]:
    for axis in (0, 1, -1):
        shapes = []
        for size in (3, 1, 5):
            shape = [4, 6, 7]
            shape[axis] = size
            shapes.append(shape)
        yield Case(f"axis {axis}", [draw.special(*shape) for shape in shapes], {"axis": axis})
    yield Case("views", [draw.normal(4, 3).T, draw.normal(3, 9)[:, ::2]], {"axis": 1})
    yield Case("with empty", [draw.normal(2, 0), draw.normal(2, 3)], {"axis": 1})


@generator("pad")
def pad_cases(draw: Sampler) -> Iterator[Case]:
    x = draw.normal(3, 5)
    yield Case("both", [x], {"low": (1, 0), "high": (2, 3), "value": 2})
    yield Case("none", [x], {"low": (0, 0), "high": (0, 0)})
    yield Case("transposed", [draw.normal(5, 3).T], {"low": (0, 2), "high": (1, 0), "value": 7})
    # FIELD_REPORTS B34
    line = np.array([0, 1]).astype(draw.dtype)
    yield Case("field report", [line], {"low": (0,), "high": (1,), "value": 2})
    yield Case("empty", [draw.normal(0, 2)], {"low": (1, 1), "high": (0, 0), "value": 3})


# ---------------------------------------------------------------- reductions

AXES = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), None, ())


@generator("max", "min")
def reduction_cases(draw: Sampler) -> Iterator[Case]:
    x = draw.normal(5, 6, 7)
    for axes in AXES:
        yield Case(f"axes {axes}", [x], {"axes": axes, "keepdims": axes == (1,)})
    # FIELD_REPORTS B35
    for axis in range(4):
        yield Case(f"axis {axis} of four", [draw.normal(4, 3, 5, 6)], {"axes": (axis,)})
    yield Case("long row", [draw.normal(2, 9001)], {"axes": (1,)})
    yield Case("many rows", [draw.normal(500, 3)], {"axes": (1,)})
    yield Case("tall", [draw.normal(700, 40)], {"axes": (0,)})
    yield Case("one", [draw.normal(1, 1)], {"axes": (0,)})
    yield Case("special", [draw.special(4, 9)], {"axes": (1,)})
    yield Case("special columns", [draw.special(9, 4)], {"axes": (0,)})
    yield Case("empty result", [draw.normal(0, 3)], {"axes": (1,)})


@generator("sum", "mean", "prod", "variance")
def sum_cases(draw: Sampler) -> Iterator[Case]:
    yield from reduction_cases(draw)
    yield Case("empty columns", [draw.normal(0, 3)], {"axes": (0,)})
    yield Case("empty rows", [draw.normal(3, 0)], {"axes": (1,)})


@generator("argmax")
def argmax_cases(draw: Sampler) -> Iterator[Case]:
    for axis in (0, 1, -1):
        yield Case(f"axis {axis}", [draw.normal(5, 6, 7)], {"axis": axis, "keepdims": axis == 1})
    yield Case("long", [draw.normal(2, 9001)], {"axis": 1})
    yield Case("ties", [np.zeros((3, 5)).astype(draw.dtype)], {"axis": 1})
    # FIELD_REPORTS B15
    if DTYPES[draw.name].is_float:
        for turn in range(4):
            x = np.roll([1.0, np.nan, 3.0, np.nan], turn).astype(draw.dtype)
            yield Case(f"NaN {turn}", [x], {"axis": 0})
        yield Case("all NaN", [np.full(3, np.nan).astype(draw.dtype)], {"axis": 0})
        yield Case("all -inf", [np.full(3, -np.inf).astype(draw.dtype)], {"axis": 0})


@generator("cumsum")
def cumsum_cases(draw: Sampler) -> Iterator[Case]:
    for axis in (0, 1, -1):
        yield Case(f"axis {axis}", [draw.normal(5, 6, 7)], {"axis": axis})
    yield Case("long", [draw.normal(2, 2050)], {"axis": 1})
    yield Case("one", [draw.normal(1)], {"axis": 0})
    yield Case("empty", [draw.normal(0, 3)], {"axis": 0})


# ---------------------------------------------------------------- products


@generator("matmul")
def matmul_cases(draw: Sampler) -> Iterator[Case]:
    def case(name: str, a: np.ndarray, b: np.ndarray, bias: bool = False) -> Case:
        kind = np.int32 if draw.name == "i8" else draw.dtype
        return Case(name, [a, b, draw.normal(b.shape[-1]).astype(kind) if bias else None])

    yield case("plain", draw.normal(17, 33), draw.normal(33, 29))
    yield case("bias", draw.normal(40, 24), draw.normal(24, 50), bias=True)
    yield case("one", draw.normal(1, 1), draw.normal(1, 1))
    yield case("row", draw.normal(1, 65), draw.normal(65, 19), bias=True)
    yield case("column", draw.normal(19, 65), draw.normal(65, 1))
    yield case("left transposed", draw.normal(33, 17).T, draw.normal(33, 29))
    yield case("right transposed", draw.normal(17, 33), draw.normal(29, 33).T)
    yield case("both transposed", draw.normal(33, 17).T, draw.normal(29, 33).T)
    yield case("batch", draw.normal(2, 3, 9, 10), draw.normal(2, 3, 10, 11))
    yield case("broadcast batch", draw.normal(2, 1, 9, 10), draw.normal(3, 10, 11))
    yield case("one matrix for all", draw.normal(2, 3, 9, 10), draw.normal(10, 11), bias=True)
    yield case("heads", draw.normal(2, 9, 3, 10).transpose(0, 2, 1, 3), draw.normal(2, 3, 10, 4))
    yield case("deep", draw.normal(5, 1000), draw.normal(1000, 7))
    yield case("blocks", draw.normal(200, 100), draw.normal(100, 530))
    # FIELD_REPORTS B29, B30, B32, B35
    wide = np.lib.stride_tricks.as_strided(
        draw.normal(64 * 65), (64, 64), (65 * draw.dtype.itemsize, draw.dtype.itemsize)
    )
    yield case("row stride", wide, wide)
    expanded = np.broadcast_to(np.ones(1).astype(draw.dtype), (6, 4))
    yield case("stride 0", expanded, draw.normal(4, 8))
    yield case("stride 0 transposed", expanded.T, draw.normal(6, 8))
    yield case("no columns", draw.normal(3, 4), draw.normal(4, 0))
    yield case("no depth", draw.normal(3, 0), draw.normal(0, 2), bias=True)
    yield case("small", draw.normal(3, 5), draw.normal(5, 7))
    if DTYPES[draw.name].is_float:
        yield case("special", draw.special(7, 8), draw.normal(8, 9))


@generator("softmax", "log_softmax")
def softmax_cases(draw: Sampler) -> Iterator[Case]:
    for axis in (0, 1, -1):
        yield Case(f"axis {axis}", [draw.normal(5, 6, 7, scale=4)], {"axis": axis})
    yield Case("long", [draw.normal(3, 9001)], {"axis": -1})
    yield Case("tall", [draw.normal(90, 130)], {"axis": 0})
    yield Case("ones", [np.ones((1, 10)).astype(draw.dtype)], {"axis": 1})
    yield Case("one", [draw.normal(1)], {"axis": 0})
    yield Case("special", [draw.special(20, 9)], {"axis": -1})
    yield Case("special columns", [draw.special(9, 20)], {"axis": 0})
    yield Case("large", [draw.normal(4, 9, scale=1000)], {"axis": -1})
    yield Case("empty", [draw.normal(0, 3)], {"axis": -1})


def softmax_backward(draw: Sampler, log: bool) -> Iterator[Case]:
    for shape, axis in (((5, 6, 7), 0), ((5, 6, 7), 1), ((5, 6, 7), 2), ((3, 9001), 1), ((1,), 0)):
        logits = draw.random.standard_normal(shape)
        out = logits - np.log(np.exp(logits).sum(axis, keepdims=True))
        out = (out if log else np.exp(out)).astype(draw.dtype)
        yield Case(f"{shape} axis {axis}", [draw.normal(*shape), out], {"axis": axis})
    yield Case("empty", [draw.normal(0, 3), draw.normal(0, 3)], {"axis": -1})


@generator("softmax_backward")
def softmax_backward_cases(draw: Sampler) -> Iterator[Case]:
    return softmax_backward(draw, log=False)


@generator("log_softmax_backward")
def log_softmax_backward_cases(draw: Sampler) -> Iterator[Case]:
    return softmax_backward(draw, log=True)


# ---------------------------------------------------------------- norms


def norm_statistics(x: np.ndarray, axes: int, kind: str) -> list[np.ndarray]:
    """mean and rstd as a forward pass leaves them."""
    leading, width = x.shape[: x.ndim - axes], math.prod(x.shape[x.ndim - axes :])
    rows = x.astype(np.float64).reshape(*leading, width)
    mean = rows.mean(-1) if kind == "layer" else np.zeros(rows.shape[:-1])
    rstd = 1 / np.sqrt(((rows - mean[..., None]) ** 2).mean(-1) + 1e-5)
    statistics = np.float64 if x.dtype == np.float64 else np.float32
    return [mean.astype(statistics), rstd.astype(statistics)]


@generator("layer_norm")
def layer_norm_cases(draw: Sampler) -> Iterator[Case]:
    for shape, axes in (((9, 37), 1), ((2, 3, 40), 1), ((4, 3, 5), 2), ((1, 1), 1), ((3, 9001), 1)):
        parameters = [draw.normal(*shape[len(shape) - axes :]) for _ in range(2)]
        x = draw.normal(*shape)
        yield Case(f"{shape}", [x, *parameters], {"axes": axes})
        yield Case(f"{shape} plain", [x, None, None], {"axes": axes, "eps": 1e-3})
        yield Case(f"{shape} weight", [x, parameters[0], None], {"axes": axes})
    yield Case("special", [draw.special(12, 9), None, None])
    yield Case("no rows", [draw.normal(0, 9), draw.normal(9), None])
    # FIELD_REPORTS B24
    if draw.name in ("f32", "f64"):
        for mean in (1e2, 1e3, 1e4, 1e6):
            x = (mean + np.arange(16) * 1e-3).astype(draw.dtype)[None]
            yield Case(f"far mean {mean:g}", [x, None, None])


@generator("layer_norm_backward")
def layer_norm_backward_cases(draw: Sampler) -> Iterator[Case]:
    two = (4, 3, 5)
    for shape in ((9, 37), (2, 3, 40), two, (1, 1), (3, 9001), (700, 20)):
        axes = 2 if shape is two else 1
        x, grad = draw.normal(*shape), draw.normal(*shape)
        statistics = norm_statistics(x, axes, "layer")
        weight = draw.normal(*shape[len(shape) - axes :])
        yield Case(f"{shape}", [grad, x, *statistics, weight], {"axes": axes})
        yield Case(f"{shape} plain", [grad, x, *statistics, None], {"axes": axes})
    x = draw.normal(0, 9)
    yield Case("no rows", [x, x, *norm_statistics(x, 1, "layer"), draw.normal(9)])


@generator("rms_norm")
def rms_norm_cases(draw: Sampler) -> Iterator[Case]:
    for shape in ((9, 37), (2, 3, 40), (1, 1), (3, 9001)):
        yield Case(f"{shape}", [draw.normal(*shape), draw.normal(shape[-1])])
        yield Case(f"{shape} plain", [draw.normal(*shape), None], {"eps": 1e-3})
    yield Case("special", [draw.special(12, 9), None])
    yield Case("no rows", [draw.normal(0, 9), None])


@generator("rms_norm_backward")
def rms_norm_backward_cases(draw: Sampler) -> Iterator[Case]:
    for shape in ((9, 37), (2, 3, 40), (1, 1), (3, 9001), (700, 20)):
        x, grad = draw.normal(*shape), draw.normal(*shape)
        rstd = norm_statistics(x, 1, "rms")[1]
        yield Case(f"{shape}", [grad, x, rstd, draw.normal(shape[-1])])
        yield Case(f"{shape} plain", [grad, x, rstd, None])


# ---------------------------------------------------------------- loss


def loss_variants() -> Iterator[dict[str, Any]]:
    for reduction in ("mean", "sum", "none"):
        for smoothing in (0.0, 0.1):
            yield {"reduction": reduction, "label_smoothing": smoothing}


def logits_and_targets(draw: Sampler) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    target = draw.index(19, 33)
    target[[3, 7]] = -100
    yield "plain", draw.normal(33, 19, scale=2), target
    yield "wide", draw.normal(3, 9001), draw.index(9001, 3)
    # FIELD_REPORTS B26
    yield "all ignored", draw.normal(3, 5), np.full(3, -100)
    yield "one class", draw.normal(4, 1), np.zeros(4, np.int64)
    x = draw.normal(4, 5)
    x[1] = np.nan
    yield "NaN in an ignored row", x, np.array([1, -100, 2, 3])
    yield "outside", draw.normal(3, 5), np.array([1, 5, -7])
    yield "no rows", draw.normal(0, 5), np.zeros(0, np.int64)


@generator("cross_entropy")
def cross_entropy_cases(draw: Sampler) -> Iterator[Case]:
    for name, x, target in logits_and_targets(draw):
        for attrs in loss_variants():
            yield Case(f"{name} {attrs}", [x, target], attrs)


@generator("cross_entropy_backward")
def cross_entropy_backward_cases(draw: Sampler) -> Iterator[Case]:
    statistics = np.float64 if draw.name == "f64" else np.float32
    for name, x, target in logits_and_targets(draw):
        for attrs in loss_variants():
            _, lse, count = OPERATORS["cross_entropy"].reference([x, target], attrs)
            shape = (x.shape[0],) if attrs["reduction"] == "none" else ()
            inputs = [draw.positive(*shape), x, target, lse.astype(statistics)]
            yield Case(f"{name} {attrs}", [*inputs, np.asarray(count, np.float32)], attrs)


# ---------------------------------------------------------------- attention

ATTENTION_SHAPES = {  # batch, heads, key heads, queries, keys, width
    "square": (2, 3, 3, 33, 33, 16),
    "grouped": (1, 4, 2, 20, 20, 16),
    "blocks": (1, 2, 2, 150, 150, 32),
    "more keys": (1, 2, 1, 9, 140, 24),
    "more queries": (1, 1, 1, 140, 9, 64),
    "many heads": (4, 8, 4, 70, 70, 16),
    "one": (1, 1, 1, 1, 1, 16),
}


def attention_inputs(draw: Sampler) -> Iterator[tuple[str, list[np.ndarray], dict[str, Any]]]:
    few = {name: ATTENTION_SHAPES[name] for name in ("grouped", "many heads")}
    shapes = ATTENTION_SHAPES if draw.name == "f32" else few  # each shape compiles its own kernels
    for name, (batch, heads, key_heads, queries, keys, width) in shapes.items():
        for causal in (False, True):
            q = draw.normal(batch, heads, queries, width)
            k, v = (draw.normal(batch, key_heads, keys, width) for _ in range(2))
            yield f"{name} causal={causal}", [q, k, v], {"causal": causal}
    q, k, v = (draw.normal(2, 11, 3, 16).transpose(0, 2, 1, 3) for _ in range(3))
    yield "heads inside", [q, k, v], {"causal": True, "scale": 0.3}


@generator("attention")
def attention_cases(draw: Sampler) -> Iterator[Case]:
    for name, inputs, attrs in attention_inputs(draw):
        yield Case(name, inputs, attrs)
    yield Case("no keys", [draw.normal(1, 1, 3, 16), *[draw.normal(1, 1, 0, 16)] * 2])
    yield Case("no queries", [draw.normal(1, 1, 0, 16), *[draw.normal(1, 1, 3, 16)] * 2])


@generator("attention_backward")
def attention_backward_cases(draw: Sampler) -> Iterator[Case]:
    statistics = np.float64 if draw.name == "f64" else np.float32
    for name, inputs, attrs in attention_inputs(draw):
        out, lse = OPERATORS["attention"].reference(inputs, attrs)
        grad = draw.normal(*out.shape)
        forward = [out.astype(draw.dtype), lse.astype(statistics)]
        yield Case(name, [grad, *inputs, *forward], attrs)


# ---------------------------------------------------------------- indexing


@generator("embedding")
def embedding_cases(draw: Sampler) -> Iterator[Case]:
    yield Case("plain", [draw.normal(11, 37), draw.index(11, 3, 5)])
    yield Case("outside", [draw.normal(4, 8), np.array([0, 4, -1, 3])])
    yield Case("transposed table", [draw.normal(8, 5).T, draw.index(5, 6)])
    yield Case("special", [draw.special(6, 5), draw.index(6, 9)])
    yield Case("empty", [draw.normal(4, 8), np.zeros((0, 2), np.int64)])


@generator("embedding_backward")
def embedding_backward_cases(draw: Sampler) -> Iterator[Case]:
    yield Case("plain", [draw.normal(3, 5, 37), draw.index(11, 3, 5)], {"rows": 11})
    # FIELD_REPORTS B28
    ones = np.ones((4, 2)).astype(draw.dtype)
    yield Case("field report", [ones, np.array([1, 1, 1, 2])], {"rows": 3})
    yield Case("many", [draw.normal(400, 9), draw.index(7, 400)], {"rows": 7})
    attrs = {"rows": 5, "padding_idx": 2}
    yield Case("padding", [draw.normal(20, 70), draw.index(5, 20)], attrs)
    yield Case("outside", [draw.normal(3, 4), np.array([0, 9, -1])], {"rows": 2})
    yield Case("empty", [draw.normal(0, 4), np.zeros(0, np.int64)], {"rows": 2})


@generator("gather")
def gather_cases(draw: Sampler) -> Iterator[Case]:
    for axis in (0, 1, -1):
        shape = [4, 5, 6]
        shape[axis] = 7
        index = draw.index([4, 5, 6][axis], *shape)
        yield Case(f"axis {axis}", [draw.special(4, 5, 6), index], {"axis": axis})
    yield Case("outside", [draw.normal(3, 2), np.array([[0, 3, -1]] * 3)], {"axis": 1})
    yield Case("empty", [draw.normal(3, 2), np.zeros((3, 0), np.int64)], {"axis": 1})


@generator("scatter_add")
def scatter_add_cases(draw: Sampler) -> Iterator[Case]:
    for axis in (0, 1, -1):
        shape = [4, 5, 6]
        shape[axis] = 9
        index = draw.index([4, 5, 6][axis], *shape)
        inputs = [draw.normal(4, 5, 6), index, draw.normal(*shape)]
        yield Case(f"axis {axis}", inputs, {"axis": axis})
    outside = np.array([[0, 3, -1, 1]] * 3)
    yield Case("outside", [draw.normal(3, 2), outside, draw.normal(3, 4)], {"axis": 1})
    yield Case("transposed", [draw.normal(2, 3).T, outside, draw.normal(3, 4)], {"axis": 1})
    none = np.zeros((3, 0), np.int64)
    yield Case("empty", [draw.normal(3, 2), none, draw.normal(3, 0)], {"axis": 1})


@generator("index_select")
def index_select_cases(draw: Sampler) -> Iterator[Case]:
    for axis in (0, 1, -1):
        index = draw.index([4, 5, 6][axis], 8)
        yield Case(f"axis {axis}", [draw.special(4, 5, 6), index], {"axis": axis})
    yield Case("outside", [draw.normal(3, 2), np.array([0, 3, -1])], {"axis": 0})
    yield Case("empty", [draw.normal(3, 2), np.zeros(0, np.int64)], {"axis": 0})


# ---------------------------------------------------------------- random, optimizers

KEY = np.array([2**40 + 3, 5], np.int64)


@generator("uniform", "normal")
def random_cases(draw: Sampler) -> Iterator[Case]:
    # FIELD_REPORTS B38
    for shape in ((5,), (7,), (1023,), (3, 5000), (), (0, 3)):
        yield Case(f"{shape}", [KEY], {"shape": shape, "dtype": draw.name, "stream": 3})


@generator("dropout")
def dropout_cases(draw: Sampler) -> Iterator[Case]:
    for shape in ((5,), (7,), (1023,), (3, 5000), (0, 3)):
        yield Case(f"{shape}", [draw.normal(*shape), KEY], {"p": 0.3, "stream": 2**31 + 1})
    for probability in (0.0, 1.0):
        yield Case(f"p={probability}", [draw.normal(40), KEY], {"p": probability})


def scalar(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


@generator("adamw")
def adamw_cases(draw: Sampler) -> Iterator[Case]:
    for name, shape in (("plain", (5, 37)), ("blocks", (20000,)), ("one", (1,)), ("empty", (0,))):
        state = [*(draw.normal(*shape) for _ in range(3)), draw.positive(*shape)]
        for step in (1.0, 1000.0):
            inputs = [*state, scalar(step), scalar(0.01)]
            yield Case(f"{name} step {step}", [*inputs, None])
            yield Case(f"{name} step {step} scale", [*inputs, scalar(0.5)],
                       {"decoupled": False, "weight_decay": 0.1})  # fmt: skip
    inputs = [*state, scalar(2), scalar(0.01), None]
    yield Case("maximize", inputs, {"maximize": True, "beta1": 0.5, "beta2": 0.95})


@generator("sgd")
def sgd_cases(draw: Sampler) -> Iterator[Case]:
    param, grad, buffer = (draw.normal(5, 37) for _ in range(3))
    yield Case("plain", [param, grad, None, scalar(0.1)])
    attrs = {"momentum": 0.9, "weight_decay": 0.01}
    yield Case("momentum", [param, grad, buffer, scalar(0.1)], attrs)
    yield Case("nesterov", [param, grad, buffer, scalar(0.1)], {**attrs, "nesterov": True})
    attrs["dampening"] = 0.5
    for step in (1.0, 2.0):
        inputs = [param, grad, buffer, scalar(0.1), scalar(step), scalar(0.5)]
        yield Case(f"step {step}", inputs, {**attrs, "maximize": True})


@generator("global_norm")
def global_norm_cases(draw: Sampler) -> Iterator[Case]:
    yield Case("several", [draw.normal(5, 37), draw.normal(1), draw.normal(0, 3)])
    yield Case("parts", [draw.normal(70000), draw.normal(4097)])
    yield Case("none", [])
    yield Case("NaN", [np.array([1.0, np.nan]).astype(draw.dtype)])


# ---------------------------------------------------------------- all of them

#: Operators that take integers or bools too.
INTEGER_OPS = {
    "copy": ("i64", "i8", "bool"), "concat": ("i32", "bool"), "pad": ("i64", "u8"),
    "sum": ("i32", "bool"), "prod": ("i64",), "max": ("i32", "u8"), "min": ("i64",),
    "argmax": ("i32",), "cumsum": ("i32",), "matmul": ("i8",), "gather": ("i64",),
    "scatter_add": ("i32",), "index_select": ("i32", "bool"),
    "cast": ("i32", "i64", "i8", "u8", "bool"), "where": ("i64",),
    "eq": ("i32", "bool"), "ne": ("i64", "bool"), "lt": ("i32", "u8"), "le": ("i64",),
    "gt": ("i8",), "ge": ("i32",), "add": ("i32", "i64"), "sub": ("i32",), "mul": ("i64",),
    "neg": ("i32",), "abs": ("i32",), "sign": ("i32",), "square": ("i32",), "relu": ("i32",),
    "maximum": ("i32", "u8"), "minimum": ("i64",), "remainder": ("i32", "i64"),
    "floor_divide": ("i32", "i64"), "clamp": ("i32",),
}  # fmt: skip
ONLY_BOOL = ("logical_not", "logical_and", "logical_or")
#: Views and constants have no kernels.
NO_KERNEL = ("constant", "arange", "reshape", "transpose", "broadcast_to", "slice")
#: Made by the compiler out of the other ones.
MADE = ("pointwise_group",)


def dtypes(name: str) -> tuple[str, ...]:
    """The dtypes an operator is tried with."""
    if name in ONLY_BOOL:
        return ("bool",)
    return (*FLOATS, *INTEGER_OPS.get(name, ()))


def cases(name: str, dtype: str) -> list[Case]:
    """The cases of operator `name` with `dtype`."""
    draw = Sampler(dtype, zlib.crc32(f"{name} {dtype}".encode()))
    if OPERATORS[name].is_pointwise:
        return list(pointwise_cases(name, draw))
    return list(GENERATORS[name](draw))
