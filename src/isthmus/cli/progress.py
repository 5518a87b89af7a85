"""What a training run shows while it runs: a live line for people, JSON lines for scripts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from isthmus.cli.console import error_console, output_console
from isthmus.train.text import TextTask
from isthmus.train.trainer import Interrupted, StepReport, Trainer

__all__ = ["JsonListener", "Listener", "ProgressListener"]


class Listener(Protocol):
    """What `isthmus train` tells about a run."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]: ...

    def start(self, trainer: Trainer, task: TextTask, tokens: int, flops: int) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_error: object) -> None: ...

    def on_step(self, report: StepReport) -> None: ...

    def on_evaluation(self, step: int, loss: float) -> None: ...

    def stopped(self, stop: Interrupted) -> None: ...

    def finished(self, summary: dict[str, Any], sample: str) -> None: ...


class _Rate:
    """Medians over the last steps: seconds, tokens per second, GFLOP/s."""

    def __init__(self, tokens: int, flops: int) -> None:
        self.tokens, self.flops = tokens, flops
        self.recent: list[float] = []

    def add(self, seconds: float) -> float:
        self.recent = [*self.recent[-30:], seconds]
        return sorted(self.recent)[len(self.recent) // 2]


class ProgressListener:
    """A live line on standard error, results on standard output."""

    def __init__(self) -> None:
        self.console = error_console()
        self.progress = Progress(
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=12),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[line]}"),
            console=self.console,
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        with self.console.status(f"{name} ..."):
            yield
        self.console.print(f"{name}: {time.perf_counter() - started:.1f} s", style="dim")

    def start(self, trainer: Trainer, task: TextTask, tokens: int, flops: int) -> None:
        text = task.text
        self.console.print(
            f"{text.documents} files, {text.size_bytes / 1e6:.1f} MB; "
            f"{len(text.train):,} tokens to train on, {len(text.validation):,} held out; "
            f"{trainer.config.steps} steps of {tokens} tokens",
            soft_wrap=True,
        )
        self.rate = _Rate(tokens, flops)
        self.bar = self.progress.add_task(
            "train", total=trainer.config.steps, completed=trainer.step, line=""
        )
        self.validation = trainer.validation_loss

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.progress.stop()

    def on_step(self, report: StepReport) -> None:
        self.seconds = self.rate.add(report.seconds)
        self.report = report
        self._show()

    def _show(self) -> None:
        report, seconds = self.report, self.seconds
        line = (
            f"loss [bold]{report.loss:.3f}[/]"
            + ("" if math.isnan(self.validation) else f" (held out [bold]{self.validation:.3f}[/])")
            + f"  rate {report.learning_rate:.1e}  {self.rate.tokens / seconds:,.0f} tokens/s  "
            f"{self.rate.flops / seconds / 1e9:.0f} GFLOP/s"
        )
        self.progress.update(self.bar, completed=report.step, line=line)

    def on_evaluation(self, step: int, loss: float) -> None:
        self.validation = loss
        self._show()
        if not self.console.is_terminal:
            self.console.print(f"step {step}: validation loss {loss:.3f} nats per token")

    def stopped(self, stop: Interrupted) -> None:
        self.console.print(
            f"stopped after step {stop.step}. Go on with: "
            f"isthmus train --resume {stop.path.parent}",
            style="yellow",
        )

    def finished(self, summary: dict[str, Any], sample: str) -> None:
        out = output_console()
        if sample:
            out.rule("a sample")
            out.print(escape(sample), soft_wrap=True)
            out.rule()
        out.print(
            f"{summary['steps']} steps in {summary['training_seconds']:.0f} s; "
            f"validation loss [bold]{summary['validation_loss']:.3f}[/] nats per token"
        )
        for name in ("checkpoint", "metrics", "plot", "sample"):
            out.print(f"  {name:<10} {summary[name]}", soft_wrap=True)


class JsonListener:
    """One JSON object per event on standard output."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._print(event="phase", name=name, seconds=time.perf_counter() - started)

    def start(self, trainer: Trainer, task: TextTask, tokens: int, flops: int) -> None:
        self._print(
            event="start",
            steps=trainer.config.steps,
            step=trainer.step,
            tokens_per_step=tokens,
            flops_per_step=flops,
            train_tokens=len(task.text.train),
            validation_tokens=len(task.text.validation),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def on_step(self, report: StepReport) -> None:
        self._print(
            event="step",
            step=report.step,
            loss=report.loss,
            learning_rate=report.learning_rate,
            gradient_norm=report.gradient_norm,
            seconds=report.seconds,
        )

    def on_evaluation(self, step: int, loss: float) -> None:
        self._print(event="evaluation", step=step, loss=loss)

    def stopped(self, stop: Interrupted) -> None:
        self._print(event="stopped", step=stop.step, checkpoint=str(stop.path))

    def finished(self, summary: dict[str, Any], sample: str) -> None:
        self._print(event="finished", **summary, text=sample)

    @staticmethod
    def _print(**event: Any) -> None:
        plain = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in event.items()
        }
        print(json.dumps(plain), flush=True)  # noqa: T201
