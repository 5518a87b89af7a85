"""Checkpoints: whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from isthmus.core.errors import CheckpointError
from isthmus.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint


def sample(value: float = 1.0) -> Checkpoint:
    return Checkpoint(
        {"step": 7, "sampler": {"epoch": 0, "index": 3}},
        {
            "w": np.full((3, 2), value, np.float32),
            "n": np.array(5, np.int64),
            "e": np.zeros((0, 4)),
        },
    )


def test_round_trip(tmp_path):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, sample())
    loaded = load_checkpoint(path)
    assert loaded.run["step"] == 7
    assert loaded.run["sampler"] == {"epoch": 0, "index": 3}
    for name, array in sample().state.items():
        assert loaded.state[name].dtype == array.dtype
        assert loaded.state[name].shape == array.shape
        np.testing.assert_array_equal(loaded.state[name], array)
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch, failing):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, sample(1.0))

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync", full) if failing == "fsync" else (Path, "replace", full)))
    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        save_checkpoint(path, sample(2.0))
    assert "previous checkpoint is intact" in str(caught.value)
    monkeypatch.undo()
    assert load_checkpoint(path).state["w"][0, 0] == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_really_full_disk():
    if not Path("/dev/full").exists():
        pytest.fail("this system has no /dev/full")
    with pytest.raises(OSError, match="No space left"), Path("/dev/full").open("wb", 0) as file:
        file.write(b"x")


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_truncated_file_is_refused(tmp_path, keep):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, sample())
    content = path.read_bytes()
    path.write_bytes(content[:keep])
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        load_checkpoint(path)


def test_missing_newer_and_foreign_files(tmp_path):
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_checkpoint(tmp_path / "nothing")
    path = tmp_path / "c.safetensors"
    newer = sample()
    newer.run["version"] = 99
    save_checkpoint(path, newer)
    with pytest.raises(CheckpointError, match=r"format 99; this version reads format 1"):
        load_checkpoint(path)
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="not a checkpoint of ours"):
        load_checkpoint(path)
