"""From a corpus to training and validation token streams."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import DataError
from isthmus.data.corpus import Corpus
from isthmus.data.tokenizer import Tokenizer

__all__ = ["TokenizedText", "tokenize_corpus"]


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """Token streams, int32 [n], and the digest that tells this text from another."""

    train: np.ndarray
    validation: np.ndarray
    digest: str
    documents: int
    size_bytes: int


def _held_out(name: str, fraction: float) -> bool:
    """Whether a document belongs to validation: a hash of its name decides, not its position."""
    draw = int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:8], "big")
    return draw < fraction * 2**64


def tokenize_corpus(
    corpus: Corpus, tokenizer: Tokenizer, *, length: int, validation_fraction: float = 0.05
) -> TokenizedText:
    """Encode every document and hold some out for validation.

    Whole documents are held out where there are several; where that leaves either side shorter
    than one sequence of `length` tokens, the tail of the stream is held out instead.

    Raises: DataError when the text is too short for one sequence on either side.
    """
    digest = hashlib.sha256()
    for name, text in zip(corpus.names, corpus.documents, strict=True):
        digest.update(f"{name}\0{len(text)}\0".encode())
        digest.update(text)
    encoded = [tokenizer.encode(text) for text in corpus.documents]
    held = [_held_out(name, validation_fraction) for name in corpus.names]
    empty = np.zeros(0, dtype=np.int32)
    train = np.concatenate([e for e, h in zip(encoded, held, strict=True) if not h] or [empty])
    validation = np.concatenate([e for e, h in zip(encoded, held, strict=True) if h] or [empty])
    need = length + 1
    if len(train) < need or len(validation) < need:
        stream = np.concatenate(encoded)
        if len(stream) < 2 * need:
            raise DataError(
                f"the corpus has {len(stream)} tokens; training and validation need at least "
                f"{2 * need}, one sequence of {need} each",
                hint="give more text, or capture the program with a shorter sequence",
            )
        cut = len(stream) - max(need, int(len(stream) * validation_fraction))
        train, validation = stream[:cut], stream[cut:]
    return TokenizedText(train, validation, digest.hexdigest(), len(encoded), corpus.size_bytes)
