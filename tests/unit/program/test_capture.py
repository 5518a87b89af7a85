"""Capturing models of many kinds; what cannot be captured is said clearly."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import isthmus
from isthmus.core.errors import CaptureError
from isthmus.program.session import Session


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return torch.fft.fft(y.flatten(1)).real


def mse(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["y"])


def sgd(model: nn.Module, **settings) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **settings})


def batch(*shape: int, out: int = 3) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(*shape), "y": torch.randn(*shape[:-1], out)}


class RmsNormNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.out = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        return self.out(F.silu(x))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(8, 12)
        self.out = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.both(x).chunk(2, dim=-1)
        mask = (x[..., :6] > 0).float()
        return self.out(torch.sigmoid(gate) * torch.tanh(value) * mask + value.clamp(-1, 1) / 2)


class HandMadeAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.out = nn.Linear(8, 3)
        self.register_buffer("mask", torch.tril(torch.ones(5, 5)).bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / 8**0.5
        weights = scores.masked_fill(~self.mask, float("-inf")).softmax(-1)
        return self.out(torch.cat([weights @ self.v(x)], dim=-1))


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1])
        return self.out(torch.relu(x + self.table(places)))


@pytest.mark.parametrize(
    ("model", "example", "optimizer"),
    [
        (lambda: nn.Linear(8, 3), batch(4, 8), sgd),
        (lambda: nn.Linear(8, 3), batch(4, 8), lambda m: sgd(m, momentum=0.9, weight_decay=0.01)),
        (lambda: nn.Linear(8, 3), batch(4, 8), lambda m: sgd(m, momentum=0.9, nesterov=True)),
        (lambda: nn.Linear(8, 3), batch(4, 8), lambda m: torch.optim.Adam(m.parameters())),
        (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3)),
         batch(4, 8), lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2)),
        (lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.GELU(approximate="tanh"),
                               nn.Linear(16, 3)), batch(6, 8), sgd),
        (RmsNormNet, batch(2, 5, 8), sgd),
        (Gated, batch(4, 8), sgd),
        (HandMadeAttention, batch(2, 5, 8), sgd),
        (Positions, batch(2, 5, 8), sgd),
    ],
    ids=["linear", "momentum", "nesterov", "adam", "mlp-adamw", "dropout", "rms-norm", "gated",
         "attention", "positions"],
)  # fmt: skip
def test_self_check_accepts(model, example, optimizer):
    torch.manual_seed(0)
    made = model()
    program = isthmus.capture(made, mse, optimizer(made), example, forward=lambda m, b: m(b["x"]))
    session = Session(program)
    session.load_state_dict(
        {f"model.{n}": p.detach().numpy() for n, p in made.state_dict().items()}, graph="forward"
    )
    made.eval()
    want = made(example["x"]).detach().numpy()
    got = session.run("forward", {"x": example["x"].numpy()})["output"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_capture_leaves_model_and_optimizer_as_they_were():
    model = nn.Linear(8, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    isthmus.capture(model, mse, optimizer, batch(4, 8))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert not optimizer.state
    assert model.training
    assert optimizer.param_groups[0]["params"][0] is model.weight
    del state


def test_every_unknown_operator_is_listed_with_its_line():
    model = Convolution()
    example = {"x": torch.randn(2, 1, 8, 8), "y": torch.randn(2, 72)}
    with pytest.raises(CaptureError) as caught:
        isthmus.capture(model, mse, sgd(model), example)
    text = str(caught.value)
    assert "convolution" in text
    assert "fft" in text
    assert "test_capture.py:" in text
    assert "in Convolution.forward" in text


@pytest.mark.parametrize(
    ("loss", "optimizer", "message"),
    [
        (lambda m, b: m(b["x"]), sgd, "it must be one number"),
        (lambda m, b: (m(b["x"]).mean(), 1), sgd, "it must give one tensor"),
        (mse, lambda m: torch.optim.Adagrad(m.parameters()), "Adagrad has no counterpart"),
        (mse, lambda m: torch.optim.SGD([m.weight], lr=0.1), "leaves out 1 .*'bias'"),
        (mse, lambda m: torch.optim.Adam(m.parameters(), amsgrad=True), "amsgrad"),
        (
            lambda m, b: mse(m, b) if float(m(b["x"]).sum()) > 0 else mse(m, b) * 2,
            sgd,
            "looks at the value of a tensor",
        ),
    ],
)
def test_refusals(loss, optimizer, message):
    model = nn.Linear(8, 3)
    with pytest.raises(CaptureError, match=message):
        isthmus.capture(model, loss, optimizer(model), batch(4, 8))


def test_parameters_without_a_gradient_are_named():
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    model = Idle()
    with pytest.raises(CaptureError, match=r"2 parameters do not take part.*'idle.weight'"):
        isthmus.capture(model, mse, sgd(model), batch(4, 8))
    model.idle.requires_grad_(False)
    program = isthmus.capture(model, mse, sgd(model), batch(4, 8))
    assert "model.idle.weight" not in program.graphs["train"].updates


def test_batch_must_be_tensors():
    model = nn.Linear(8, 3)
    with pytest.raises(CaptureError, match="'x' is list; it must be a tensor"):
        isthmus.capture(model, mse, sgd(model), {"x": [1.0]})


def test_self_check_refuses_a_program_that_differs(monkeypatch):
    """A loss that depends on hidden state is not what was traced."""
    model = nn.Linear(8, 3)
    calls = []

    def changing(m: nn.Module, b: dict[str, torch.Tensor]) -> torch.Tensor:
        calls.append(1)
        return mse(m, b) * (1.0 + len(calls))

    with pytest.raises(CaptureError, match="self-check failed: the loss is"):
        isthmus.capture(model, changing, sgd(model), batch(4, 8))


def test_initialisers_are_recorded_or_stored():
    with isthmus.record_initialisers():
        model = nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4))
        nn.init.normal_(model[0].weight, std=0.25)
    program = isthmus.capture(
        model, lambda m, b: m(b["x"]).pow(2).mean(), sgd(model), {"x": torch.randn(2, 8)}
    )
    kinds = {name: entry.initializer for name, entry in program.states().items()}
    assert kinds["model.0.weight"] == {"kind": "normal", "mean": 0.0, "std": 0.25}
    assert kinds["model.0.bias"]["kind"] == "uniform"
    assert kinds["model.0.bias"]["high"] == pytest.approx(8**-0.5)
    assert kinds["model.1.weight"] == {"kind": "ones"}
    assert kinds["model.1.bias"] == {"kind": "zeros"}
    assert program.weights == {}

    plain = nn.Linear(8, 3)
    stored = isthmus.capture(plain, mse, sgd(plain), batch(4, 8))
    np.testing.assert_array_equal(stored.weights["model.weight"], plain.weight.detach().numpy())
    given = isthmus.capture(
        plain, mse, sgd(plain), batch(4, 8), initialisers={"*": {"kind": "normal", "std": 0.1}}
    )
    assert given.weights == {}
    with pytest.raises(CaptureError, match="unknown initialiser"):
        isthmus.capture(plain, mse, sgd(plain), batch(4, 8), initialisers={"*": {"kind": "magic"}})


def test_initialisation_is_reproducible_and_has_the_right_distribution():
    with isthmus.record_initialisers():
        model = nn.Linear(64, 64)
        nn.init.normal_(model.weight, mean=1.0, std=0.5)
    program = isthmus.capture(
        model, lambda m, b: m(b["x"]).pow(2).mean(), sgd(model), {"x": torch.randn(2, 64)}
    )
    values = []
    for seed in (0, 0, 1):
        session = Session(program)
        session.initialise(seed)
        values.append(session.states["model.weight"].copy())
    np.testing.assert_array_equal(values[0], values[1])
    assert (values[0] != values[2]).mean() > 0.99
    assert values[0].mean() == pytest.approx(1.0, abs=0.05)
    assert values[0].std() == pytest.approx(0.5, abs=0.05)


class Noisy(nn.Module):
    """Every kind of random number, in a fixed order."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x) + 0.1 * torch.randn_like(x)
        x = F.dropout(x, 0.4, self.training) * torch.rand(8)
        return self.out(x + 0.1 * torch.randn(8))


