"""A GPT training step: the captured program against eager PyTorch.

python -m benchmarks.training_step [--json] [--threads 2] [--rounds 7]
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import harness
from isthmus.program.session import Session

CASES = [
    {"layers": 4, "width": 128, "heads": 4, "length": 128, "batch": 16},
    {"layers": 6, "width": 384, "heads": 6, "length": 256, "batch": 8},
]


def _gpt() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "examples" / "gpt.py"
    spec = importlib.util.spec_from_file_location("gpt", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpt"] = module
    spec.loader.exec_module(module)
    return module


def _tokens(parameters: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    shape = (parameters["batch"], parameters["length"])
    tokens, targets = np.random.default_rng(0).integers(0, 256, (2, *shape))
    return tokens, targets


def program(parameters: dict[str, Any]) -> Callable[[], object]:
    gpt = _gpt()
    session = Session(gpt.capture(gpt.Config(**parameters), check=False))
    session.initialise(0)
    tokens, targets = _tokens(parameters)
    batch = {"tokens": tokens, "targets": targets}
    return lambda: session.run("train", batch, {"learning_rate": 1e-3})


def torch(parameters: dict[str, Any]) -> Callable[[], object]:
    import torch as library

    gpt = _gpt()
    model, optimizer, _ = gpt.make(gpt.Config(**parameters))
    tokens, targets = (library.from_numpy(array) for array in _tokens(parameters))
    batch = {"tokens": tokens, "targets": targets}

    def step() -> float:
        optimizer.zero_grad()
        loss = gpt.loss(model, batch)
        loss.backward()
        library.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def main() -> None:
    harness.main(
        "benchmarks.training_step",
        ["program", "torch"],
        CASES,
        lambda case: 1e-3 * case["batch"] * case["length"],
        "k tokens/s",
        "one GPT training step, f32",
    )


if __name__ == "__main__":
    main()
