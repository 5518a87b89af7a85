"""Generate text from a checkpoint.

Example:

    isthmus generate runs/mine --prompt "def " --length 200 --temperature 0.8
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from isthmus.cli.programs import find_program
from isthmus.data.tokenizer import load_tokenizer
from isthmus.program.session import Session
from isthmus.train.checkpoint import load_checkpoint
from isthmus.train.generate import generate_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `isthmus generate`."""
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a run's folder, or a checkpoint file"
    )
    parser.add_argument(
        "--prompt", default="def ", help="text to go on from (default: %(default)r)"
    )
    parser.add_argument("--length", type=int, default=400, metavar="N",
                        help="tokens to generate (default: %(default)s)")  # fmt: skip
    parser.add_argument("--temperature", type=float, default=0.8, metavar="T",
                        help="0 takes the likeliest token (default: %(default)s)")  # fmt: skip
    parser.add_argument("--top-k", type=int, default=0, metavar="K",
                        help="sample among the K likeliest tokens (default: all)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--program", metavar="FILE", help="the program, if it has moved")
    parser.add_argument("--threads", type=int, metavar="N", help="default: all cores")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    """Print the prompt and what follows."""
    path = options.run / "checkpoint.safetensors" if options.run.is_dir() else options.run
    checkpoint = load_checkpoint(path)
    program, _ = find_program(options.program or checkpoint.run.get("program_file"))
    tokenizer = load_tokenizer(checkpoint.run.get("tokenizer", {"kind": "bytes"}))
    session = Session(program, threads=options.threads)
    session.load_state_dict(checkpoint.state)
    text = generate_text(
        session, tokenizer, options.prompt, options.length,
        temperature=options.temperature, top_k=options.top_k, seed=options.seed,
    )  # fmt: skip
    if options.json:
        print(json.dumps({"prompt": options.prompt, "text": text}))  # noqa: T201
    else:
        print(text)  # noqa: T201
    return 0