class Attending(nn.Module):
    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.out = nn.Linear(8, 3)
        self.settings = settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [part(x).unflatten(-1, (2, 4)).transpose(1, 2) for part in (self.q, self.k, self.v)]
        y = F.scaled_dot_product_attention(*heads, **self.settings)
        return self.out(y.transpose(1, 2).flatten(2))


class Function(nn.Module):
    """A function of x between two linear layers."""

    def __init__(self, function) -> None:
        super().__init__()
        self.inner, self.out, self.function = nn.Linear(8, 8), nn.Linear(8, 3), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.function(self.inner(x)))


def train_ops(model, loss=mse, example=None, optimizer=sgd, **settings) -> list[str]:
    """Operators of the step of a model that the self-check accepts."""
    torch.manual_seed(0)
    example = example or batch(4, 8)
    program = isthmus.capture(model, loss, optimizer(model), example, **settings)
    return [node.op for node in program.graphs["train"].nodes]


@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm_stays_whole(affine):
    norm = nn.RMSNorm(8, eps=1e-5, elementwise_affine=affine)
    ops = train_ops(nn.Sequential(nn.Linear(8, 8), norm, nn.Linear(8, 3)))
    assert ops.count("rms_norm") == 1
    assert ops.count("rms_norm_backward") == 1
    assert "rsqrt" not in ops


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dims", [1, 2])
def test_cross_entropy_stays_whole(smoothing, reduction, dims):
    shape = (6,) if dims == 1 else (2, 3)
    target = torch.randint(0, 3, shape)
    target.view(-1)[1] = -100

    def loss(m, b):
        logits = m(b["x"])
        logits = logits if dims == 1 else logits.transpose(1, 2)
        return F.cross_entropy(
            logits, b["y"], reduction=reduction, label_smoothing=smoothing
        ).mean()  # fmt: skip

    ops = train_ops(nn.Linear(8, 3), loss, {"x": torch.randn(*shape, 8), "y": target})
    assert ops.count("cross_entropy") == 1
    assert ops.count("cross_entropy_backward") == 1
    assert not {"log_softmax", "gather", "exp"} & set(ops)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights(smoothing, reduction):
    """The mean is over the weights of the targets, which also weigh micro-batches."""
    weight, target = torch.tensor([1.0, 0.5, 2.0]), torch.tensor([0, 2, -100, 1])

    def loss(m, b):
        return F.cross_entropy(
            m(b["x"]), b["y"], weight, reduction=reduction, label_smoothing=smoothing
        ).mean()  # fmt: skip

    ops = train_ops(nn.Linear(8, 3), loss, {"x": torch.randn(4, 8), "y": target})
    assert "cross_entropy" not in ops


