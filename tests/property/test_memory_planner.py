"""Properties of the arena planner on arbitrary lifetimes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.memory.planner import Interval, lower_bound, plan_arena


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Interval]:
    count = draw(st.integers(0, 40))
    found = []
    for index in range(count):
        first = draw(st.integers(0, 30))
        found.append(
            Interval(
                f"b{index}", first, first + draw(st.integers(0, 12)),
                draw(st.integers(0, 5000)), draw(st.sampled_from([1, 16, 64, 256])),
            )
        )  # fmt: skip
    return found


@given(lifetimes())
@settings(max_examples=150, deadline=None)
def test_live_buffers_never_overlap(intervals: list[Interval]) -> None:
    plan = plan_arena(intervals)
    for i, (one, offset) in enumerate(zip(plan.intervals, plan.offsets, strict=True)):
        assert offset % one.alignment_bytes == 0
        assert offset + one.size_bytes <= plan.peak_bytes
        for other, place in zip(plan.intervals[:i], plan.offsets[:i], strict=True):
            if one.overlaps(other) and one.size_bytes and other.size_bytes:
                assert offset + one.size_bytes <= place or place + other.size_bytes <= offset


@given(lifetimes())
@settings(max_examples=100, deadline=None)
def test_peak_lies_between_the_bound_and_no_sharing(intervals: list[Interval]) -> None:
    plan = plan_arena(intervals)
    assert plan.lower_bound_bytes == lower_bound(intervals)
    slack = sum(interval.size_bytes + interval.alignment_bytes for interval in intervals)
    assert plan.lower_bound_bytes <= plan.peak_bytes <= slack


@given(lifetimes())
@settings(max_examples=50, deadline=None)
def test_same_intervals_same_plan(intervals: list[Interval]) -> None:
    assert plan_arena(intervals) == plan_arena(list(intervals))
