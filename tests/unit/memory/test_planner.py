"""The arena planner on small cases with known answers, and on a training step's shape."""

from __future__ import annotations

import pytest

from isthmus.core.errors import InternalError
from isthmus.memory.planner import ArenaPlan, Interval, lower_bound, plan_arena
from isthmus.memory.report import format_bytes, live_bytes, plan_report, plot_data


def test_buffers_that_do_not_meet_share_memory() -> None:
    plan = plan_arena([Interval("a", 0, 1, 100), Interval("b", 2, 3, 100)])
    assert plan.offsets == (0, 0)
    assert plan.peak_bytes == 100


def test_last_use_and_first_use_in_one_command_meet() -> None:
    plan = plan_arena([Interval("a", 0, 2, 64), Interval("b", 2, 3, 64)])
    assert sorted(plan.offsets) == [0, 64]


def test_offsets_are_aligned() -> None:
    plan = plan_arena([Interval(name, 0, 1, 10) for name in "abc"])
    assert sorted(plan.offsets) == [0, 64, 128]


def test_best_fit_takes_the_smallest_gap() -> None:
    intervals = [
        Interval("wall", 0, 9, 64),
        Interval("early", 0, 2, 256),
        Interval("late", 3, 9, 64),
        Interval("small", 4, 9, 192),
    ]
    plan = plan_arena(intervals)
    assert plan.peak_bytes == plan.lower_bound_bytes == 320


def test_bound_is_the_most_alive_at_once() -> None:
    intervals = [Interval("a", 0, 1, 5), Interval("b", 1, 2, 7), Interval("c", 2, 3, 6)]
    assert lower_bound(intervals) == 13


def test_nothing_to_place() -> None:
    plan = plan_arena([])
    assert (plan.peak_bytes, plan.lower_bound_bytes, plan.ratio) == (0, 0, 1.0)
    assert live_bytes(plan) == []


def test_empty_buffers_take_no_room() -> None:
    plan = plan_arena([Interval("a", 0, 5, 0), Interval("b", 0, 5, 64)])
    assert plan.peak_bytes == 64


def training_step(layers: int, width: int, rows: int) -> list[Interval]:
    """Activations kept for the backward pass, temporaries, gradients kept to the update."""
    unit = 4 * rows * width
    length = layers * 8
    end = 2 * length + layers * 4 + 2
    found = []
    for layer in range(layers):
        start, back = layer * 8, 2 * length - layer * 8
        found += [
            Interval(f"norm{layer}", start, back - 1, unit),
            Interval(f"qkv{layer}", start + 1, back - 2, 3 * unit),
            Interval(f"lse{layer}", start + 2, back - 2, 4 * rows * 6),
            Interval(f"hidden{layer}", start + 4, back - 5, 4 * unit),
            Interval(f"active{layer}", start + 5, back - 6, 4 * unit),
            Interval(f"out{layer}", start + 6, start + 9, unit),
            Interval(f"dhidden{layer}", back - 6, back - 4, 4 * unit),
            Interval(f"dqkv{layer}", back - 3, back - 1, 3 * unit),
            Interval(f"dw{layer}", back - 5, end, 4 * 4 * width * width),
            Interval(f"dqkv_w{layer}", back - 1, end, 4 * 3 * width * width),
        ]
    found.append(Interval("logits", length, length + 2, 4 * rows * 512))
    found.append(Interval("dlogits", length + 1, length + 4, 4 * rows * 512))
    return found


@pytest.mark.parametrize("layers", [2, 6, 12])
def test_training_step_is_within_ten_percent_of_the_bound(layers: int) -> None:
    plan = plan_arena(training_step(layers, 384, 2048))
    assert plan.ratio <= 1.10, plan.strategy


def test_check_names_the_buffers_that_overlap() -> None:
    bad = ArenaPlan(
        (Interval("left", 0, 2, 128), Interval("right", 1, 3, 64)), (0, 64), 128, 128, "by hand"
    )
    with pytest.raises(InternalError, match=r"left and right overlap"):
        bad.check()


def test_report_names_figures_and_buffers() -> None:
    plan = plan_arena([Interval("a", 0, 1, 2048), Interval("b", 1, 2, 1024)])
    text = plan_report(plan, largest=1)
    assert "3.0 KiB alive at command 1" in text
    assert "and 1 smaller buffers" in text
    assert live_bytes(plan) == [2048, 3072, 1024]
    assert plot_data(plan)[0]["name"] == "a"


def test_bytes_have_units() -> None:
    assert [format_bytes(count) for count in (12, 2048, 3 << 20)] == ["12 B", "2.0 KiB", "3.0 MiB"]
