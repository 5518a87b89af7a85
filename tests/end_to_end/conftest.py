"""The command line on a tiny program and a small corpus."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.data.corpus import standard_library
from support.programs import tiny_gpt


@pytest.fixture(scope="session")
def program_file(tmp_path_factory) -> Path:
    """A tiny GPT with dropout, so that randomness is part of every test."""
    path = tmp_path_factory.mktemp("program") / "tiny.json"
    tiny_gpt(dropout=0.1).save(path)
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Some real text: a few modules of the standard library."""
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("argparse.py", "ast.py", "bisect.py", "copy.py", "enum.py", "heapq.py"):
        (folder / name).write_bytes((standard_library() / name).read_bytes())
    return folder


@pytest.fixture(scope="session")
def isthmus_command():
    """Runs `isthmus ARGUMENTS` in a process of its own."""

    def run(*arguments, check: bool = True, **keywords) -> subprocess.CompletedProcess:
        result = subprocess.run(
            [sys.executable, "-m", "isthmus", *map(str, arguments)],
            capture_output=True, text=True, timeout=300, check=False, **keywords,
        )  # fmt: skip
        if check:
            assert result.returncode == 0, result.stdout + result.stderr
        return result

    return run
