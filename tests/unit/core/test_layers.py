"""Layers point one way, every package says what it is for, the project speaks of itself alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = sorted(path.parent for path in (ROOT / "src" / "isthmus").rglob("__init__.py"))


def test_import_linter_contract_holds():
    command = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_every_package_states_its_purpose_in_its_docstring(package):
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring, f"{package} has no docstring"
    assert docstring.splitlines()[0].endswith("."), "the first line is one sentence"


def test_every_module_has_a_docstring():
    missing = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert missing == []


def test_importing_isthmus_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import isthmus, isthmus.cli.main; "
        "assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
