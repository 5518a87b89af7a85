"""Shape and dtype rules: results, and what the errors say."""

from __future__ import annotations

import pytest

from isthmus.core.dtypes import dtype_named
from isthmus.core.errors import DTypeError, ProgramError, ShapeError
from isthmus.ops import OPERATORS, TensorSpec, operator


def spec(text: str) -> TensorSpec:
    """A spec from text such as "f32 2 3"."""
    dtype, *sizes = text.split()
    return TensorSpec(tuple(map(int, sizes)), dtype_named(dtype))


def infer(name: str, *inputs: str | None, **attrs: object) -> list[str]:
    specs = [None if text is None else spec(text) for text in inputs]
    return [
        " ".join([out.dtype.name, *map(str, out.shape)])
        for out in operator(name).infer(specs, attrs)
    ]


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "outputs"),
    [
        ("add", ("f32 3 1", "f32 4"), {}, ["f32 3 4"]),
        ("eq", ("i64 3", "i64 3"), {}, ["bool 3"]),
        ("where", ("bool 3", "f16 1", "f16 2 3"), {}, ["f16 2 3"]),
        ("cast", ("i8 2",), {"dtype": "f64"}, ["f64 2"]),
        ("reshape", ("f32 2 3",), {"shape": [3, 2]}, ["f32 3 2"]),
        ("slice", ("f32 2 9",), {"axis": 1, "start": 1, "stop": 8, "step": 3}, ["f32 2 3"]),
        ("concat", ("f32 2 3", "f32 2 4"), {"axis": -1}, ["f32 2 7"]),
        ("pad", ("f32 2 3",), {"low": [1, 0], "high": [0, 2]}, ["f32 3 5"]),
        ("sum", ("i32 2 3",), {}, ["i64"]),
        ("sum", ("bf16 2 3",), {"axes": [0], "keepdims": True}, ["bf16 1 3"]),
        ("argmax", ("f32 2 3",), {"axis": 1}, ["i64 2"]),
        ("matmul", ("f32 5 2 3", "f32 3 4", "f32 4"), {}, ["f32 5 2 4"]),
        ("matmul", ("i8 2 3", "i8 3 4"), {}, ["i32 2 4"]),
        ("layer_norm", ("bf16 4 3 5", "f32 3 5"), {"axes": 2}, ["bf16 4 3 5", "f32 4", "f32 4"]),
        ("rms_norm", ("f64 4 5",), {}, ["f64 4 5", "f64 4"]),
        ("cross_entropy", ("f32 4 5", "i64 4"), {"reduction": "none"}, ["f32 4", "f32 4", "f32"]),
        ("attention", ("f16 2 4 7 8", "f16 2 2 9 8", "f16 2 2 9 8"), {},
         ["f16 2 4 7 8", "f32 2 4 7"]),
        ("embedding", ("f32 9 4", "i64 2 3"), {}, ["f32 2 3 4"]),
        ("uniform", ("i64 2",), {"shape": (3,), "dtype": "bf16"}, ["bf16 3"]),
        ("dropout", ("f32 3", "i64 2"), {}, ["f32 3", "bool 3"]),
        ("adamw", ("bf16 3", "f32 3", "f32 3", "f32 3", "f32", "f32"), {},
         ["bf16 3", "f32 3", "f32 3"]),
        ("global_norm", ("f32 3", "bf16 2 2"), {}, ["f32"]),
    ],
)  # fmt: skip
def test_result(name, inputs, attrs, outputs):
    assert infer(name, *inputs, **attrs) == outputs


@pytest.mark.parametrize(
    ("error", "text", "name", "inputs", "attrs"),
    [
        (ShapeError, "[2] and [3] do not broadcast", "add", ("f32 2", "f32 3"), {}),
        (DTypeError, "different dtypes f16, f32", "add", ("f32 2", "f16 2"), {}),
        (DTypeError, "x is i32; allowed: f16", "exp", ("i32 2",), {}),
        (DTypeError, "allowed: bool", "logical_and", ("f32 2", "f32 2"), {}),
        (ShapeError, "[2, 3] and [4, 5] do not multiply", "matmul", ("f32 2 3", "f32 4 5"), {}),
        (ShapeError, "bias has shape [3], expected [5]", "matmul",
         ("f32 2 3", "f32 3 5", "f32 3"), {}),
        (ShapeError, "has 6 elements", "reshape", ("f32 2 3",), {"shape": [4]}),
        (ShapeError, "axis 2 is outside a tensor of 2 dimensions", "softmax", ("f32 2 3",),
         {"axis": 2}),
        (ShapeError, "twice", "sum", ("f32 2 3",), {"axes": [0, -2]}),
        (ShapeError, "no largest", "max", ("f32 2 0",), {"axes": [1]}),
        (ShapeError, "weight has shape [2], expected [3]", "layer_norm", ("f32 2 3", "f32 2"), {}),
        (ProgramError, "reduction is 'max'", "cross_entropy", ("f32 4 5", "i64 4"),
         {"reduction": "max"}),
        (DTypeError, "target is i32; allowed: i64", "cross_entropy", ("f32 4 5", "i32 4"), {}),
        (ShapeError, "a multiple of those of k", "attention",
         ("f32 1 3 4 8", "f32 1 2 4 8", "f32 1 2 4 8"), {}),
        (ProgramError, "amsgrad", "adamw", ("f32 3",) * 4 + ("f32", "f32"), {"amsgrad": True}),
        (ProgramError, "needs its input 'b'", "add", ("f32 2",), {}),
        (ProgramError, "takes 1 inputs, got 2", "exp", ("f32 2", "f32 2"), {}),
        (ProgramError, "has no attribute 'axis'", "exp", ("f32 2",), {"axis": 1}),
        (ProgramError, "needs the attribute 'dtype'", "cast", ("f32 2",), {}),
    ],
)  # fmt: skip
def test_error(error, text, name, inputs, attrs):
    with pytest.raises(error) as caught:
        infer(name, *inputs, **attrs)
    assert text in str(caught.value)


def test_costs():
    def cost(name: str, *inputs: str, **attrs: object) -> tuple[int, int]:
        op, specs = operator(name), [spec(text) for text in inputs]
        found = op.cost(specs, op.infer(specs, attrs), attrs)
        return found.flops, found.bytes_moved

    assert cost("add", "f32 3 4", "f32 4") == (12, 4 * (12 + 4 + 12))
    assert cost("matmul", "f32 2 3", "f32 3 5") == (60, 4 * (6 + 15 + 10))
    full, _ = cost("attention", *["f32 1 1 8 4"] * 3)
    causal, _ = cost("attention", *["f32 1 1 8 4"] * 3, causal=True)
    assert causal * 64 == full * 36


def test_every_operator_names_what_it_has():
    for name, op in OPERATORS.items():
        assert op.name == name
        assert set(op.pointwise_attrs) <= set(op.attrs)
        assert all(index >= 0 for targets in op.inplace.values() for index in targets)
        assert not (op.is_pointwise and op.plan), f"{name}: element-wise kernels are generated"
