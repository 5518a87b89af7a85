"""Bad input: one message and an exit code, no traceback."""

from __future__ import annotations

import json

import numpy as np
import pytest


@pytest.fixture(scope="module")
def refuse(isthmus_command):
    def run(*arguments) -> str:
        result = isthmus_command(*arguments, check=False)
        assert result.returncode == 1, result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        assert result.stderr.count("error:") == 1
        return " ".join(result.stderr.split())

    return run


@pytest.fixture(scope="module")
def trained(isthmus_command, program_file, corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "trained"
    isthmus_command(
        "train", "--program", program_file, "--data", corpus, "--steps", 4, "--stop-after", 2,
        "--out", out,
    )  # fmt: skip
    return out


def test_missing_data(refuse, program_file, tmp_path):
    message = refuse("train", "--program", program_file, "--data", tmp_path / "nowhere")
    assert "no such file or folder" in message
    assert "nowhere" in message


def test_empty_corpus(refuse, program_file, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert "is empty" in refuse(
        "train", "--program", program_file, "--data", tmp_path / "empty.txt"
    )


def test_corpus_shorter_than_a_sequence(refuse, program_file, tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    message = refuse("train", "--program", program_file, "--data", tmp_path / "short.txt")
    assert "has 9 tokens" in message
    assert "one sequence of 33" in message


def test_missing_and_truncated_program(refuse, corpus, program_file, tmp_path):
    assert "cannot read program" in refuse("train", "--program", tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text(program_file.read_text()[:-500])
    assert "truncated or damaged" in refuse("train", "--program", broken, "--data", corpus)


def test_program_of_a_newer_version(refuse, corpus, program_file, tmp_path):
    data = json.loads(program_file.read_text())
    data["version"] = 99
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(data))
    message = refuse("train", "--program", newer, "--data", corpus)
    assert "format version 99; this version reads 1" in message


def test_program_with_an_unknown_operator(refuse, corpus, program_file, tmp_path):
    data = json.loads(program_file.read_text())
    data["graphs"]["train"]["nodes"][0][0] = "teleport"
    strange = tmp_path / "strange.json"
    strange.write_text(json.dumps(data))
    message = refuse("run", strange)
    assert "'teleport' is not in the operator standard" in message


def test_loss_that_is_not_finite(refuse, program_file, corpus, tmp_path):
    message = refuse(
        "train", "--program", program_file, "--data", corpus, "--learning-rate", "1e30",
        "--warmup-steps", 0, "--steps", 30, "--out", tmp_path / "run",
    )  # fmt: skip
    assert "the loss is nan at step" in message or "the loss is inf at step" in message
    assert "--learning-rate" in message


def test_resume_from_nothing_and_from_damage(refuse, trained, tmp_path):
    assert "no such checkpoint" in refuse("train", "--resume", tmp_path)
    broken = tmp_path / "checkpoint.safetensors"
    broken.write_bytes((trained / "checkpoint.safetensors").read_bytes()[:1000])
    assert "not a whole checkpoint" in refuse("train", "--resume", broken)


def test_resume_with_other_data(refuse, trained, tmp_path):
    (tmp_path / "other.txt").write_text("something else " * 500)
    message = refuse("train", "--resume", trained, "--data", tmp_path / "other.txt")
    assert "another data" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", "0"), "steps is 0"),
        (("--accumulate", "0"), "accumulate is 0"),
        (("--learning-rate", "-1"), "peak > 0"),
        (("--threads", "0"), "threads is 0"),
        (("--seed", "-1"), "seed is -1"),
    ],
)
def test_impossible_settings(refuse, program_file, corpus, arguments, message):
    got = refuse("train", "--program", program_file, "--data", corpus, *arguments)
    assert message in got


def test_wrong_batch(refuse, program_file, tmp_path):
    np.savez(
        tmp_path / "shape.npz",
        tokens=np.zeros((4, 7), np.int64),
        targets=np.zeros((4, 32), np.int64),
    )
    message = refuse("run", program_file, "--batch", tmp_path / "shape.npz")
    assert "'tokens' has shape [4, 7]; expected [4, 32]" in message
    np.savez(
        tmp_path / "dtype.npz",
        tokens=np.zeros((4, 32), np.float32),
        targets=np.zeros((4, 32), np.int64),
    )
    message = refuse("run", program_file, "--batch", tmp_path / "dtype.npz")
    assert "'tokens' is float32; expected int64" in message
    np.savez(tmp_path / "entry.npz", tokens=np.zeros((4, 32), np.int64))
    assert "lacks 'targets'" in refuse("run", program_file, "--batch", tmp_path / "entry.npz")


def test_generate_from_nothing(refuse, tmp_path):
    assert "no such checkpoint" in refuse("generate", tmp_path)


def test_traceback_on_request(isthmus_command, tmp_path):
    result = isthmus_command("generate", tmp_path, "--traceback", check=False)
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_unwritable_out(refuse, program_file, corpus, tmp_path):
    (tmp_path / "file").write_text("in the way")
    message = refuse(
        "train", "--program", program_file, "--data", corpus, "--steps", 2, "--out",
        tmp_path / "file" / "run",
    )  # fmt: skip
    assert "cannot make the folder" in message


@pytest.mark.parametrize("steps", ["0", "-1"])
def test_run_takes_at_least_one_step(refuse, program_file, steps):
    assert f"steps is {steps}; it must be 1 or more" in refuse(
        "run", program_file, "--steps", steps
    )
