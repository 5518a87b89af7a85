"""Capture a PyTorch training step as a program file.

    isthmus capture FILE.py:FUNCTION --out program.json

FUNCTION takes no argument and returns the program (from `isthmus.capture`), or a dictionary with
what `isthmus.capture` takes: model, loss, optimizer, example_batch. Needs the extra `torch`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from isthmus.cli.console import output_console
from isthmus.cli.programs import find_object
from isthmus.core.errors import CaptureError
from isthmus.program.program import Program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `isthmus capture`."""
    parser.add_argument("source", metavar="FILE.py:FUNCTION", help="what makes the model")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE",
                        help="the program file to write, .json")  # fmt: skip


def execute(options: argparse.Namespace) -> int:
    """Capture, check, save."""
    made = find_object(options.source)()
    if isinstance(made, dict):
        import isthmus

        made = isthmus.capture(**made)
    if not isinstance(made, Program):
        raise CaptureError(
            f"{options.source} returned {type(made).__name__}; it must return a program, "
            "or a dictionary of what isthmus.capture takes"
        )
    made.save(options.out)
    console = output_console()
    for name, graph in made.graphs.items():
        console.print(f"{name}: {len(graph.nodes)} nodes, {len(graph.inputs)} inputs")
    console.print(f"saved {options.out}", soft_wrap=True)
    return 0
