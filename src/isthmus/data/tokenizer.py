"""Text to token numbers and back: bytes as they are, or byte-pair encoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from isthmus.core.errors import DataError

__all__ = ["BytePairTokenizer", "ByteTokenizer", "Tokenizer", "load_tokenizer"]


class Tokenizer(Protocol):
    """Anything that turns bytes into token numbers below `vocabulary_size` and back."""

    vocabulary_size: int

    def encode(self, text: bytes) -> np.ndarray:
        """Token numbers, int32 [length]."""
        ...

    def decode(self, tokens: np.ndarray) -> bytes:
        """The text of token numbers, integers [length]."""
        ...

    def description(self) -> dict[str, Any]:
        """What a checkpoint records to make the same tokenizer again."""
        ...


class ByteTokenizer:
    """One token per byte: 256 of them, nothing to learn."""

    vocabulary_size = 256

    def encode(self, text: bytes) -> np.ndarray:
        return np.frombuffer(text, dtype=np.uint8).astype(np.int32)

    def decode(self, tokens: np.ndarray) -> bytes:
        return np.asarray(tokens).astype(np.uint8).tobytes()

    def description(self) -> dict[str, Any]:
        return {"kind": "bytes"}


class BytePairTokenizer:
    """Byte-level byte-pair encoding by the `tokenizers` library (extra `tokenizers`).

    `model` is that library's JSON text, which is all there is to know.
    """

    def __init__(self, model: str) -> None:
        library = _tokenizers()
        try:
            self._tokenizer = library.Tokenizer.from_str(model)
        except Exception as error:  # the library raises bare Exception
            raise DataError(f"not a tokenizer: {error}") from error
        self._model = model
        self.vocabulary_size: int = self._tokenizer.get_vocab_size()

    @classmethod
    def train(cls, documents: list[bytes], vocabulary_size: int) -> BytePairTokenizer:
        """Learn `vocabulary_size` tokens (at least 256) from UTF-8 documents."""
        if vocabulary_size < 256:
            raise DataError(
                f"a byte-level vocabulary has at least 256 tokens, got {vocabulary_size}"
            )
        library = _tokenizers()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator((text.decode("utf-8") for text in documents), trainer)
        return cls(tokenizer.to_str())

    def encode(self, text: bytes) -> np.ndarray:
        return np.asarray(self._tokenizer.encode(text.decode("utf-8")).ids, dtype=np.int32)

    def decode(self, tokens: np.ndarray) -> bytes:
        text: str = self._tokenizer.decode([int(token) for token in tokens])
        return text.encode("utf-8")

    def description(self) -> dict[str, Any]:
        return {"kind": "byte-pair", "model": self._model}


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise DataError(
            "byte-pair encoding needs the tokenizers library",
            hint="pip install 'isthmus[tokenizers]'",
        ) from error
    return tokenizers


def load_tokenizer(description: dict[str, Any] | str | Path) -> Tokenizer:
    """The tokenizer of a checkpoint's description, or of a tokenizer file (JSON).

    Raises: DataError for a missing file or an unknown kind.
    """
    if isinstance(description, (str, Path)):
        try:
            return BytePairTokenizer(Path(description).read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"cannot read tokenizer {description}: {error.strerror}") from error
    kind = description.get("kind")
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "byte-pair":
        return BytePairTokenizer(description["model"])
    raise DataError(f"unknown tokenizer kind {kind!r}; known kinds: bytes, byte-pair")
