"""docs/operators.md is what the operator records say."""

from __future__ import annotations

from pathlib import Path

from isthmus.ops.document import document
from isthmus.ops.standard import OPERATORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == document(), "run `make docs`"


def test_every_operator_has_a_section():
    headings = [line[3:] for line in document().splitlines() if line.startswith("## ")]
    assert headings == list(OPERATORS)
