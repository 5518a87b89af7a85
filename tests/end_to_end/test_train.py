"""`isthmus train` from end to end: results, exact resume, threads, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from isthmus.train.checkpoint import load_checkpoint
from isthmus.train.metrics import read_metrics


@pytest.fixture(scope="module")
def train(isthmus_command, program_file, corpus):
    def run(out: Path, *arguments, **keywords) -> subprocess.CompletedProcess:
        return isthmus_command(
            "train", "--program", program_file, "--data", corpus, "--out", out,
            "--warmup-steps", 5, *arguments, **keywords,
        )  # fmt: skip

    return run


def losses(out: Path) -> list[tuple[int, float]]:
    return [
        (e["step"], e["loss"]) for e in read_metrics(out / "metrics.jsonl") if e["event"] == "step"
    ]


def same_weights(first: Path, second: Path) -> None:
    a, b = (load_checkpoint(out / "checkpoint.safetensors") for out in (first, second))
    assert a.state.keys() == b.state.keys()
    for name in a.state:
        np.testing.assert_array_equal(a.state[name], b.state[name], err_msg=name)


def test_run_ends_with_everything_promised(train, tmp_path):
    result = train(tmp_path / "run", "--steps", 40, "--evaluate-every", 20, "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    steps = [e for e in events if e["event"] == "step"]
    finished = events[-1]
    assert len(steps) == 40
    assert finished["event"] == "finished"
    assert np.mean([e["loss"] for e in steps[-5:]]) < steps[0]["loss"] - 0.5
    assert finished["validation_loss"] < 5.0
    for name in ("checkpoint", "metrics", "plot", "sample"):
        assert Path(finished[name]).stat().st_size > 0
    assert finished["text"].startswith("def ")
    assert len(finished["text"]) > 100
    learning_rates = [e["learning_rate"] for e in steps]
    assert max(learning_rates) == pytest.approx(3e-3)
    assert learning_rates.index(max(learning_rates)) == 4


@pytest.mark.parametrize("accumulate", [1, 3])
def test_resume_in_a_new_process_is_bit_exact(train, isthmus_command, tmp_path, accumulate):
    """FIELD_REPORTS B54: stop after 7 of 20 steps, mid-epoch and mid-accumulation; go on."""
    settings = ("--steps", 20, "--accumulate", accumulate, "--evaluate-every", 0)
    stop = 7 if accumulate == 1 else 7 * accumulate + 1
    train(tmp_path / "whole", *settings)
    train(tmp_path / "parts", *settings, "--stop-after", stop)
    assert load_checkpoint(tmp_path / "parts" / "checkpoint.safetensors").run["step"] == 7
    isthmus_command("train", "--resume", tmp_path / "parts")
    same_weights(tmp_path / "whole", tmp_path / "parts")
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert len(losses(tmp_path / "whole")) == 20


def test_one_and_two_threads_give_the_same_bits(train, tmp_path):
    for threads in (1, 2):
        train(tmp_path / str(threads), "--steps", 12, "--threads", threads, "--evaluate-every", 0)
    assert losses(tmp_path / "1") == losses(tmp_path / "2")
    same_weights(tmp_path / "1", tmp_path / "2")


def test_seeds_differ(train, tmp_path):
    for seed in (1, 2):
        train(tmp_path / str(seed), "--steps", 2, "--seed", seed, "--evaluate-every", 0)
    assert losses(tmp_path / "1") != losses(tmp_path / "2")


def test_ctrl_c_saves_and_can_be_resumed(program_file, corpus, isthmus_command, tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "isthmus", "train", "--program", str(program_file), "--data",
         str(corpus), "--out", str(out), "--steps", "100000", "--evaluate-every", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if (out / "metrics.jsonl").exists() and len(losses(out)) >= 3:
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert f"isthmus train --resume {out}" in errors.replace("\n", " ").replace("  ", " ")
    step = load_checkpoint(out / "checkpoint.safetensors").run["step"]
    assert step >= 3
    isthmus_command("train", "--resume", out, "--stop-after", step + 2)
    assert load_checkpoint(out / "checkpoint.safetensors").run["step"] == step + 2


def test_byte_pair_tokens(train, isthmus_command, tmp_path, corpus):
    from isthmus.data.corpus import read_corpus
    from isthmus.data.tokenizer import BytePairTokenizer

    tokenizer = BytePairTokenizer.train(list(read_corpus(corpus).documents), 256)
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.description()["model"])
    train(tmp_path / "run", "--steps", 3, "--tokenizer", path)
    result = isthmus_command("generate", tmp_path / "run", "--length", 5, "--prompt", "class A")
    assert result.stdout.startswith("class A")
