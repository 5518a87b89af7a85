"""Train a language model on text.

Without arguments: the bundled small GPT, on the source text of the running Python's standard
library, for about two minutes. Ends with a checkpoint, metrics (one JSON object a line), a loss
plot and a sample of generated text, all in the --out folder. Ctrl-C saves and stops;
`isthmus train --resume FOLDER` goes on exactly where the run stopped.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

from isthmus.cli.programs import find_program
from isthmus.cli.progress import JsonListener, Listener, ProgressListener
from isthmus.data.tokenizer import ByteTokenizer, load_tokenizer
from isthmus.program.session import Session
from isthmus.train.checkpoint import load_checkpoint
from isthmus.train.generate import generate_text
from isthmus.train.metrics import read_metrics
from isthmus.train.plot import save_loss_plot
from isthmus.train.text import TextTask, prepare_text
from isthmus.train.trainer import Interrupted, TrainConfig, Trainer

#: Training seconds that a run without --steps aims at, and the bounds of its step count.
_TARGET_SECONDS, _FEWEST_STEPS, _MOST_STEPS = 100.0, 200, 3000
_PROMPT = "def "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `isthmus train`."""
    parser.add_argument("--data", type=Path, metavar="PATH",
                        help="text file, or folder (default: Python's library)")  # fmt: skip
    parser.add_argument("--program", metavar="FILE",
                        help="a captured program (default: the bundled small GPT)")  # fmt: skip
    parser.add_argument("--tokenizer", type=Path, metavar="FILE",
                        help="a byte-pair tokenizer file (default: bytes)")  # fmt: skip
    parser.add_argument("--steps", type=int, metavar="N",
                        help="optimizer steps (default: what about 100 seconds allow)")  # fmt: skip
    parser.add_argument("--learning-rate", type=float, default=3e-3, metavar="RATE",
                        help="peak, after warm-up (default: %(default)s)")  # fmt: skip
    parser.add_argument("--warmup-steps", type=int, metavar="N",
                        help="steps of linear warm-up (default: a tenth, 100 at most)")  # fmt: skip
    parser.add_argument("--accumulate", type=int, default=1, metavar="N",
                        help="micro-batches per step (default: %(default)s)")  # fmt: skip
    parser.add_argument("--evaluate-every", type=int, default=250, metavar="N",
                        help="steps between evaluations (default: %(default)s)")  # fmt: skip
    parser.add_argument("--checkpoint-every", type=int, default=250, metavar="N",
                        help="steps between checkpoints (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FOLDER",
                        help="where results go (default: runs/DATE-TIME)")  # fmt: skip
    parser.add_argument("--resume", type=Path, metavar="FOLDER",
                        help="continue the run in FOLDER (or from a checkpoint file)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--threads", type=int, metavar="N", help="default: all cores")
    parser.add_argument("--stop-after", type=int, metavar="N",
                        help="save and stop after N micro-batches, to be resumed")  # fmt: skip
    parser.add_argument("--json", action="store_true",
                        help="print events as JSON lines instead of a progress bar")  # fmt: skip


def execute(options: argparse.Namespace) -> int:
    """Train, then report where everything is."""
    listener = JsonListener() if options.json else ProgressListener()
    resumed: dict[str, Any] | None = None
    if options.resume is not None:
        path = options.resume
        path = path / "checkpoint.safetensors" if path.is_dir() else path
        resumed = load_checkpoint(path).run
        _restore_options(options, path, resumed)
    program, program_name = find_program(options.program)
    tokenizer = (
        load_tokenizer(resumed["tokenizer"]) if resumed and "tokenizer" in resumed
        else load_tokenizer(options.tokenizer) if options.tokenizer
        else ByteTokenizer()
    )  # fmt: skip
    with listener.phase("reading text"):
        task = prepare_text(program, options.data, tokenizer=tokenizer, seed=options.seed)
    with listener.phase("compiling"):
        session = Session(program, threads=options.threads)
        session.prepare("train" if options.accumulate == 1 else "gradient")
        session.initialise(options.seed)
    steps = (
        _steps_that_fit(session, task, options.accumulate)
        if options.steps is None
        else options.steps
    )
    config = TrainConfig(
        steps=steps,
        learning_rate=options.learning_rate,
        warmup_steps=min(100, steps // 10)
        if options.warmup_steps is None
        else options.warmup_steps,
        accumulate=options.accumulate,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        seed=options.seed,
    )
    out = options.out or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    extra = {
        "tokenizer": tokenizer.description(),
        "program_file": program_name,
        "data_path": None if options.data is None else str(options.data.resolve()),
    }
    trainer = Trainer(
        session, task.batches, config, out,
        validation=task.validation, identity=task.identity, extra=extra,
    )  # fmt: skip
    if options.resume is not None:
        trainer.resume(path)
    batch = next(iter(session.batch_spec("train").values()))
    tokens_per_step = math.prod(batch) * config.accumulate
    listener.start(trainer, task, tokens_per_step, session.flops("train") * config.accumulate)
    try:
        with listener:
            trainer.run(listener.on_step, listener.on_evaluation, options.stop_after)
    except Interrupted as stop:
        listener.stopped(stop)
        return 0 if options.stop_after else 130
    _finish(trainer, session, task, listener, options.seed)
    return 0


def _restore_options(options: argparse.Namespace, path: Path, run: dict[str, Any]) -> None:
    """A resumed run takes its settings from the checkpoint."""
    for name, value in run["config"].items():
        if name == "floor_ratio":
            continue
        setattr(options, name, value)
    options.program = options.program or run.get("program_file")
    if options.data is None and run.get("data_path"):
        options.data = Path(run["data_path"])
    options.out = options.out or path.parent


def _steps_that_fit(session: Session, task: TextTask, accumulate: int) -> int:
    """Steps for about `_TARGET_SECONDS`, measured on a few steps whose effect is undone."""
    saved = {name: array.copy() for name, array in session.state_dict().items()}
    position = task.batches.position()
    times = []
    for index in range(12):
        batch = task.batches.next_batch()
        started = time.perf_counter()
        session.run("train", batch, {"learning_rate": 1e-6}, (0, index))
        times.append(time.perf_counter() - started)
    session.load_state_dict(saved)
    task.batches.restore(position)
    seconds = sorted(times)[len(times) // 4]  # a busy moment says little about the whole run
    steps = int(_TARGET_SECONDS / (seconds * max(1, accumulate)))
    return max(_FEWEST_STEPS, min(_MOST_STEPS, steps // 50 * 50))


def _finish(
    trainer: Trainer, session: Session, task: TextTask, listener: Listener, seed: int
) -> None:
    """Plot, sample, report."""
    events = read_metrics(trainer.metrics_path)
    plot_path = trainer.out / "loss.svg"
    train = [(e["step"], e["loss"]) for e in events if e["event"] == "step"]
    held_out = [(e["step"], e["loss"]) for e in events if e["event"] == "evaluation"]
    save_loss_plot(plot_path, train, held_out, "Loss")
    sample = ""
    sample_path = trainer.out / "sample.txt"
    if session.has_graph("forward"):
        sample = generate_text(session, task.tokenizer, _PROMPT, 400, seed=seed)
        sample_path.write_text(sample, encoding="utf-8")
    listener.finished(
        {
            "steps": trainer.step,
            "loss": train[-1][1],
            "validation_loss": trainer.validation_loss,
            "training_seconds": trainer.elapsed_seconds,
            "checkpoint": str(trainer.checkpoint_path),
            "metrics": str(trainer.metrics_path),
            "plot": str(plot_path),
            "sample": str(sample_path),
        },
        sample,
    )
