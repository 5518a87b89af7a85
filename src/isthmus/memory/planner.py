"""Lifetimes to offsets: where each buffer of a step lies in one arena, found before the first run.

Placing is best fit: one buffer after the other goes into the smallest gap that holds it between
the buffers that live at the same time. What decides the peak is the order of placing; several are
tried, then a bounded local search moves the buffers that reach the peak to the front. The result
depends on the intervals alone.

Buffers that share memory (views, in-place results) come as one interval with a merged lifetime.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from isthmus.core.errors import InternalError

__all__ = ["ALIGNMENT_BYTES", "ArenaPlan", "Interval", "lower_bound", "plan_arena"]

#: Start of every buffer: a cache line, and the widest vector register.
ALIGNMENT_BYTES = 64

#: The local search ends at this ratio of peak to bound, or after so many attempts.
GOOD_RATIO = 1.01
MAX_ATTEMPTS = 48


@dataclass(frozen=True, slots=True)
class Interval:
    """One buffer: alive from command `first` to command `last`, both included."""

    name: str
    first: int
    last: int
    size_bytes: int
    alignment_bytes: int = ALIGNMENT_BYTES

    def overlaps(self, other: Interval) -> bool:
        """Whether both are alive during some command."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Offsets in the order of the intervals, and how good they are.

    lower_bound_bytes: the most bytes alive during one command; no plan has a lower peak.
    strategy: the order of placing that gave the lowest peak.
    """

    intervals: tuple[Interval, ...]
    offsets: tuple[int, ...]
    peak_bytes: int
    lower_bound_bytes: int
    strategy: str

    @property
    def ratio(self) -> float:
        """Peak over lower bound; 1.0 is optimal."""
        return self.peak_bytes / self.lower_bound_bytes if self.lower_bound_bytes else 1.0

    def check(self) -> None:
        """Raise InternalError where two live buffers overlap or one is misaligned."""
        placed = sorted(zip(self.offsets, self.intervals, strict=True), key=lambda pair: pair[0])
        for index, (offset, interval) in enumerate(placed):
            if offset % interval.alignment_bytes:
                raise InternalError(f"buffer {interval.name} is misaligned at {offset}")
            end = offset + interval.size_bytes
            if end > self.peak_bytes:
                raise InternalError(f"buffer {interval.name} ends behind the arena")
            for other_offset, other in placed[index + 1 :]:
                if other_offset >= end:
                    break
                if other.size_bytes and interval.overlaps(other):
                    raise InternalError(f"buffers {interval.name} and {other.name} overlap")


def lower_bound(intervals: Sequence[Interval]) -> int:
    """The most bytes that are alive during one command."""
    changes: dict[int, int] = {}
    for interval in intervals:
        changes[interval.first] = changes.get(interval.first, 0) + interval.size_bytes
        changes[interval.last + 1] = changes.get(interval.last + 1, 0) - interval.size_bytes
    live = most = 0
    for time in sorted(changes):
        live += changes[time]
        most = max(most, live)
    return most


def _neighbours(intervals: Sequence[Interval]) -> list[list[int]]:
    """For each interval the numbers of those alive at some same time."""
    found: list[list[int]] = [[] for _ in intervals]
    by_start = sorted(range(len(intervals)), key=lambda index: intervals[index].first)
    active: list[int] = []
    for index in by_start:
        start = intervals[index].first
        active = [other for other in active if intervals[other].last >= start]
        for other in active:
            found[index].append(other)
            found[other].append(index)
        active.append(index)
    return found


def _best_fit(
    intervals: Sequence[Interval], neighbours: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[list[int], int]:
    """Offsets and peak of placing in `order`, each into the smallest gap that holds it."""
    offsets = [-1] * len(intervals)
    peak = 0
    for index in order:
        interval = intervals[index]
        taken: list[tuple[int, int]] = []
        for other in neighbours[index]:
            if offsets[other] >= 0 and intervals[other].size_bytes:
                insort(taken, (offsets[other], offsets[other] + intervals[other].size_bytes))
        best, best_gap = -1, -1
        end = 0
        for start, stop in taken:
            place = -(-end // interval.alignment_bytes) * interval.alignment_bytes
            gap = start - place
            if gap >= interval.size_bytes and (best < 0 or gap < best_gap):
                best, best_gap = place, gap
            end = max(end, stop)
        if best < 0:
            best = -(-end // interval.alignment_bytes) * interval.alignment_bytes
        offsets[index] = best
        peak = max(peak, best + interval.size_bytes)
    return offsets, peak


Key = Callable[[Interval], tuple[int, ...]]

#: Orders of placing, by name; all end with the position, so that ties are settled.
ORDERS: dict[str, Key] = {
    "size": lambda one: (-one.size_bytes, -(one.last - one.first), one.first),
    "area": lambda one: (-one.size_bytes * (one.last - one.first + 1), one.first),
    "lifetime": lambda one: (-(one.last - one.first), -one.size_bytes, one.first),
    "start": lambda one: (one.first, -one.last, -one.size_bytes),
    "end": lambda one: (-one.last, one.first, -one.size_bytes),
}


def plan_arena(intervals: Sequence[Interval]) -> ArenaPlan:
    """Offsets for `intervals`: the best of several orders, improved by a local search."""
    given = tuple(intervals)
    bound = lower_bound(given)
    neighbours = _neighbours(given)
    best_order: list[int] = list(range(len(given)))
    best_offsets, best_peak = _best_fit(given, neighbours, best_order)
    best_name = "as given"
    for name, key in ORDERS.items():
        if best_peak <= bound:
            break
        order = sorted(range(len(given)), key=lambda index, key=key: (*key(given[index]), index))
        offsets, peak = _best_fit(given, neighbours, order)
        if peak < best_peak:
            best_offsets, best_peak, best_order, best_name = offsets, peak, order, name

    order, offsets, peak = best_order, best_offsets, best_peak
    for _attempt in range(MAX_ATTEMPTS):
        if best_peak <= bound * GOOD_RATIO:
            break
        order = _peak_first(given, neighbours, order, offsets, peak)
        offsets, peak = _best_fit(given, neighbours, order)
        if peak < best_peak:
            best_offsets, best_peak = offsets, peak
            best_name = best_name.removesuffix(", searched") + ", searched"
    plan = ArenaPlan(given, tuple(best_offsets), best_peak, bound, best_name)
    plan.check()
    return plan


def _peak_first(
    intervals: Sequence[Interval],
    neighbours: Sequence[Sequence[int]],
    order: Sequence[int],
    offsets: Sequence[int],
    peak: int,
) -> list[int]:
    """`order` with what reaches the peak moved before the buffers that lie in its way."""
    top = {index for index in order if offsets[index] + intervals[index].size_bytes == peak}
    moved = list(order)
    position = {index: place for place, index in enumerate(order)}
    for index in sorted(top, key=lambda index: position[index]):
        before = [
            position[other] for other in neighbours[index] if position[other] < position[index]
        ]
        # before the lower half of what was placed earlier
        target = sorted(before)[len(before) // 2] if before else position[index]
        moved.remove(index)
        moved.insert(min(target, len(moved)), index)
    return moved
