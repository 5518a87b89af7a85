"""The float64 references against independent formulas: torch in float64 and known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from isthmus.ops import operator

RNG = np.random.default_rng(7)


def run(name: str, *inputs: object, **attrs: object) -> list[np.ndarray]:
    return operator(name).reference(inputs, attrs)  # type: ignore[arg-type]


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).requires_grad_(array.dtype.kind == "f")


UNARY = {
    "exp": torch.exp, "tanh": torch.tanh, "erf": torch.erf, "sigmoid": torch.sigmoid,
    "relu": torch.relu, "silu": functional.silu, "gelu": functional.gelu, "rsqrt": torch.rsqrt,
    "sin": torch.sin, "cos": torch.cos, "floor": torch.floor, "ceil": torch.ceil,
    "abs": torch.abs, "neg": torch.neg, "square": torch.square, "reciprocal": torch.reciprocal,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = RNG.standard_normal(100)
    np.testing.assert_allclose(
        run(name, x)[0], UNARY[name](torch.from_numpy(x)).numpy(), rtol=1e-12, equal_nan=True
    )


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_backward(approximate):
    x, grad = RNG.standard_normal((2, 200)) * 3
    given = tensor(x)
    functional.gelu(given, approximate=approximate).backward(tensor(grad))
    actual = run("gelu_backward", grad, x, approximate=approximate)[0]
    np.testing.assert_allclose(actual, given.grad.numpy(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", ["silu", "relu", "tanh", "sigmoid"])
def test_activation_backward(name):
    x, grad = RNG.standard_normal((2, 200)) * 3
    given = tensor(x)
    out = UNARY[name](given)
    out.backward(tensor(grad))
    second = x if name in ("silu", "relu") else out.detach().numpy()
    actual = run(f"{name}_backward", grad, second)[0]
    np.testing.assert_allclose(actual, given.grad.numpy(), rtol=1e-10, atol=1e-14)


def test_tanh_gelu_does_not_overflow():
    # FIELD_REPORTS B22
    x = np.array([10.5, 13.0, 15.5, -13.0, -20.0])
    out = run("gelu", x, approximate="tanh")[0]
    np.testing.assert_allclose(out, [10.5, 13.0, 15.5, -0.0, -0.0], atol=1e-70)
    assert np.signbit(out).tolist() == [False, False, False, True, True]


def test_integer_division_floors():
    # FIELD_REPORTS B06, B08
    a, b = np.array([-7, 7, -7, 7]), np.array([2, -2, -2, 2])
    np.testing.assert_array_equal(run("floor_divide", a, b)[0], [-4, -4, 3, 3])
    np.testing.assert_array_equal(run("remainder", a, b)[0], [1, -1, -1, 1])
    lowest = np.array([-(2**31)], np.int32)
    assert run("floor_divide", lowest, np.array([-1], np.int32))[0] == -(2**31)
    assert run("remainder", lowest, np.array([-1], np.int32))[0] == 0
    assert run("floor_divide", a, np.zeros(4, np.int64))[0].tolist() == [0, 0, 0, 0]


def test_float_floor_division_goes_through_the_remainder():
    # FIELD_REPORTS B10
    a, b = np.array([1.0, 0.5, 6.0]), np.array([0.1, 0.1, 0.2])
    np.testing.assert_array_equal(run("floor_divide", a, b)[0], [9, 4, 29])


@pytest.mark.parametrize("turn", range(4))
def test_nan_wins_maximum_and_argmax(turn):
    # FIELD_REPORTS B15
    x = np.roll([1.0, np.nan, 3.0, np.nan], turn)
    assert np.isnan(run("max", x)[0])
    assert run("argmax", x, axis=0)[0] == np.flatnonzero(np.isnan(x))[0]


def test_integer_sum_widens():
    # FIELD_REPORTS B17
    assert run("sum", np.full(128, 2**30, np.int32))[0] == 137438953472


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.2691408770292272, 0.26953125), (3.14, 3.140625), (1.00390625, 1.0), (1.01171875, 1.015625)],
)
def test_bf16_rounds_to_nearest_even(value, rounded):
    # FIELD_REPORTS B20
    assert run("cast", np.array([value]), dtype="bf16")[0] == rounded


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_cast_rounds_as_the_library_does(dtype):
    x = np.concatenate(
        [
            RNG.standard_normal(2000).astype(np.float32),
            np.ldexp(RNG.standard_normal(4000), RNG.integers(-140, 126, 4000)).astype(np.float32),
            np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32),
            np.array([65504, 65519.9, 65520, 3.4e38], np.float32),
        ]
    )
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    expected = torch.from_numpy(x).to(kind).double().numpy()
    np.testing.assert_array_equal(run("cast", x, dtype=dtype)[0], expected)


def test_cast_to_integer_saturates():
    x = np.array([1.9, -1.9, 1e30, -1e30, np.nan, np.inf])
    actual = run("cast", x, dtype="i64")[0]
    assert actual.tolist() == [1, -1, 2**63 - 1, -(2**63), 0, 2**63 - 1]


@pytest.mark.parametrize(
    ("mean", "first"), [(1e2, -1.3415), (1e3, -1.3415), (1e4, -1.3313), (1e6, 0.0)]
)
def test_layer_norm_of_a_far_mean(mean, first):
    # FIELD_REPORTS B24
    x = (mean + np.arange(16) * 1e-3).astype(np.float32)[None]
    out = run("layer_norm", x, eps=1e-5)[0]
    spread = run("variance", x, axes=(1,), correction=0)[0]
    normal = (x.astype(np.float64) - x.astype(np.float64).mean()) / np.sqrt(spread + 1e-5)
    np.testing.assert_allclose(out, normal, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(out[0, 0], first, atol=5e-3)


@pytest.mark.parametrize("axes", [1, 2])
def test_layer_norm_and_gradient(axes):
    x, grad = RNG.standard_normal((2, 5, 3, 7))
    shape = x.shape[3 - axes :]
    weight, bias = RNG.standard_normal((2, *shape))
    given = [tensor(array) for array in (x, weight, bias)]
    expected = functional.layer_norm(given[0], shape, given[1], given[2], 1e-5)
    expected.backward(tensor(grad))
    out, mean, rstd = run("layer_norm", x, weight, bias, axes=axes)
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    for actual, wanted in zip(
        run("layer_norm_backward", grad, x, mean, rstd, weight, axes=axes), given, strict=True
    ):
        np.testing.assert_allclose(actual, wanted.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_rms_norm_and_gradient():
    x, grad = RNG.standard_normal((2, 5, 3, 7))
    weight = RNG.standard_normal(7)
    given = [tensor(x), tensor(weight)]
    expected = functional.rms_norm(given[0], (7,), given[1], 1e-6)
    expected.backward(tensor(grad))
    out, rstd = run("rms_norm", x, weight)
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-10)
    for actual, wanted in zip(run("rms_norm_backward", grad, x, rstd, weight), given, strict=True):
        np.testing.assert_allclose(actual, wanted.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_and_gradient(name, axis):
    x, grad = RNG.standard_normal((2, 4, 5, 6)) * 5
    given = tensor(x)
    expected = getattr(torch, name)(given, axis)
    expected.backward(tensor(grad))
    out = run(name, x, axis=axis)[0]
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    actual = run(f"{name}_backward", grad, out, axis=axis)[0]
    np.testing.assert_allclose(actual, given.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_and_gradient(reduction, smoothing):
    x = RNG.standard_normal((9, 5)) * 4
    target = np.array([0, 1, 2, 3, 4, -100, 2, -100, 0])
    given = tensor(x)
    expected = functional.cross_entropy(
        given, torch.from_numpy(target), reduction=reduction, label_smoothing=smoothing
    )
    grad = RNG.standard_normal(expected.shape)
    expected.backward(torch.as_tensor(grad))
    attrs = {"reduction": reduction, "label_smoothing": smoothing}
    loss, lse, count = run("cross_entropy", x, target, **attrs)
    assert count == 7
    np.testing.assert_allclose(loss, expected.detach().numpy(), rtol=1e-10)
    actual = run("cross_entropy_backward", grad, x, target, lse, count, **attrs)[0]
    np.testing.assert_allclose(actual, given.grad.numpy(), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_with_every_row_ignored(reduction):
    # FIELD_REPORTS B26
    x, target = RNG.standard_normal((3, 5)), np.full(3, -100)
    loss, lse, count = run("cross_entropy", x, target, reduction=reduction)
    expected = {"mean": np.nan, "sum": 0.0, "none": np.zeros(3)}[reduction]
    np.testing.assert_array_equal(loss, expected)
    grad = np.ones(loss.shape)
    actual = run("cross_entropy_backward", grad, x, target, lse, count, reduction=reduction)[0]
    np.testing.assert_array_equal(actual, np.zeros((3, 5)))


def test_cross_entropy_of_a_target_outside_is_nan():
    x = RNG.standard_normal((2, 3))
    loss, lse, count = run("cross_entropy", x, np.array([1, 3]), reduction="none")
    assert np.isnan(loss).tolist() == [False, True]
    grad = run("cross_entropy_backward", np.ones(2), x, np.array([1, 3]), lse, count,
               reduction="none")[0]  # fmt: skip
    assert np.isnan(grad).all(1).tolist() == [False, True]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "key_heads", "keys"), [(4, 4, 6), (4, 2, 6), (2, 1, 9)])
def test_attention_and_gradient(causal, heads, key_heads, keys):
    q, grad = RNG.standard_normal((2, 2, heads, 6, 8))
    k, v = RNG.standard_normal((2, 2, key_heads, keys, 8))
    given = [tensor(array) for array in (q, k, v)]
    expected = functional.scaled_dot_product_attention(
        *given, is_causal=causal, enable_gqa=heads != key_heads
    )
    expected.backward(tensor(grad))
    out, lse = run("attention", q, k, v, causal=causal)
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    for actual, wanted in zip(
        run("attention_backward", grad, q, k, v, out, lse, causal=causal), given, strict=True
    ):
        np.testing.assert_allclose(actual, wanted.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_attention_without_keys():
    q, k = np.ones((1, 1, 2, 4)), np.ones((1, 1, 0, 4))
    out, lse = run("attention", q, k, k)
    np.testing.assert_array_equal(out, np.zeros((1, 1, 2, 4)))
    assert np.isneginf(lse).all()


def test_embedding_backward_adds_repeated_indices():
    # FIELD_REPORTS B28
    out = run("embedding_backward", np.ones((4, 2)), np.array([1, 1, 1, 2]), rows=3)[0]
    np.testing.assert_array_equal(out, [[0, 0], [3, 3], [1, 1]])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_indexing(axis):
    x = RNG.standard_normal((3, 4, 5))
    shape = [6 if position == axis else size for position, size in enumerate(x.shape)]
    index = RNG.integers(0, x.shape[axis], shape)
    source = RNG.standard_normal(shape)
    x_t, index_t, source_t = map(torch.from_numpy, (x, index, source))
    np.testing.assert_array_equal(run("gather", x, index, axis=axis)[0], x_t.gather(axis, index_t))
    np.testing.assert_allclose(
        run("scatter_add", x, index, source, axis=axis)[0],
        x_t.scatter_add(axis, index_t, source_t),
    )
    line = RNG.integers(0, x.shape[axis], 7)
    np.testing.assert_array_equal(
        run("index_select", x, line, axis=axis)[0], x_t.index_select(axis, torch.from_numpy(line))
    )


@pytest.mark.parametrize("decoupled", [True, False])
def test_adamw_follows_torch(decoupled):
    start, *grads = RNG.standard_normal((4, 10))
    p = torch.from_numpy(start.copy()).requires_grad_()
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind([p], lr=1e-2, weight_decay=0.1)
    state = [start, np.zeros(10), np.zeros(10)]
    for step, grad in enumerate(grads, 1):
        p.grad = torch.from_numpy(grad)
        optimizer.step()
        state = run("adamw", state[0], grad, *state[1:], np.float64(step), np.float64(1e-2),
                    weight_decay=0.1, decoupled=decoupled)  # fmt: skip
        np.testing.assert_allclose(state[0], p.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("nesterov", [True, False])
def test_sgd_follows_torch(nesterov):
    start, *grads = RNG.standard_normal((4, 10))
    p = torch.from_numpy(start.copy()).requires_grad_()
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.01)
    state = [start, np.zeros(10)]
    for grad in grads:
        p.grad = torch.from_numpy(grad)
        optimizer.step()
        state = run("sgd", state[0], grad, state[1], np.float64(0.1), momentum=0.9,
                    nesterov=nesterov, weight_decay=0.01)  # fmt: skip
        np.testing.assert_allclose(state[0], p.detach().numpy(), rtol=1e-12)


def test_philox_known_answers():
    # known answers of the Random123 distribution (kat_vectors)
    from isthmus.ops.random import philox

    def words(*counter: int) -> tuple[np.ndarray, ...]:
        return tuple(np.array([word], np.uint64) for word in counter)

    ones = 0xFFFFFFFF
    cases = (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones, ones), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    )
    for counter, key, expected in cases:
        assert tuple(int(word[0]) for word in philox(words(*counter), key)) == expected


def test_random_numbers():
    # FIELD_REPORTS B38
    key = np.array([2**40 + 3, 5], np.int64)
    shape = (100, 1023)
    uniform = run("uniform", key, shape=shape)[0]
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 4 * math.sqrt(1 / 12 / uniform.size)
    normal = run("normal", key, shape=shape, stream=1)[0]
    assert abs(normal.mean()) < 4 / math.sqrt(normal.size)
    assert abs(normal.std() - 1) < 4 / math.sqrt(2 * normal.size)
    part = run("uniform", key, shape=(7,))[0]
    np.testing.assert_array_equal(part, uniform.reshape(-1)[:7])
    later = run("uniform", np.array([2**40 + 3, 6], np.int64), shape=shape)[0]
    assert (later != uniform).mean() > 0.99
    out, mask = run("dropout", np.ones(shape), key, p=0.3)
    np.testing.assert_array_equal(out, mask / 0.7)
    assert abs(mask.mean() - 0.7) < 4 * math.sqrt(0.21 / mask.size)


def test_every_operator_states_its_contract():
    from isthmus.ops import OPERATORS

    for name, op in OPERATORS.items():
        assert op.doc, name
        assert op.nan, name
        assert op.empty, name
        for tolerance in op.tolerance.values():
            assert tolerance.reason, name
