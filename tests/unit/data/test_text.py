"""Tokenizers and the split into training and validation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.errors import DataError
from isthmus.data.corpus import Corpus
from isthmus.data.text import tokenize_corpus
from isthmus.data.tokenizer import BytePairTokenizer, ByteTokenizer, load_tokenizer


@given(st.binary(max_size=300))
def test_bytes_round_trip(text):
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(text)
    assert tokens.dtype == np.int32
    assert tokenizer.decode(tokens) == text


@pytest.fixture(scope="module")
def byte_pair() -> BytePairTokenizer:
    return BytePairTokenizer.train([b"the cat and the hat and the bat " * 50], 300)


@given(st.text(max_size=100))
def test_byte_pair_round_trip(byte_pair, text):
    assert byte_pair.decode(byte_pair.encode(text.encode())) == text.encode()


def test_byte_pair_learns_and_is_restored(byte_pair):
    text = b"the cat and the hat"
    tokens = byte_pair.encode(text)
    assert len(tokens) < len(text) / 2
    again = load_tokenizer(json.loads(json.dumps(byte_pair.description())))
    np.testing.assert_array_equal(again.encode(text), tokens)
    assert again.vocabulary_size == byte_pair.vocabulary_size <= 300


def test_tokenizer_file(byte_pair, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(byte_pair.description()["model"])
    assert load_tokenizer(path).vocabulary_size == byte_pair.vocabulary_size


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_tokenizer({"kind": "words"}), "unknown tokenizer kind 'words'"),
        (lambda: load_tokenizer("/nowhere.json"), "cannot read tokenizer /nowhere.json"),
        (lambda: BytePairTokenizer("{}"), "not a tokenizer"),
        (lambda: BytePairTokenizer.train([b"a"], 10), "at least 256 tokens, got 10"),
    ],
)
def test_bad_tokenizers(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_whole_documents_are_held_out():
    names = tuple(f"file{i}.txt" for i in range(200))
    documents = tuple(bytes([i]) * 50 for i in range(200))
    text = tokenize_corpus(Corpus(names, documents), ByteTokenizer(), length=20)
    assert set(text.train.tolist()).isdisjoint(text.validation.tolist())
    assert 0 < len(text.validation) < 0.15 * 200 * 50
    assert len(text.train) + len(text.validation) == 200 * 50


def test_one_document_gives_its_tail_to_validation():
    text = tokenize_corpus(Corpus(("one",), (bytes(range(200)),)), ByteTokenizer(), length=20)
    assert text.validation.tolist() == list(range(179, 200))
    assert text.train.tolist() == list(range(179))


def test_split_does_not_depend_on_other_documents():
    def held(names: list[str]) -> set[int]:
        corpus = Corpus(tuple(names), tuple(bytes([int(name)]) * 99 for name in names))
        return set(tokenize_corpus(corpus, ByteTokenizer(), length=9).validation.tolist())

    everything = held([str(i) for i in range(250)])
    assert held([str(i) for i in range(0, 250, 2)]) == {i for i in everything if i % 2 == 0}


def test_too_short_for_one_sequence_each():
    with pytest.raises(DataError, match=r"has 30 tokens; .* at least 42, one sequence of 21 each"):
        tokenize_corpus(Corpus(("a",), (b"x" * 30,)), ByteTokenizer(), length=20)


def test_digest_follows_names_and_content():
    def digest(name: str, text: bytes) -> str:
        return tokenize_corpus(Corpus((name,), (text,)), ByteTokenizer(), length=2).digest

    assert digest("a", b"abcdefgh") == digest("a", b"abcdefgh")
    assert digest("a", b"abcdefgh") != digest("b", b"abcdefgh")
    assert digest("a", b"abcdefgh") != digest("a", b"abcdefgi")
