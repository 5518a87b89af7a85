"""A classifier of handwritten digits: captured from PyTorch, trained without it.

    python examples/mlp_digits.py

Needs the extras: pip install 'isthmus[torch]' scikit-learn
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import isthmus
from isthmus.program.session import Session

BATCH, EPOCHS = 32, 40


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch["pixels"]), batch["digit"])


def capture_program() -> isthmus.Program:
    """The training step of a two-layer perceptron over 8 x 8 images."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    example = {"pixels": torch.rand(BATCH, 64), "digit": torch.randint(0, 10, (BATCH,))}
    return isthmus.capture(model, loss, optimizer, example, forward=lambda m, b: m(b["pixels"]))


def main() -> None:
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    pixels = (data.data[order] / 16.0).astype(np.float32)
    digits = data.target[order].astype(np.int64)
    train, test = slice(0, 1440), slice(1440, None)

    session = Session(capture_program())
    session.initialise(seed=0)
    rng = np.random.default_rng(1)
    steps = EPOCHS * (1440 // BATCH)
    for step in range(steps):
        rows = rng.choice(1440, BATCH, replace=False)
        batch = {"pixels": pixels[train][rows], "digit": digits[train][rows]}
        rate = 3e-3 * min(1.0, 2.0 * (1.0 - step / steps))
        outputs = session.run("train", batch, {"learning_rate": rate}, key=(0, step))
        if step % 200 == 0:
            print(f"step {step}: loss {float(outputs['loss']):.3f}")

    right = 0
    for start in range(0, len(digits[test]), BATCH):
        rows = pixels[test][start : start + BATCH]
        padded = np.zeros((BATCH, 64), np.float32)
        padded[: len(rows)] = rows
        logits = session.run("forward", {"pixels": padded})["output"]
        right += int((logits.argmax(1)[: len(rows)] == digits[test][start : start + BATCH]).sum())
    print(f"test accuracy {100 * right / len(digits[test]):.2f} %")


if __name__ == "__main__":
    main()