@pytest.mark.parametrize("adam", [True, False])
def test_gradients_that_are_only_noise(adam):
    """A bias before a batch norm has the gradient 0; what rounding leaves of it is no mismatch."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))
    train_ops(
        model,
        example=batch(64, 8),
        optimizer=(lambda m: torch.optim.AdamW(m.parameters())) if adam else sgd,
    )


@pytest.mark.parametrize("in_place", [True, False])
def test_buffers_that_the_model_changes(in_place):
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 3)
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if in_place:
                self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
                self.count += 1
            else:
                self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
                self.count = self.count + 1
            return self.layer(x - self.mean)

    model = Counting()
    example = batch(4, 8)
    program = isthmus.capture(model, mse, sgd(model), example)
    assert float(model.count) == 0
    session = Session(program)
    session.initialise(0)
    given = {name: tensor.numpy() for name, tensor in example.items()}
    for _ in range(3):
        session.run("train", given, {"learning_rate": 0.1})
    assert int(session.states["model.count"]) == 3
    want = (1 - 0.9**3) * example["x"].double().mean(0).numpy()
    np.testing.assert_allclose(session.states["model.mean"], want, rtol=1e-5, atol=1e-7)


def test_all_targets_ignored():
    """FIELD_REPORTS B26 through a captured step: the mean is NaN, the gradient 0."""
    model = nn.Linear(8, 3)

    def loss(m, b):
        return F.cross_entropy(m(b["x"]), b["y"])

    example = {"x": torch.randn(4, 8), "y": torch.full((4,), -100)}
    program = isthmus.capture(model, loss, sgd(model), example, check=False)
    session = Session(program)
    session.initialise(0)
    before = session.states["model.weight"].copy()
    outputs = session.run(
        "train", {name: t.numpy() for name, t in example.items()}, {"learning_rate": 0.1}
    )
    assert np.isnan(outputs["loss"])
    assert float(outputs["gradient_norm"]) == 0.0
    np.testing.assert_array_equal(session.states["model.weight"], before)


@pytest.mark.parametrize(
    ("settings", "whole"),
    [
        ({"is_causal": True}, True),
        ({"scale": 0.3}, True),
        ({"attn_mask": torch.ones(5, 5).tril().bool()}, False),
        ({"attn_mask": torch.linspace(-1, 1, 25).view(5, 5)}, False),
        ({"dropout_p": 0.3, "is_causal": True}, False),
    ],
    ids=["causal", "scale", "mask", "bias", "dropout"],
)
def test_attention(settings, whole):
    ops = train_ops(Attending(**settings), example=batch(2, 5, 8))
    assert ("attention" in ops) == whole
    assert ("attention_backward" in ops) == whole


@pytest.mark.parametrize(
    "function",
    [
        F.leaky_relu, F.elu, F.hardtanh, F.softplus, F.mish, torch.exp2,
        lambda x: torch.log1p(x.abs() * 1e-4), lambda x: torch.expm1(x * 1e-4),
        lambda x: F.normalize(x, dim=-1), lambda x: x - x.max(-1, keepdim=True).values,
        lambda x: x.flip(-1), lambda x: x.roll(3, -1), lambda x: x.cumsum(-1),
        lambda x: x.repeat(1, 2)[:, 4:12], lambda x: F.pad(x, (-1, 1)),
        lambda x: torch.stack([x[:, ::2], x[:, 1::2]], -1).flatten(1),
        lambda x: x + torch.div(x, 0.3, rounding_mode="trunc").detach(),
        lambda x: x[torch.arange(4)[:, None], torch.arange(8)[None]],
        lambda x: x[torch.tensor([0, -1, 2, -4])],
        lambda x: torch.clamp(x, x.flip(-1), x.roll(1, 0)), lambda x: x.clamp(max=x.detach() / 2),
        lambda x: F.cosine_similarity(x, x.flip(-1)).unsqueeze(1) * x,
        lambda x: F.one_hot(torch.arange(4) % 8, 8) * x,
    ],
)  # fmt: skip
def test_functions(function):
    train_ops(Function(function))


@pytest.mark.parametrize("width", [1e-7, 1e-4, 1e-2, 1.0, 30.0])
@pytest.mark.parametrize("function", [torch.log1p, torch.expm1])
def test_small_arguments_keep_their_digits(width, function):
    """Against float64 of the same f32 numbers: a few units in the last place, however small."""
    torch.manual_seed(0)
    example = {"x": torch.rand(1000) * width}
    model = nn.Linear(1, 1)
    program = isthmus.capture(
        model, lambda m, b: function(b["x"]).mean() + m.weight.sum() + m.bias.sum(), sgd(model),
        example, forward=lambda m, b: function(b["x"]),
    )  # fmt: skip
    got = Session(program).run("forward", {"x": example["x"].numpy()})["output"]
    want = function(example["x"].double()).numpy()
    np.testing.assert_allclose(got, want, rtol=8 * 2.0**-23)


def test_random_numbers_are_replayed_in_the_check():
    ops = train_ops(Noisy())
    assert ops.count("normal") == 2
    assert ops.count("uniform") == 1
    assert ops.count("dropout") == 1


@pytest.mark.parametrize(
    "module",
    [
        lambda: nn.BatchNorm1d(8),
        lambda: nn.GroupNorm(2, 8),
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True),
    ],
    ids=["batch-norm", "group-norm", "encoder"],
)
def test_library_modules(module):
    shape = (2, 5, 8) if isinstance(module(), nn.TransformerEncoderLayer) else (4, 8)
    model = nn.Sequential(nn.Linear(8, 8), module(), nn.Linear(8, 3))
    train_ops(model, example=batch(*shape), forward=lambda m, b: m(b["x"]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes(dtype):
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    train_ops(model, example={name: t.to(dtype) for name, t in batch(4, 8).items()})


def test_dampening_takes_the_whole_first_gradient():
    """Cold and warm: the count of steps, which PyTorch does not keep, makes the difference."""
    model = nn.Linear(8, 3)
    optimizer = sgd(model, momentum=0.9, dampening=0.5)
    example = batch(4, 8)
    for count in range(2):
        program = isthmus.capture(model, mse, optimizer, example, clip_norm=0.5)
        assert program.states()["optimizer.step"].initializer["value"] == min(count, 1)
        mse(model, example).backward()
        optimizer.step()


def test_refusals_are_listed_together_with_their_lines():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sort(-1).values
        return y + torch.atan2(x, x + 1) + x[x > 0].sum()

    with pytest.raises(CaptureError) as caught:
        train_ops(Function(function))
    text = str(caught.value)
    first = function.__code__.co_firstlineno
    for name, line in (("sort", 1), ("atan2", 2), ("index.Tensor", 2)):
        assert any(
            name in row and f"test_capture.py:{first + line} in" in row for row in text.split("\n")
        ), (name, text)


def test_nodes_know_their_line_backward_too():
    model = Function(torch.tanh)
    program = isthmus.capture(model, mse, sgd(model), batch(4, 8), check=False)
    nodes = {node.op: node.source for node in program.graphs["train"].nodes}
    line = Function.forward.__code__.co_firstlineno + 1
    assert nodes["tanh"] == nodes["tanh_backward"] == f"test_capture.py:{line} in Function.forward"


@pytest.mark.parametrize("fault", ["nan", "missing", "wrong", "still"])
def test_self_check_refuses_states_that_differ(monkeypatch, fault):
    module = sys.modules["isthmus.program.capture.capture"]
    honest = module.run_once

    def faulty(*arguments, **keywords):
        outputs, after = honest(*arguments, **keywords)
        name = "model.weight"
        if fault == "missing":
            del after[name]
        elif fault == "still":
            after[name] = arguments[1][name]
        else:
            after[name] = after[name].copy()
            after[name][1, 2] = np.nan if fault == "nan" else after[name][1, 2] + 1e-2
        return outputs, after

    monkeypatch.setattr(module, "run_once", faulty)
    model = nn.Linear(8, 3)
    with pytest.raises(CaptureError, match=r"self-check failed: .*model\.weight"):
        isthmus.capture(model, mse, sgd(model), batch(4, 8))


def test_self_check_covers_evaluation():
    """A function that does something else when it is run again is not what was traced."""
    model = nn.Linear(8, 3)
    calls = []

    def changing(m: nn.Module, b: dict[str, torch.Tensor]) -> torch.Tensor:
        calls.append(1)
        return m(b["x"]) * len(calls)

    with pytest.raises(CaptureError, match="output of graph 'forward'"):
        isthmus.capture(model, mse, sgd(model), batch(4, 8), forward=changing)


def test_tensors_elsewhere_are_refused():
    model = nn.Linear(8, 3, device="meta")
    with pytest.raises(CaptureError, match=r"weight is .* on meta; capture needs dense CPU"):
        isthmus.capture(model, mse, sgd(model), batch(4, 8))


def test_initialisers_of_changed_weights_are_not_believed():
    """Weights loaded, trained or copied after construction are stored, however they came there."""
    with isthmus.record_initialisers():
        models = [nn.Linear(8, 3) for _ in range(3)]
    models[0].load_state_dict(nn.Linear(8, 3).state_dict())
    models[1].weight.data += 1e-3
    for model, kind in zip(models, ("stored", "stored", "uniform"), strict=True):
        program = isthmus.capture(model, mse, sgd(model), batch(4, 8), check=False)
        assert program.states()["model.weight"].initializer["kind"] == kind


def test_initialisers_written_through_data_are_recorded():
    with isthmus.record_initialisers():
        model = nn.Linear(8, 3)
        model.weight.data.normal_(0.0, 0.02)
    program = isthmus.capture(model, mse, sgd(model), batch(4, 8), check=False)
    found = program.states()["model.weight"].initializer
    assert found == {"kind": "normal", "mean": 0.0, "std": 0.02}
