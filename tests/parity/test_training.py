"""Captured programs against eager PyTorch, step by step."""

from __future__ import annotations

import copy
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import isthmus
from isthmus.core.errors import ProgramError
from isthmus.data.corpus import standard_library
from isthmus.program.reference import run_reference
from isthmus.program.session import Session
from support.programs import example_module


def real_batches(shape: tuple[int, int], count: int) -> list[dict[str, np.ndarray]]:
    text = np.frombuffer((standard_library() / "argparse.py").read_bytes(), np.uint8)
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(count):
        starts = rng.integers(0, len(text) - shape[1] - 1, shape[0])
        rows = starts[:, None] + np.arange(shape[1] + 1)
        window = text[rows].astype(np.int64)
        batches.append({"tokens": window[:, :-1].copy(), "targets": window[:, 1:].copy()})
    return batches


def load_states(session: Session, model: nn.Module) -> None:
    """Initialise, then take over the model's weights."""
    session.initialise(0)
    for name, parameter in model.named_parameters():
        session.states[f"model.{name}"][...] = parameter.detach().numpy()


def test_sixty_adamw_steps_of_a_gpt_follow_eager_pytorch():
    """Largest loss difference at most 2e-5 over 60 steps on real text."""
    gpt = example_module("gpt")
    config = gpt.Config(layers=2, width=64, heads=2, length=64, batch=8)
    model, optimizer, example = gpt.make(config)
    program = isthmus.capture(model, gpt.loss, optimizer, example, clip_norm=1.0, check=False)
    session = Session(program)
    load_states(session, model)
    model.train()
    worst = 0.0
    for batch in real_batches((8, 64), 60):
        rate = 1e-3
        outputs = session.run("train", batch, {"learning_rate": rate})
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = gpt.loss(model, {name: torch.from_numpy(array) for name, array in batch.items()})
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        worst = max(worst, abs(float(outputs["loss"]) - loss.item()))
        assert float(outputs["gradient_norm"]) == pytest.approx(float(norm), rel=1e-3)
    assert worst <= 2e-5, worst


