"""The loop, on a session that computes with plain numbers: exact resume, stops, bad losses."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest

from isthmus.core.errors import CheckpointError, ConfigError, TrainingError
from isthmus.data.sampler import WindowSampler
from isthmus.train.checkpoint import load_checkpoint
from isthmus.train.trainer import Interrupted, TrainConfig, Trainer


class NumberSession:
    """A "model" whose state mixes batch, learning rate and key, so that any slip shows."""

    def __init__(self, bad_step: int | None = None) -> None:
        self.state = {"w": np.zeros(4), "sum": np.zeros(4)}
        self.bad_step = bad_step
        self.calls: list[str] = []

    def has_graph(self, graph: str) -> bool:
        return graph in ("train", "gradient", "apply", "evaluate")

    def run(self, graph, batch, scalars, key):
        self.calls.append(graph)
        if graph == "evaluate":
            return {"loss": float(self.state["w"].sum()) + float(batch["tokens"].mean())}
        if graph == "apply":
            self.state["w"] = self.state["w"] * 0.9 + self.state["sum"] * scalars["learning_rate"]
            self.state["sum"] = np.zeros(4)
            return {"gradient_norm": 1.0}
        seed, counter = key
        noise = np.random.Generator(np.random.Philox(key=[seed, counter])).random(4)
        change = noise * batch["tokens"].mean()
        if graph == "gradient":
            self.state["sum"] = self.state["sum"] + change
        else:
            self.state["w"] = self.state["w"] * 0.9 + change * scalars["learning_rate"]
        bad = self.bad_step is not None and len(self.calls) >= self.bad_step
        return {"loss": float("nan") if bad else float(change.sum()), "gradient_norm": 1.0}

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = {name: array.copy() for name, array in state.items()}


def make(out, *, bad_step=None, identity=None, **settings) -> Trainer:
    sampler = WindowSampler(np.arange(97) % 13, batch_size=3, length=5, seed=1)
    validation = [sampler.next_batch() for _ in range(2)]
    sampler.restore({"epoch": 0, "index": 0})
    config = TrainConfig(**{"steps": 20, "warmup_steps": 4, "evaluate_every": 5, **settings})
    return Trainer(
        NumberSession(bad_step), sampler, config, out, validation=validation,
        identity=identity or {"program": "p", "data": "d"},
    )  # fmt: skip


def losses(out) -> list[tuple[int, float]]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [(event["step"], event["loss"]) for event in events if event["event"] == "step"]


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("stop", [1, 7, 10, 19])
def test_resume_is_exact_wherever_the_run_stopped(tmp_path, accumulate, stop):
    whole = make(tmp_path / "whole", accumulate=accumulate)
    whole.run()
    first = make(tmp_path / "parts", accumulate=accumulate)
    with pytest.raises(Interrupted) as stopped:
        first.run(stop_after_micro_steps=stop)
    assert stopped.value.step == stop // accumulate
    second = make(tmp_path / "parts", accumulate=accumulate)
    second.resume(second.checkpoint_path)
    second.run()
    np.testing.assert_array_equal(second.session.state["w"], whole.session.state["w"])
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert len(losses(tmp_path / "whole")) == 20
    assert second.validation_loss == whole.validation_loss


def test_accumulation_applies_once_per_step(tmp_path):
    trainer = make(tmp_path, accumulate=4, steps=2, evaluate_every=0)
    trainer.run()
    expected = (["gradient"] * 4 + ["apply"]) * 2 + ["evaluate"] * 2
    assert trainer.session.calls == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_saves_and_stops_after_the_step(tmp_path, number):
    trainer = make(tmp_path)

    def interrupt(report) -> None:
        if report.step == 6:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match="stopped after step 6"):
        trainer.run(on_step=interrupt)
    assert load_checkpoint(trainer.checkpoint_path).run["step"] == 6
    assert signal.getsignal(number) is before


def test_second_signal_ends_at_once(tmp_path):
    trainer = make(tmp_path)

    def interrupt(_report) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trainer.run(on_step=interrupt)


def test_loss_that_is_not_finite_stops_and_keeps_the_good_checkpoint(tmp_path):
    trainer = make(tmp_path, bad_step=13, checkpoint_every=5, evaluate_every=0)
    with pytest.raises(TrainingError, match="the loss is nan at step 13") as caught:
        trainer.run()
    assert str(trainer.checkpoint_path) in str(caught.value)
    assert load_checkpoint(trainer.checkpoint_path).run["step"] == 10


def test_bad_first_loss_says_that_there_is_no_checkpoint(tmp_path):
    with pytest.raises(TrainingError, match=r"no checkpoint was written yet"):
        make(tmp_path, bad_step=1).run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"identity": {"program": "other", "data": "d"}},
            "another program: 'p', this run has 'other'",
        ),
        ({"seed": 5}, "made with seed 0, this run has 5"),
        ({"steps": 21}, "made with steps 20, this run has 21"),
    ],
)
def test_resume_refuses_what_does_not_match(tmp_path, change, message):
    first = make(tmp_path)
    with pytest.raises(Interrupted):
        first.run(stop_after_micro_steps=3)
    with pytest.raises(CheckpointError, match=message):
        make(tmp_path, **change).resume(first.checkpoint_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps is 0; it must be 1 or more"),
        ({"accumulate": 0}, "accumulate is 0"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**{"steps": 5, **settings})


def test_accumulation_needs_a_gradient_graph(tmp_path):
    class TrainOnly(NumberSession):
        def has_graph(self, graph: str) -> bool:
            return graph == "train"

    with pytest.raises(ConfigError, match="no gradient graph"):
        Trainer(TrainOnly(), make(tmp_path).batches, TrainConfig(steps=1, accumulate=2), tmp_path)
