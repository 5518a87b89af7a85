"""Each .ir file: run the passes it names on its functions, match the result with its CHECK lines.

The first line is `// PASSES: name, name`. The input must verify, and so must the output.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

from isthmus.ir.parser import parse_module
from isthmus.ir.printer import print_module
from isthmus.ir.verifier import verify
from isthmus.passes import pipeline

FILES = sorted(Path(__file__).parent.glob("*.ir"))
PASSES = {step.__name__: step for step in pipeline.PASSES}


def transformed(path: Path) -> str:
    text = path.read_text()
    head, _, names = text.splitlines()[0].partition(":")
    assert head == "// PASSES", f"{path.name} must start with // PASSES: name"
    module = parse_module(text, path.name)
    for function in module:
        verify(function)
        pipeline.run(function, [PASSES[name.strip()] for name in names.split(",")])
        verify(function)
    return print_module(module)


def matches(path: Path, text: str) -> bool:
    options = Options(str(path))
    return Matcher(options, FInput("output", text), Parser.from_opts(options)).run() == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_passes(path):
    text = transformed(path)
    assert matches(path, text), text


def test_every_pass_has_a_file():
    named = {name.strip() for path in FILES
             for name in path.read_text().splitlines()[0].partition(":")[2].split(",")}  # fmt: skip
    assert named >= set(PASSES)


def test_a_check_can_fail(tmp_path):
    path = tmp_path / "wrong.ir"
    path.write_text("// PASSES: remove_dead_code\n// CHECK: tile.load\nfunc @f() {\n"
                    "  func.return : () -> ()\n}\n")  # fmt: skip
    assert not matches(path, transformed(path))
