"""Learning rates over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isthmus.core.errors import ConfigError

__all__ = ["WarmupCosine"]


@dataclass(frozen=True, slots=True)
class WarmupCosine:
    """Linear warm-up to `peak`, then half a cosine down to `floor` at the last step.

    Source: Loshchilov and Hutter 2017 (SGDR), eq. 5 with one period; warm-up from Goyal et al.
    2017.
    """

    peak: float
    floor: float
    warmup_steps: int
    total_steps: int

    def __post_init__(self) -> None:
        if self.peak <= 0 or self.floor < 0 or self.floor > self.peak:
            raise ConfigError(
                f"learning rate goes from {self.peak} down to {self.floor}; "
                "it must satisfy 0 <= floor <= peak and peak > 0"
            )

    def __call__(self, step: int) -> float:
        """The learning rate of step `step`, the first being 1."""
        if step <= self.warmup_steps:
            return self.peak * step / max(1, self.warmup_steps)
        span = max(1, self.total_steps - self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / span)
        return self.floor + 0.5 * (self.peak - self.floor) * (1.0 + math.cos(math.pi * progress))
