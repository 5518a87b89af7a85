"""Runs contestants in processes of their own, in turn, and compares medians.

A contestant is a function `(parameters) -> call`: it prepares its data and gives back what is to
be timed. Each lives in its own process (thread pools that share one would slow each other), is
warmed up, then answers one timing request after the other while the others sleep. What comes
out is seconds per call: median and quartiles over the rounds, and the load of the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Measurement", "compare", "main", "options", "table"]

#: Settings that would hold a peer back; contestants run without them.
REMOVED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_DEBUG_CPU_TYPE")
THREAD_SETTINGS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ISTHMUS_NUM_THREADS",
)  # fmt: skip


@dataclass
class Measurement:
    """Seconds per call of one contestant."""

    contestant: str
    parameters: dict[str, Any]
    threads: int
    seconds: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        first, _, third = statistics.quantiles(self.seconds, n=4)
        return first, third

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "quartiles": self.quartiles}


class _Worker:
    """One contestant in its process."""

    def __init__(
        self, module: str, function: str, parameters: dict[str, Any], threads: int
    ) -> None:
        environment = {key: value for key, value in os.environ.items() if key not in REMOVED}
        environment.update(dict.fromkeys(THREAD_SETTINGS, str(threads)))
        root = Path(__file__).resolve().parent.parent
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(root), str(root / "src"), environment.get("PYTHONPATH", "")]
        )
        command = [sys.executable, "-m", "benchmarks.harness", module, function]
        self.process = subprocess.Popen(
            [*command, json.dumps(parameters)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args} ended early")
        return line

    def time(self, calls: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def compare(
    module: str,
    contestants: Sequence[str],
    parameters: dict[str, Any],
    *,
    threads: int = 1,
    rounds: int = 15,
    seconds_per_round: float = 0.1,
) -> list[Measurement]:
    """Time `contestants` (functions of `module`) in turn, `rounds` times."""
    workers = {name: _Worker(module, name, parameters, threads) for name in contestants}
    try:
        results = {name: Measurement(name, parameters, threads) for name in contestants}
        calls = {
            name: max(1, round(seconds_per_round / max(1e-7, worker.time(1))))
            for name, worker in workers.items()
        }
        for _ in range(rounds):
            for name, worker in workers.items():
                results[name].load.append(os.getloadavg()[0])
                results[name].seconds.append(worker.time(calls[name]))
    finally:
        for worker in workers.values():
            worker.close()
    return list(results.values())


def _serve(module: str, function: str, parameters: str) -> None:
    """The process of one contestant: answers numbers of calls with seconds per call."""
    prepare: Callable[[dict[str, Any]], Callable[[], object]]
    prepare = getattr(importlib.import_module(module), function)
    call = prepare(json.loads(parameters))
    call()
    call()
    print("ready", flush=True)
    for line in sys.stdin:
        calls = int(line)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        print((time.perf_counter() - start) / calls, flush=True)


def options(description: str) -> argparse.Namespace:
    """What every benchmark takes on its command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print all measurements as JSON")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="*", default=None)
    return parser.parse_args()


def table(measurements: Sequence[Measurement], work: float, unit: str) -> str:
    """One line for a group: rates, and the ratio of the first to each peer."""
    first, *peers = measurements
    shape = " ".join(f"{key}={value}" for key, value in first.parameters.items())
    parts = [f"{shape:44} threads={first.threads}"]
    parts += [f"{m.contestant} {work / m.median:8.1f} {unit}" for m in measurements]
    parts += [f"x{peer.median / first.median:.2f} of {peer.contestant}" for peer in peers]
    return "  ".join(parts)


def main(
    module: str,
    contestants: Sequence[str],
    cases: Sequence[dict[str, Any]],
    work: Callable[[dict[str, Any]], float],
    unit: str,
    description: str,
) -> None:
    """Run all cases and print a table, or JSON. `work` is units of 1e9 per call."""
    arguments = options(description)
    threads = arguments.threads or sorted({1, len(os.sched_getaffinity(0))})
    records = []
    for case in cases:
        for count in threads:
            group = compare(module, contestants, case, threads=count, rounds=arguments.rounds)
            records += [m.record() for m in group]
            if not arguments.json:
                print(table(group, work(case), unit), flush=True)
    if arguments.json:
        print(json.dumps(records, indent=1))


if __name__ == "__main__":
    _serve(*sys.argv[1:])
