"""The training loop: step, watch, evaluate, checkpoint, stop cleanly, resume exactly.

What decides the result of a run is `TrainConfig`, the program, the data and the seed; everything
that moves (state, accumulators, sampler position, step counters) is in the checkpoint. A run that
stops anywhere, between two micro-batches too, goes on as if it had not stopped.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np

from isthmus.core.errors import CheckpointError, ConfigError, TrainingError
from isthmus.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from isthmus.train.metrics import MetricsWriter
from isthmus.train.schedule import WarmupCosine

__all__ = [
    "BatchSource", "Interrupted", "Session", "StepReport", "TrainConfig", "Trainer",
]  # fmt: skip

Batch = dict[str, np.ndarray]


class Session(Protocol):
    """A program ready to run (see `isthmus.program.session.Session`)."""

    def run(
        self, graph: str, batch: Batch, scalars: dict[str, float], key: tuple[int, int]
    ) -> dict[str, Any]: ...

    def state_dict(self) -> dict[str, np.ndarray]: ...

    def load_state_dict(self, content: Mapping[str, np.ndarray]) -> None: ...

    def has_graph(self, graph: str) -> bool: ...


class BatchSource(Protocol):
    """Batches for ever, with a position that can be recorded and restored."""

    def next_batch(self) -> Batch: ...

    def position(self) -> dict[str, Any]: ...

    def restore(self, position: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """What decides a run, besides program and data.

    steps: optimizer steps in the whole run. accumulate: micro-batches per optimizer step.
    learning_rate, floor_ratio, warmup_steps: peak, final share of it, linear warm-up.
    evaluate_every, checkpoint_every: in optimizer steps; 0 leaves it to the end of the run.
    seed: initialisation, sampling and dropout.
    """

    steps: int
    learning_rate: float = 3e-3
    floor_ratio: float = 0.05
    warmup_steps: int = 100
    accumulate: int = 1
    evaluate_every: int = 250
    checkpoint_every: int = 250
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        for name in ("warmup_steps", "evaluate_every", "checkpoint_every", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 0 or more")

    @property
    def schedule(self) -> WarmupCosine:
        return WarmupCosine(
            self.learning_rate,
            self.learning_rate * self.floor_ratio,
            min(self.warmup_steps, self.steps // 2),
            self.steps,
        )


@dataclass(slots=True)
class StepReport:
    """What one optimizer step gave: loss in nats, gradient norm before clipping, seconds."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    seconds: float
    extra: dict[str, float] = field(default_factory=dict)


class Interrupted(Exception):  # noqa: N818  (no error: the user asked to stop)
    """The user asked to stop; the checkpoint at `path` holds everything."""

    def __init__(self, path: Path, step: int) -> None:
        super().__init__(f"stopped after step {step}; resume from {path}")
        self.path = path
        self.step = step


