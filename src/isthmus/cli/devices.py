"""List the devices of this machine and what the compiler knows of them."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich.table import Table

from isthmus.cli.console import output_console
from isthmus.core.config import config
from isthmus.targets import host_target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `isthmus devices`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    """Describe the host CPU."""
    target = host_target()
    if options.json:
        print(json.dumps({"cpu": asdict(target)}))  # noqa: T201
        return 0
    table = Table(title="cpu", show_header=False)
    table.add_row("target", target.name)
    table.add_row("processor", target.cpu)
    table.add_row("vectors", f"{target.vector_registers} of {target.vector_bits} bits")
    table.add_row("fused multiply-add", "yes" if target.fma else "no")
    table.add_row("threads", f"{config().num_threads} of {target.cores} cores")
    for cache in target.caches:
        table.add_row(f"L{cache.level} data cache", f"{cache.size_bytes // 1024} KiB")
    output_console().print(table)
    return 0
