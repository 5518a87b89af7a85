"""Learning-rate schedule, metrics file, loss plot."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest

from isthmus.core.errors import ConfigError, DataError
from isthmus.train.metrics import MetricsWriter, read_metrics
from isthmus.train.plot import loss_plot, save_loss_plot
from isthmus.train.schedule import WarmupCosine


def test_warm_up_peak_middle_and_end():
    rate = WarmupCosine(peak=1.0, floor=0.1, warmup_steps=10, total_steps=110)
    assert rate(1) == pytest.approx(0.1)
    assert rate(10) == pytest.approx(1.0)
    assert rate(60) == pytest.approx(0.55)
    assert rate(110) == pytest.approx(0.1)
    assert rate(500) == pytest.approx(0.1)
    steps = [rate(step) for step in range(10, 111)]
    assert steps == sorted(steps, reverse=True)


def test_schedule_without_warm_up_and_of_one_step():
    assert WarmupCosine(1.0, 0.0, 0, 1)(1) == pytest.approx(0.0)
    assert WarmupCosine(1.0, 0.5, 5, 3)(3) == pytest.approx(0.6)


@pytest.mark.parametrize(("peak", "floor"), [(0.0, 0.0), (-1.0, 0.0), (1.0, 2.0), (1.0, -0.1)])
def test_schedule_refuses(peak, floor):
    with pytest.raises(ConfigError, match="0 <= floor <= peak"):
        WarmupCosine(peak, floor, 0, 10)


def test_metrics_append_and_drop_what_a_resumed_run_repeats(tmp_path):
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path)
    for step in range(1, 6):
        writer.write("step", step=step, loss=1.0 / step)
    writer.close()
    resumed = MetricsWriter(path, keep_steps=3)
    resumed.write("step", step=4, loss=9.0)
    resumed.close()
    assert [(event["step"], event["loss"]) for event in read_metrics(path)] == [
        (1, 1.0), (2, 0.5), (3, 1 / 3), (4, 9.0),
    ]  # fmt: skip


def test_metrics_are_json_even_for_nan(tmp_path):
    path = tmp_path / "m.jsonl"
    writer = MetricsWriter(path)
    writer.write("step", step=1, loss=float("nan"))
    writer.close()
    assert json.loads(path.read_text()) == {"event": "step", "step": 1, "loss": None}


def test_half_written_last_line_is_left_out_and_other_damage_is_named(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"st')
    assert read_metrics(path) == [{"step": 1}]
    path.write_text('{"st\n{"step": 1}\n')
    with pytest.raises(DataError, match=r"m\.jsonl:1: not JSON"):
        read_metrics(path)


@pytest.mark.parametrize(
    ("train", "validation"),
    [
        ([(s, 5.0 / s) for s in range(1, 300)], [(100, 2.0), (299, 1.5)]),
        ([], []),
        ([(1, 3.0)], []),
        ([(1, 2.0), (2, float("nan"))], [(2, 2.0)]),
    ],
)
def test_plot_is_well_formed_and_has_its_curves(tmp_path, train, validation):
    root = ElementTree.fromstring(loss_plot(train, validation, "a < b & c"))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3
    finite = sum(1 for _, value in train if value == value)
    assert len((lines[0].get("points") or "").split()) == finite
    save_loss_plot(tmp_path / "p.svg", train, validation, "t")
    assert [p.name for p in tmp_path.iterdir()] == ["p.svg"]