class Trainer:
    """Drives a session over batches.

    out: folder of `checkpoint.safetensors` and `metrics.jsonl`.
    validation: batches for the "evaluate" graph, always the same ones.
    identity: digests of program and data, kept in the checkpoint and compared on resume.
    extra: plain data that goes into the checkpoint as it is (where the program and text lie).
    """

    def __init__(
        self,
        session: Session,
        batches: BatchSource,
        config: TrainConfig,
        out: Path,
        *,
        validation: Sequence[Batch] = (),
        identity: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        if config.accumulate > 1 and not session.has_graph("gradient"):
            raise ConfigError(
                f"accumulate is {config.accumulate}, but the program has no gradient graph",
                hint="capture it with accumulate=True",
            )
        self.session = session
        self.batches = batches
        self.config = config
        self.out = out
        self.validation = validation
        self.identity = identity or {}
        self.extra = extra or {}
        self.step = 0
        self.micro_step = 0
        self.validation_loss = math.nan
        self.elapsed_seconds = 0.0
        self._stop_asked = False
        self._loss_sum = 0.0
        self._loss_weight = 0.0

    @property
    def checkpoint_path(self) -> Path:
        return self.out / "checkpoint.safetensors"

    @property
    def metrics_path(self) -> Path:
        return self.out / "metrics.jsonl"

    # Checkpoints

    def save(self) -> Path:
        """Write the checkpoint. Raises CheckpointError; the previous one is then intact."""
        run = {
            "step": self.step,
            "micro_step": self.micro_step,
            "loss_sum": self._loss_sum,
            "loss_weight": self._loss_weight,
            "validation_loss": None if math.isnan(self.validation_loss) else self.validation_loss,
            "elapsed_seconds": self.elapsed_seconds,
            "position": self.batches.position(),
            "config": asdict(self.config),
            "identity": self.identity,
            **self.extra,
        }
        save_checkpoint(self.checkpoint_path, Checkpoint(run, self.session.state_dict()))
        return self.checkpoint_path

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint of the same program, data and configuration.

        Raises: CheckpointError naming the first thing that differs.
        """
        checkpoint = load_checkpoint(path)
        run = checkpoint.run
        for name, value in self.identity.items():
            if run["identity"].get(name) != value:
                raise CheckpointError(
                    f"{path} was made with another {name}: {run['identity'].get(name)!r}, "
                    f"this run has {value!r}",
                    hint="resume with the same --program, --data and tokenizer",
                )
        for name, value in asdict(self.config).items():
            if run["config"].get(name) != value:
                raise CheckpointError(
                    f"{path} was made with {name} {run['config'].get(name)!r}, "
                    f"this run has {value!r}",
                    hint="a run resumes with the configuration that it started with",
                )
        self.session.load_state_dict(checkpoint.state)
        self.batches.restore(run["position"])
        self.step, self.micro_step = run["step"], run["micro_step"]
        self._loss_sum, self._loss_weight = run["loss_sum"], run["loss_weight"]
        self.elapsed_seconds = run["elapsed_seconds"]
        recorded = run["validation_loss"]
        self.validation_loss = math.nan if recorded is None else recorded

    # Running

    def run(
        self,
        on_step: Callable[[StepReport], None] | None = None,
        on_evaluation: Callable[[int, float], None] | None = None,
        stop_after_micro_steps: int | None = None,
    ) -> None:
        """Train until `config.steps`, evaluating and saving on the way and at the end.

        Ctrl-C (SIGINT) and SIGTERM end the step in progress, save, and raise Interrupted.
        stop_after_micro_steps: save and raise Interrupted there, for planned stops.

        Raises: TrainingError when a loss is not finite, naming the step; the last checkpoint
            stays as it was. CheckpointError when a checkpoint cannot be written.
        """
        config, schedule = self.config, self.config.schedule
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot make the folder {self.out}: {error.strerror}",
                hint="choose another --out",
            ) from error
        metrics = MetricsWriter(self.metrics_path, keep_steps=self.step if self.step else None)
        try:
            with self._signals():
                while self.step < config.steps:
                    report = self._micro_batch(schedule)
                    if report is not None:
                        metrics.write("step", **_plain(report))
                        if on_step is not None:
                            on_step(report)
                        last = self.step == config.steps
                        if last or _due(self.step, config.evaluate_every):
                            self._evaluate_and_record(metrics, on_evaluation)
                        if last or _due(self.step, config.checkpoint_every):
                            self.save()
                    planned = self.micro_step == stop_after_micro_steps
                    if self.step < config.steps and (self._stop_asked or planned):
                        raise Interrupted(self.save(), self.step)
        finally:
            metrics.close()

    def _micro_batch(self, schedule: WarmupCosine) -> StepReport | None:
        """One micro-batch; a report when it completed an optimizer step."""
        started = time.perf_counter()
        step = self.step + 1
        rate = schedule(step)
        scalars = {"learning_rate": rate}
        batch = self.batches.next_batch()
        key = (self.config.seed, self.micro_step)
        self.micro_step += 1
        if self.config.accumulate == 1:
            outputs = self.session.run("train", batch, scalars, key)
            loss = float(outputs["loss"])
        else:
            outputs = self.session.run("gradient", batch, scalars, key)
            weight = float(outputs.get("weight", 1.0))
            loss = float(outputs["loss"])
            self._loss_sum += loss * weight
            self._loss_weight += weight
            if not math.isfinite(loss):
                self._refuse(step, loss)
            if self.micro_step % self.config.accumulate:
                self.elapsed_seconds += time.perf_counter() - started
                return None
            outputs = self.session.run("apply", {}, scalars, key)
            loss = self._loss_sum / self._loss_weight if self._loss_weight else math.nan
            self._loss_sum = self._loss_weight = 0.0
        norm = float(outputs.get("gradient_norm", math.nan))
        if not math.isfinite(loss) or math.isinf(norm):
            self._refuse(step, loss if not math.isfinite(loss) else norm)
        self.step = step
        seconds = time.perf_counter() - started
        self.elapsed_seconds += seconds
        return StepReport(step, loss, rate, norm, seconds)

    def _refuse(self, step: int, value: float) -> None:
        saved = self.checkpoint_path
        hint = (
            f"the last good checkpoint is {saved}; resume is of no use, but a lower "
            "--learning-rate may be"
            if saved.exists()
            else "no checkpoint was written yet; try a lower --learning-rate"
        )
        raise TrainingError(f"the loss is {value} at step {step}; training stopped", hint=hint)

    def evaluate(self) -> float:
        """Mean loss of the "evaluate" graph over the validation batches; NaN without any."""
        if not self.validation or not self.session.has_graph("evaluate"):
            return math.nan
        total = weights = 0.0
        for batch in self.validation:
            outputs = self.session.run("evaluate", batch, {}, (self.config.seed, 0))
            weight = float(outputs.get("weight", 1.0))
            total += float(outputs["loss"]) * weight
            weights += weight
        return total / weights

    def _evaluate_and_record(
        self, metrics: MetricsWriter, on_evaluation: Callable[[int, float], None] | None
    ) -> None:
        self.validation_loss = self.evaluate()
        if math.isnan(self.validation_loss):
            return
        metrics.write("evaluation", step=self.step, loss=self.validation_loss)
        if on_evaluation is not None:
            on_evaluation(self.step, self.validation_loss)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask for a stop; a second one ends the process at once."""
        self._stop_asked = False

        def ask(number: int, _frame: FrameType | None) -> None:
            if self._stop_asked:
                raise KeyboardInterrupt
            self._stop_asked = True

        previous = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                previous[number] = signal.signal(number, ask)
            except ValueError:  # not the main thread: the caller handles signals
                break
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _plain(report: StepReport) -> dict[str, Any]:
    return {
        "step": report.step,
        "loss": report.loss,
        "learning_rate": report.learning_rate,
        "gradient_norm": report.gradient_norm,
        "seconds": report.seconds,
        **report.extra,
    }
