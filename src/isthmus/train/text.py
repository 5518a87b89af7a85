"""Training a language model on text: corpus, tokenizer, windows, trainer, in one place."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isthmus.core.errors import DataError, ProgramError
from isthmus.data.corpus import read_corpus
from isthmus.data.sampler import WindowSampler
from isthmus.data.text import TokenizedText, tokenize_corpus
from isthmus.data.tokenizer import ByteTokenizer, Tokenizer
from isthmus.program.program import Program

__all__ = ["TextTask", "program_digest", "prepare_text", "token_shape"]


@dataclass(frozen=True, slots=True)
class TextTask:
    """Text made ready for a program: token streams, training windows, validation batches."""

    tokenizer: Tokenizer
    text: TokenizedText
    batches: WindowSampler
    validation: list[dict[str, np.ndarray]]
    identity: dict[str, object]


def token_shape(program: Program) -> tuple[int, int]:
    """(batch, length) of the program's training tokens.

    Raises: ProgramError when its batch is not `tokens` and `targets` of one [batch, length] shape.
    """
    graph = program.graphs["train"]
    given = {
        entry.name: entry.value.spec for entry in graph.inputs.values() if entry.kind == "batch"
    }
    shapes = {spec.shape for spec in given.values()}
    if set(given) != {"tokens", "targets"} or len(shapes) != 1 or len(min(shapes)) != 2:
        found = ", ".join(f"{name}: {spec}" for name, spec in given.items())
        raise ProgramError(
            f"training on text needs a batch of tokens and targets, both i64[batch, length]; "
            f"program {program.name!r} takes {found or 'nothing'}",
            hint="train other programs from Python: see examples/mlp_digits.py",
        )
    batch, length = min(shapes)
    return batch, length


def program_digest(program: Program) -> str:
    """A text that tells this program from others."""
    return hashlib.sha256(program.text().encode("utf-8")).hexdigest()[:16]


def prepare_text(
    program: Program,
    source: Path | str | None,
    *,
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
    validation_batches: int = 12,
) -> TextTask:
    """Read and encode text for `program`.

    source: file or folder; None: the running Python's standard library.
    Raises: DataError, ProgramError.
    """
    batch, length = token_shape(program)
    tokenizer = tokenizer or ByteTokenizer()
    vocabulary = program.metadata.get("vocabulary_size")
    if vocabulary is not None and tokenizer.vocabulary_size > vocabulary:
        raise DataError(
            f"the tokenizer has {tokenizer.vocabulary_size} tokens, "
            f"the program's vocabulary {vocabulary}",
            hint="capture the program with a vocabulary at least as large",
        )
    text = tokenize_corpus(read_corpus(source), tokenizer, length=length)
    held_out = WindowSampler(text.validation, batch_size=batch, length=length, seed=2**32 + 1)
    windows = len(held_out.windows(0))
    count = max(1, min(validation_batches, windows // batch))
    return TextTask(
        tokenizer,
        text,
        WindowSampler(text.train, batch_size=batch, length=length, seed=seed),
        [held_out.next_batch() for _ in range(count)],
        {"program": program_digest(program), "data": text.digest},
    )
