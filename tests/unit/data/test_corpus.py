"""Reading text: order, what is skipped, and what is refused."""

from __future__ import annotations

import pytest

from isthmus.core.errors import DataError
from isthmus.data.corpus import read_corpus


def test_folder_is_read_in_name_order(tmp_path):
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "z.txt").write_text("first")
    corpus = read_corpus(tmp_path)
    assert corpus.names == ("a/z.txt", "b.txt")
    assert corpus.documents == (b"first", b"second")
    assert corpus.size_bytes == 11


def test_hidden_binary_empty_and_non_utf8_files_are_left_out(tmp_path):
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / "image.png").write_bytes(b"text in a png")
    (tmp_path / "latin.txt").write_bytes("grün".encode("latin1"))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "good.txt").write_text("yes")
    assert read_corpus(tmp_path).names == ("good.txt",)


def test_single_file(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("Call me Ishmael.")
    assert read_corpus(path).names == ("book.txt",)


def test_missing_path_is_named():
    with pytest.raises(DataError, match="no such file or folder: /nowhere/at/all"):
        read_corpus("/nowhere/at/all")


@pytest.mark.parametrize("make_file", [True, False])
def test_empty_source(tmp_path, make_file):
    target = tmp_path / "empty.txt" if make_file else tmp_path
    if make_file:
        target.write_text("")
    with pytest.raises(DataError, match="is empty" if make_file else "holds no text"):
        read_corpus(target)


def test_named_file_that_is_not_utf8_is_refused_with_its_first_bad_byte(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"gr\xfcn")
    with pytest.raises(DataError, match="byte 2 is 0xfc"):
        read_corpus(path)


def test_standard_library_is_the_default_and_leaves_tests_out():
    corpus = read_corpus()
    assert "dataclasses.py" in corpus.names
    assert not any(name.startswith(("test/", "site-packages/")) for name in corpus.names)
    assert corpus.size_bytes > 5_000_000


def test_endings_select_files(tmp_path):
    (tmp_path / "a.py").write_text("pass")
    (tmp_path / "a.md").write_text("# A")
    assert read_corpus(tmp_path, endings=(".md",)).names == ("a.md",)
