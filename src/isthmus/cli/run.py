"""Run graphs of a program: once, several times, or under the profiler.

    isthmus run gpt.json --steps 10
    isthmus run gpt.json --graph forward --batch inputs.npz
    isthmus run gpt.json --profile

Without --batch the batch is random numbers of the right shapes (integers below the vocabulary).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from rich.table import Table

from isthmus.cli.console import output_console
from isthmus.cli.programs import find_program
from isthmus.core.errors import ConfigError, DataError
from isthmus.ir.numpy_types import numpy_dtype
from isthmus.program.program import Program
from isthmus.program.session import Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `isthmus run`."""
    parser.add_argument("program", nargs="?", metavar="PROGRAM",
                        help="a program file (default: the bundled GPT)")  # fmt: skip
    parser.add_argument("--graph", default="train", help="default: %(default)s")
    parser.add_argument("--batch", type=Path, metavar="FILE", help="batch entries as .npz")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--learning-rate", type=float, default=1e-3, metavar="RATE")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--threads", type=int, metavar="N", help="default: all cores")
    parser.add_argument("--profile", action="store_true", help="time by operator")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    """Run and report."""
    if options.steps < 1:
        raise ConfigError(f"steps is {options.steps}; it must be 1 or more")
    program, _ = find_program(options.program)
    session = Session(program, threads=options.threads)
    executable = session.prepare(options.graph)
    session.initialise(options.seed)
    batch = _batch(program, options)
    scalars = {"learning_rate": options.learning_rate}
    losses, times = [], []
    for step in range(options.steps):
        started = time.perf_counter()
        outputs = session.run(options.graph, batch, scalars, (options.seed, step))
        times.append(time.perf_counter() - started)
        losses.append({n: float(v) for n, v in outputs.items() if v.ndim == 0})
    rows = executable.profile(batch, scalars) if options.profile else []
    summary = executable.report()
    if options.json:
        profile = [
            {"operator": r.operator, "launches": r.commands, "time_ns": r.time_ns, "flops": r.flops}
            for r in rows
        ]
        print(json.dumps({"outputs": losses, "seconds": times, "profile": profile}))  # noqa: T201
        return 0
    console = output_console()
    for step, (values, seconds) in enumerate(zip(losses, times, strict=True)):
        text = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        console.print(f"step {step}: {text}  {seconds * 1e3:.1f} ms")
    console.print(str(summary))
    if rows:
        total = sum(row.time_ns for row in rows)
        table = Table("operator", "launches", "ms", "share", "GFLOP/s")
        for row in rows:
            table.add_row(
                row.operator, str(row.commands), f"{row.time_ns / 1e6:.2f}",
                f"{row.time_ns / total:.1%}", f"{row.rate_gflops:.1f}",
            )  # fmt: skip
        console.print(table)
    return 0


def _batch(program: Program, options: argparse.Namespace) -> dict[str, np.ndarray]:
    if options.batch is not None:
        try:
            with np.load(options.batch, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read batch {options.batch}: {error}") from error
    generator = np.random.Generator(np.random.Philox(key=[options.seed, 1]))
    made = {}
    for entry in program.graph(options.graph).inputs.values():
        if entry.kind != "batch":
            continue
        spec = entry.value.spec
        if spec.dtype.is_float:
            made[entry.name] = generator.standard_normal(spec.shape).astype(numpy_dtype(spec.dtype))
        else:
            high = int(program.metadata.get("vocabulary_size", 2))
            made[entry.name] = generator.integers(0, high, spec.shape).astype(
                numpy_dtype(spec.dtype)
            )
    return made
