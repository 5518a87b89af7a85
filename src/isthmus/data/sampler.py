"""Which windows of the token stream make up which batch: a pure function of seed and position.

Every epoch cuts the stream into windows of `length` tokens from another starting offset and
visits them in another order. Both come from a counter-based generator keyed by (seed, epoch),
so the position is the whole state: a resumed run continues with the very next batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import DataError

__all__ = ["SamplerState", "WindowSampler"]


@dataclass(slots=True)
class SamplerState:
    """Where a sampler stands: `index` windows of `epoch` have been handed out."""

    epoch: int = 0
    index: int = 0


class WindowSampler:
    """Batches of windows over `tokens` (integers [n]), for ever.

    `next_batch()` gives {"tokens": i64 [batch, length], "targets": i64 [batch, length]}, the
    targets one token ahead. A last short batch of an epoch is completed from the next epoch.

    Raises: DataError when the corpus is shorter than one window.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        *,
        batch_size: int,
        length: int,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        if len(tokens) < length + 1:
            raise DataError(
                f"the corpus has {len(tokens)} tokens; one sequence needs {length + 1}",
                hint="give more text, or capture the program with a shorter sequence",
            )
        self.tokens = tokens
        self.batch_size = batch_size
        self.length = length
        self.seed = seed
        self.shuffle = shuffle
        self.state = SamplerState()
        self._starts: np.ndarray | None = None
        self._starts_epoch = -1

    def windows(self, epoch: int) -> np.ndarray:
        """Start positions of the windows of `epoch`, in visiting order, int64 [count]."""
        if self._starts is None or self._starts_epoch != epoch:
            last_start = len(self.tokens) - self.length - 1
            if self.shuffle:
                generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
                offset = int(generator.integers(0, min(self.length, last_start + 1)))
                starts = np.arange(offset, last_start + 1, self.length, dtype=np.int64)
                starts = starts[generator.permutation(len(starts))]
            else:
                starts = np.arange(0, last_start + 1, self.length, dtype=np.int64)
            self._starts, self._starts_epoch = starts, epoch
        return self._starts

    def position(self) -> dict[str, int]:
        """The whole state, as plain data."""
        return {"epoch": self.state.epoch, "index": self.state.index}

    def restore(self, position: dict[str, int]) -> None:
        """Continue from a recorded position."""
        self.state = SamplerState(position["epoch"], position["index"])

    def next_batch(self) -> dict[str, np.ndarray]:
        picked: list[np.ndarray] = []
        missing = self.batch_size
        while missing:
            starts = self.windows(self.state.epoch)
            taken = starts[self.state.index : self.state.index + missing]
            picked.append(taken)
            missing -= len(taken)
            self.state.index += len(taken)
            if self.state.index >= len(starts):
                self.state.epoch += 1
                self.state.index = 0
        starts = np.concatenate(picked)
        rows = starts[:, None] + np.arange(self.length + 1)[None, :]
        window = self.tokens[rows].astype(np.int64)
        return {
            "tokens": np.ascontiguousarray(window[:, :-1]),
            "targets": np.ascontiguousarray(window[:, 1:]),
        }