@pytest.mark.parametrize("tokens", [(3, 9), (5, 7, 1)])
def test_micro_batches_of_unequal_counts_equal_one_batch(tokens):
    """FIELD_REPORTS B53: 3 and 9 counted rows give the gradient of one batch of 12."""
    torch.manual_seed(0)
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def loss(m: nn.Module, b: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(m(b["x"]), b["y"], ignore_index=-100)

    rows = max(tokens)
    example = {"x": torch.randn(rows, 6), "y": torch.randint(0, 5, (rows,))}
    session = Session(isthmus.capture(model, loss, optimizer, example))
    load_states(session, model)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((sum(tokens), 6)).astype(np.float32)
    y = rng.integers(0, 5, sum(tokens))
    start, total, weights = 0, 0.0, 0.0
    for count in tokens:
        part_x, part_y = np.zeros((rows, 6), np.float32), np.full(rows, -100)
        part_x[:count], part_y[:count] = x[start : start + count], y[start : start + count]
        outputs = session.run("gradient", {"x": part_x, "y": part_y})
        assert float(outputs["weight"]) == count
        total += float(outputs["loss"]) * count
        weights += count
        start += count
    session.run("apply", {}, {"learning_rate": 0.5})
    whole = copy.deepcopy(model).double()
    expected = F.cross_entropy(whole(torch.from_numpy(x).double()), torch.from_numpy(y))
    expected.backward()
    assert total / weights == pytest.approx(expected.item(), rel=1e-6)
    for name, parameter in whole.named_parameters():
        want = (parameter - 0.5 * parameter.grad).detach().numpy()
        np.testing.assert_allclose(session.states[f"model.{name}"], want, rtol=1e-5, atol=1e-6)
    # Sums are cleared for the next step.
    assert not session.states["gradient_weight"].any()
    assert not session.states["gradient.weight"].any()


def rows_of(counts: tuple[int, ...], rows: int) -> list[dict[str, np.ndarray]]:
    """Micro-batches of `rows` rows of which the first few count, then the whole as one."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((sum(counts), 6)).astype(np.float32)
    y = rng.integers(0, 5, sum(counts))
    parts, start = [], 0
    for count in counts:
        part = {"x": np.zeros((rows, 6), np.float32), "y": np.zeros(rows, np.int64),
                "mask": np.zeros(rows, np.float32)}  # fmt: skip
        part["x"][:count], part["y"][:count] = x[start : start + count], y[start : start + count]
        part["mask"][:count] = 1.0
        parts.append(part)
        start += count
    return [*parts, {"x": x, "y": y, "mask": np.ones(sum(counts), np.float32)}]


def each_row(m: nn.Module, b: dict[str, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(m(b["x"]), b["y"], reduction="none") * b["mask"]


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (lambda m, b: each_row(m, b).sum() / b["mask"].sum(), {}),
        (lambda m, b: each_row(m, b).sum() / b["mask"].sum().clamp(min=1.0), {}),
        (lambda m, b: 0.5 * (each_row(m, b).sum() / b["mask"].sum()) + m.weight.square().sum(), {}),
        (lambda m, b: each_row(m, b).sum(), {}),
        (lambda m, b: (each_row(m, b).sum() / b["mask"].sum()).sqrt().square(),
         {"weight": lambda b: b["mask"].sum()}),
    ],
    ids=["masked", "clamped", "scaled-and-regularised", "sum", "given"],
)  # fmt: skip
@pytest.mark.parametrize("counts", [(3, 9), (3, 0, 9)])
def test_losses_written_by_hand_accumulate_exactly(loss, settings, counts):
    """FIELD_REPORTS B53 for losses whose count of rows must be found in the graph."""
    if 0 in counts and not settings and "clamp" not in str(loss.__code__.co_names):
        counts = (3, 9)  # without rows these losses are 0 / 0
    torch.manual_seed(0)
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    *parts, whole = rows_of(counts, 9)
    example = {name: torch.from_numpy(array) for name, array in parts[-1].items()}
    session = Session(isthmus.capture(model, loss, optimizer, example, **settings))
    load_states(session, model)
    for part in parts:
        session.run("gradient", part)
    session.run("apply", {}, {"learning_rate": 0.5})
    exact = copy.deepcopy(model).double()
    b = {name: torch.from_numpy(array) for name, array in whole.items()}
    loss(exact, {**b, "x": b["x"].double(), "mask": b["mask"].double()}).backward()
    for name, parameter in exact.named_parameters():
        want = (parameter - 0.5 * parameter.grad).detach().numpy()
        np.testing.assert_allclose(session.states[f"model.{name}"], want, rtol=1e-5, atol=1e-6)


def test_a_loss_of_unknown_weight_has_no_micro_batches():
    """Two means over different counts: refused, not averaged wrongly."""
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    part = rows_of((3,), 9)[0]
    example = {name: torch.from_numpy(array) for name, array in part.items()}

    def loss(m: nn.Module, b: dict[str, torch.Tensor]) -> torch.Tensor:
        return each_row(m, b).sum() / b["mask"].sum() + m(b["x"]).square().mean()

    program = isthmus.capture(model, loss, optimizer, example)
    with pytest.raises(ProgramError, match=r"no graph 'gradient'(?s:.*)give it weight="):
        program.graph("gradient")
    given = isthmus.capture(model, loss, optimizer, example, weight=lambda b: b["mask"].sum())
    assert given.graph("gradient").outputs["weight"].spec.shape == ()


def captured(name: str):
    """(program, model, optimizer, loss, batch) of a small model."""
    torch.manual_seed(0)
    if name == "gpt":
        gpt = example_module("gpt")
        model, optimizer, batch = gpt.make(gpt.Config(2, 32, 2, 16, 2))
        return (
            gpt.capture(gpt.Config(2, 32, 2, 16, 2), check=False),
            model,
            optimizer,
            gpt.loss,
            batch,
        )
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    batch = {"x": torch.randn(6, 8), "y": torch.randint(0, 5, (6,))}

    def loss(m: nn.Module, b: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(m(b["x"]), b["y"])

    program = isthmus.capture(model, loss, optimizer, batch, clip_norm=1.0, check=False)
    return program, model, optimizer, loss, batch


@pytest.mark.parametrize("name", ["gpt", "mlp"])
def test_three_steps_by_the_references_are_those_of_float64(name):
    """Graph and operators alone, without kernels: float64 on both sides."""
    program, model, optimizer, loss, batch = captured(name)
    rate = optimizer.param_groups[0]["lr"]
    states = {entry.name: np.zeros(entry.value.spec.shape) for entry in program.states().values()}
    states |= {f"model.{n}": p.detach().double().numpy() for n, p in model.named_parameters()}
    exact = copy.deepcopy(model).double().train()
    names = dict(zip(model.parameters(), exact.parameters(), strict=True))
    groups = [{**g, "params": [names[p] for p in g["params"]]} for g in optimizer.param_groups]
    twin = torch.optim.AdamW(groups)
    arrays = {key: tensor.numpy() for key, tensor in batch.items()}
    wide = {k: t.double() if t.is_floating_point() else t for k, t in batch.items()}
    for _ in range(3):
        outputs, states = run_reference(
            program.graph("train"), states, arrays, {"learning_rate": rate}
        )
        twin.zero_grad()
        value = loss(exact, wide)
        value.backward()
        norm = nn.utils.clip_grad_norm_(exact.parameters(), 1.0)
        twin.step()
        assert float(outputs["loss"]) == pytest.approx(value.item(), rel=1e-9)
        assert float(outputs["gradient_norm"]) == pytest.approx(float(norm), rel=1e-9)
    for key, parameter in exact.named_parameters():
        np.testing.assert_allclose(
            states[f"model.{key}"], parameter.detach().numpy(), rtol=1e-7, atol=1e-7
        )


def test_micro_batch_without_counted_rows_changes_nothing():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def loss(m: nn.Module, b: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(m(b["x"]), b["y"])

    example = {"x": torch.randn(4, 4), "y": torch.randint(0, 3, (4,))}
    session = Session(isthmus.capture(model, loss, optimizer, example))
    load_states(session, model)
    arrays = {name: tensor.numpy() for name, tensor in example.items()}
    session.run("gradient", arrays)
    before = session.states["gradient.weight"].copy()
    ignored = session.run("gradient", {**arrays, "y": np.full(4, -100)})
    assert np.isnan(ignored["loss"])
    assert float(ignored["weight"]) == 0
    np.testing.assert_array_equal(session.states["gradient.weight"], before)


def test_tied_weights_are_one_state():
    """FIELD_REPORTS B56."""
    gpt = example_module("gpt")
    config = gpt.Config(layers=1, width=16, heads=2, length=8, batch=2, tied=True)
    model, optimizer, example = gpt.make(config)
    program = isthmus.capture(model, gpt.loss, optimizer, example)
    names = [name for name in program.states() if "tokens" in name or "head" in name]
    assert [n for n in names if n.startswith("model.")] == ["model.tokens.weight"]
    session = Session(program)
    load_states(session, model)
    batch = {name: tensor.numpy() for name, tensor in example.items()}
    before = session.states["model.tokens.weight"].copy()
    session.run("train", batch, {"learning_rate": 1e-2})
    saved = session.state_dict()
    assert sum("tokens.weight" in name and name.startswith("model.") for name in saved) == 1
    assert (saved["model.tokens.weight"] != before).any()


def test_a_step_is_one_native_call(monkeypatch):
    """No operator runs in NumPy, PyTorch or Python: kernels do it all."""
    gpt = example_module("gpt")
    config = gpt.Config(layers=1, width=16, heads=2, length=8, batch=2)
    model, optimizer, example = gpt.make(config)
    session = Session(isthmus.capture(model, gpt.loss, optimizer, example))
    session.initialise(0)
    batch = {name: tensor.numpy() for name, tensor in example.items()}
    session.run("train", batch, {"learning_rate": 1e-3})
    calls = []
    run = session.device.run
    monkeypatch.setattr(session.device, "run", lambda *a: (calls.append(a), run(*a)))

    def refuse(*_arguments: object, **_keywords: object) -> None:
        raise AssertionError("an operator ran outside the native call")

    for name in ("matmul", "add", "multiply", "exp", "sum", "dot", "einsum", "tanh", "divide"):
        monkeypatch.setattr(np, name, refuse)
    monkeypatch.setattr(torch.Tensor, "__add__", refuse)
    for name, record in __import__("isthmus.ops").ops.standard.OPERATORS.items():
        monkeypatch.setitem(
            __import__("isthmus.ops").ops.standard.OPERATORS, name, None if record else record
        )
    outputs = session.run("train", batch, {"learning_rate": 1e-3})
    assert len(calls) == 1
    assert np.isfinite(outputs["loss"])


def test_python_overhead_of_a_step():
    """Beyond the native call a step costs at most 300 us; the median of many steps is taken."""
    gpt = example_module("gpt")
    config = gpt.Config(layers=2, width=32, heads=2, length=32, batch=4)
    model, optimizer, example = gpt.make(config)
    session = Session(isthmus.capture(model, gpt.loss, optimizer, example, check=False))
    session.initialise(0)
    batch = {name: tensor.numpy() for name, tensor in example.items()}
    native: list[float] = []
    run = session.device.run

    def timed(*arguments: object) -> None:
        start = time.perf_counter()
        run(*arguments)
        native.append(time.perf_counter() - start)

    session.device.run = timed
    overheads = []
    for step in range(60):
        start = time.perf_counter()
        session.run("train", batch, {"learning_rate": 1e-3}, (0, step))
        overheads.append(time.perf_counter() - start - native[-1])
    assert sorted(overheads)[30] <= 300e-6
