"""docs/ir.md is what the op tables say, and its example is a program."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from isthmus.ir.document import document
from isthmus.ir.interpreter import run
from isthmus.ir.optable import OPS
from isthmus.ir.parser import parse_function
from isthmus.ir.verifier import verify

DOCUMENT = Path(__file__).parents[3] / "docs" / "ir.md"


def test_the_document_is_up_to_date():
    assert DOCUMENT.read_text() == document(), "run `make docs`"


def test_every_operation_is_documented_once():
    listed = re.findall(r"^\| `([a-z]+\.[a-z_0-9]+)` \|", document(), re.MULTILINE)
    assert sorted(listed) == sorted(OPS)


def test_the_example_runs():
    match = re.search(r"```text\n(func .*?)```", document(), re.DOTALL)
    assert match is not None
    function = parse_function(match[1])
    verify(function)
    data = np.arange(100, dtype=np.float32)
    run(function, [data, 90], (2, 1, 1))
    np.testing.assert_array_equal(data, np.arange(100) * np.where(np.arange(100) < 90, 2, 1))
