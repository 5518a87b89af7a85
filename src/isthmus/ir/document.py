"""Writes the reference of the IR from the op tables: `python -m isthmus.ir.document [path]`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType

from isthmus.ir import parser, types
from isthmus.ir.dialects import arith, math, nest, scf, tile
from isthmus.ir.optable import OPS, OpDef

__all__ = ["document"]

#: Chapter title, the module whose docstring opens it, the name prefixes of its operations.
_CHAPTERS: tuple[tuple[str, ModuleType, tuple[str, ...]], ...] = (
    ("Arithmetic and pointers", arith, ("arith", "ptr")),
    ("Functions", math, ("math",)),
    ("Control flow", scf, ("scf", "func")),
    ("Blocks", tile, ("tile",)),
    ("Loop nests", nest, ("nest", "vector")),
)
_INTRODUCTION = """\
# The IR

<!-- Written by `make docs` from the op tables in src/isthmus/ir/dialects; do not edit. -->

A kernel is one function of tile operations; the nest lowering turns it into one function of
loops over scalars and vectors. Both are written in the same form: every operation is a row of a
table, with its operands, attributes, type rule and meaning. `isthmus.ir.verifier` checks rows,
`isthmus.ir.printer` and `isthmus.ir.parser` turn programs into text and back without loss,
`isthmus.ir.reference` says in NumPy what element-wise operations compute, and
`isthmus.ir.interpreter` runs tile functions on NumPy arrays.

```text
func @double(%x: ptr<f32> {divisibility = 16}, %n: i32) {
  %pid = tile.program_id {axis = 0} : () -> (i32)
  %block = arith.constant {value = 64} : () -> (i32)
  %start = arith.muli %pid, %block : (i32, i32) -> (i32)
  %lanes = tile.arange {start = 0, end = 64} : () -> (tile<64xi32>)
  %first = tile.splat %start : (i32) -> (tile<64xi32>)
  %at = arith.addi %first, %lanes : (tile<64xi32>, tile<64xi32>) -> (tile<64xi32>)
  %end = tile.splat %n : (i32) -> (tile<64xi32>)
  %on = arith.cmpi %at, %end {predicate = "slt"} : (tile<64xi32>, tile<64xi32>) -> (tile<64xi1>)
  %base = tile.splat %x : (ptr<f32>) -> (tile<64xptr<f32>>)
  %place = ptr.add %base, %at : (tile<64xptr<f32>>, tile<64xi32>) -> (tile<64xptr<f32>>)
  %value = tile.load %place, %on : (tile<64xptr<f32>>, tile<64xi1>) -> (tile<64xf32>)
  %twice = arith.addf %value, %value : (tile<64xf32>, tile<64xf32>) -> (tile<64xf32>)
  tile.store %place, %twice, %on : (tile<64xptr<f32>>, tile<64xf32>, tile<64xi1>) -> ()
  func.return : () -> ()
}
```
"""
_COLUMNS = """\
In the tables, `?` marks what may be left out and `*` any number of operands. Traits: `pure`
operations only compute; `elementwise` ones work lane by lane on scalars, tiles and vectors;
`reads` and `writes` tell what touches memory; a `terminator` ends a region.
"""


def document() -> str:
    """The text of docs/ir.md."""
    parts = [
        _INTRODUCTION,
        "## Types\n\n" + _text_block(types),
        "## Text\n\n" + _text_block(parser),
        "## Operations\n\n" + _COLUMNS,
    ]
    for title, module, prefixes in _CHAPTERS:
        rows = [row for row in OPS.values() if row.name.split(".")[0] in prefixes]
        parts.append(f"### {title}\n\n{inspect.getdoc(module)}\n\n{_table(rows)}")
    return "\n".join(parts)


def _text_block(module: ModuleType) -> str:
    """A docstring whose indented part is kept as it is."""
    summary, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
    return f"{summary}\n\n{_fenced(rest)}"


def _fenced(text: str) -> str:
    """Indented paragraphs as code blocks."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        is_code = all(line.startswith("    ") for line in lines)
        body = "\n".join(line[4:] for line in lines) if is_code else paragraph
        paragraphs.append(f"```text\n{body}\n```" if is_code else body)
    return "\n\n".join(paragraphs) + "\n"


def _table(rows: list[OpDef]) -> str:
    lines = ["| Operation | Operands | Attributes | Traits | Meaning |", "|---|---|---|---|---|"]
    for row in rows:
        attrs = ", ".join(
            f"`{name}`" if kind is object else f"`{name}: {kind.__name__}`"
            for name, kind in row.attrs.items()
        )
        traits = " ".join(sorted(row.traits))
        if row.regions:
            traits += f"{', ' if traits else ''}{row.regions} region{'s' * (row.regions > 1)}"
        operands = f"`{' '.join(row.operands)}`" if row.operands else ""
        lines.append(f"| `{row.name}` | {operands} | {attrs} | {traits} | {row.doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/ir.md").write_text(document())
