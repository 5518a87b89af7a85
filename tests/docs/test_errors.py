"""docs/errors.md has a section, an example and a cure for every code in the source."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {
    text[:4]: text
    for text in re.split(r"^## ", (ROOT / "docs" / "errors.md").read_text(), flags=re.MULTILINE)[1:]
}


def codes_in_source() -> set[str]:
    """Codes of classes, of single errors, and of the table of kernel mistakes."""
    source = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    given = re.findall(r'\bcode ?= ?"([A-Z]\d{3})"', source)
    mistakes = re.findall(r'\bMistake\("([A-Z]\d{3})"', source)
    failed = re.findall(r'\bfail\(\s*"([A-Z]\d{3})"', source)
    return {*given, *mistakes, *failed}


def test_every_code_has_its_section_and_no_other():
    codes = codes_in_source()
    assert {"I000", "K101", "K401", "X000"} <= codes
    assert set(SECTIONS) == codes


def test_every_section_has_a_title_an_example_and_a_cure():
    for code, text in SECTIONS.items():
        assert re.match(rf"{code}: \S", text), code
        assert len(re.findall(r"```python\n.*?^```$", text, re.DOTALL | re.MULTILINE)) == 1, code
        assert "except " in text, code
        assert "assert error.code == " in text, code
        assert re.search(r"^Cure: \S", text, re.MULTILINE), code
