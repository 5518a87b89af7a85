"""Capturing models of many kinds; what cannot be captured is said clearly."""

from __future__ import annotations

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
    assert "in forward" in text


@pytest.mark.parametrize(
    ("loss", "optimizer", "message"),
    [
        (lambda m, b: m(b["x"]), sgd, "it must be one number"),
        (lambda m, b: (m(b["x"]).mean(), 1), sgd, "it must give one tensor"),
        (mse, lambda m: torch.optim.Adagrad(m.parameters()), "Adagrad has no counterpart"),
        (mse, lambda m: torch.optim.SGD([m.weight], lr=0.1), "they must be the same"),
        (mse, lambda m: torch.optim.Adam(m.parameters(), amsgrad=True), "amsgrad"),
        (
            lambda m, b: mse(m, b) if float(m(b["x"]).sum()) > 0 else mse(m, b) * 2,
            sgd,
            "looks at the value of a tensor",
        ),
        (
            lambda m, b: F.cross_entropy(m(b["x"]), b["y"].argmax(1), label_smoothing=0.1),
            sgd,
            "label smoothing",
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
    with pytest.raises(CaptureError, match="2 parameters do not take part.*'idle.weight'"):
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

    with pytest.raises(CaptureError, match="self-check failed: the program's loss is"):
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
