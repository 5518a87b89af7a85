"""The memory plan as text: figures, the largest buffers, and the arena over time."""

from __future__ import annotations

from isthmus.memory.planner import ArenaPlan

__all__ = ["format_bytes", "live_bytes", "plan_report", "plot_data"]


def format_bytes(count: int) -> str:
    """A count of bytes with a unit: 1.5 MiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def live_bytes(plan: ArenaPlan) -> list[int]:
    """Bytes alive during each command."""
    if not plan.intervals:
        return []
    changes = [0] * (max(interval.last for interval in plan.intervals) + 2)
    for interval in plan.intervals:
        changes[interval.first] += interval.size_bytes
        changes[interval.last + 1] -= interval.size_bytes
    live, total = [], 0
    for change in changes[:-1]:
        total += change
        live.append(total)
    return live


def plot_data(plan: ArenaPlan) -> list[dict[str, int | str]]:
    """One rectangle per buffer: commands along x, bytes of the arena along y."""
    return [
        {
            "name": interval.name, "first": interval.first, "last": interval.last,
            "offset": offset, "size_bytes": interval.size_bytes,
        }
        for interval, offset in zip(plan.intervals, plan.offsets, strict=True)
    ]  # fmt: skip


def plan_report(plan: ArenaPlan, *, largest: int = 20) -> str:
    """A table for `isthmus inspect --memory`."""
    live = live_bytes(plan)
    busiest = live.index(max(live)) if live else 0
    total = sum(interval.size_bytes for interval in plan.intervals)
    lines = [
        f"arena            {format_bytes(plan.peak_bytes)} ({plan.ratio:.3f} times the bound)",
        f"lower bound      {format_bytes(plan.lower_bound_bytes)} alive at command {busiest}",
        f"without sharing  {format_bytes(total)} in {len(plan.intervals)} buffers",
        f"order of placing {plan.strategy}",
        "",
        f"{'offset':>12} {'size':>12} {'first':>6} {'last':>6}  buffer",
    ]
    ranked = sorted(
        zip(plan.intervals, plan.offsets, strict=True),
        key=lambda pair: (-pair[0].size_bytes, pair[1]),
    )
    for interval, offset in ranked[:largest]:
        lines.append(
            f"{offset:>12} {format_bytes(interval.size_bytes):>12} {interval.first:>6} "
            f"{interval.last:>6}  {interval.name}"
        )
    if len(ranked) > largest:
        lines.append(f"{'':>12} and {len(ranked) - largest} smaller buffers")
    return "\n".join(lines)
