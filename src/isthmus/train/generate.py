"""Text from a trained program: sample one token at a time from the "forward" graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from isthmus.core.errors import ConfigError, ProgramError
from isthmus.data.tokenizer import Tokenizer

__all__ = ["generate_text", "generate_tokens", "sample_token"]


class ForwardSession(Protocol):
    """What generation needs of `isthmus.program.session.Session`."""

    def run(
        self, graph: str, batch: dict[str, np.ndarray], scalars: dict[str, float],
        key: tuple[int, int],
    ) -> dict[str, Any]: ...  # fmt: skip

    def has_graph(self, graph: str) -> bool: ...

    def batch_spec(self, graph: str) -> dict[str, tuple[int, ...]]: ...


def sample_token(
    logits_V: np.ndarray, draw: float, *, temperature: float = 1.0, top_k: int = 0
) -> int:
    """One token number from logits, by inverse transform of a uniform `draw` in [0, 1).

    temperature 0 takes the largest logit; top_k > 0 keeps only the k largest.
    """
    logits = logits_V.astype(np.float64)
    if temperature == 0.0:
        return int(logits.argmax())
    logits /= temperature
    if 0 < top_k < len(logits):
        threshold = np.partition(logits, -top_k)[-top_k]
        logits[logits < threshold] = -np.inf
    weights = np.exp(logits - logits.max())
    cumulative = np.cumsum(weights)
    return int(min(np.searchsorted(cumulative, draw * cumulative[-1], "right"), len(logits) - 1))


def generate_tokens(
    session: ForwardSession,
    prompt: np.ndarray,
    count: int,
    *,
    vocabulary_size: int,
    temperature: float = 0.8,
    top_k: int = 0,
    seed: int = 0,
) -> Iterator[int]:
    """`count` tokens after `prompt` (integers [n], n >= 1), from a window of the latest tokens.

    Raises: ConfigError for impossible settings, ProgramError when the program cannot generate.
    """
    if temperature < 0:
        raise ConfigError(f"temperature is {temperature}; it must be 0 or more")
    if top_k < 0 or count < 0:
        raise ConfigError(f"top_k is {top_k} and length {count}; they must be 0 or more")
    if not session.has_graph("forward"):
        raise ProgramError(
            "this program has no forward graph, so it cannot generate",
            hint="capture it with forward=",
        )
    (rows, length) = session.batch_spec("forward")["tokens"]
    tokens = [int(token) for token in prompt] or [0]
    generator = np.random.Generator(np.random.Philox(key=[seed, 0x47454E]))
    window = np.zeros((rows, length), np.int64)
    for _ in range(count):
        recent = tokens[-length:]
        window[0, : len(recent)] = recent
        window[0, len(recent) :] = 0
        outputs = session.run("forward", {"tokens": window}, {}, (seed, 0))
        logits = np.asarray(outputs["output"])[0, len(recent) - 1, :vocabulary_size]
        token = sample_token(logits, generator.random(), temperature=temperature, top_k=top_k)
        tokens.append(token)
        yield token


def generate_text(
    session: ForwardSession, tokenizer: Tokenizer, prompt: str, count: int, **settings: Any
) -> str:
    """The prompt and `count` more tokens as text; bytes that are not UTF-8 become U+FFFD."""
    start = tokenizer.encode(prompt.encode("utf-8"))
    if len(start) == 0:
        start = tokenizer.encode(b"\n")
    new = generate_tokens(
        session, start, count, vocabulary_size=tokenizer.vocabulary_size, **settings
    )
    text = tokenizer.decode(np.asarray(list(new), dtype=np.int64))
    return prompt + text.decode("utf-8", errors="replace")
