"""The loss curve as SVG: readable in any browser, no plotting library needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

__all__ = ["Curve", "loss_plot", "save_loss_plot"]

Curve = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT = 800, 450
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 55


def _ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers that cover [low, high], about `count` of them."""
    span = max(high - low, 1e-12)
    raw = span / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def _smoothed(curve: Curve, weight: float = 0.95) -> list[tuple[float, float]]:
    """Exponential moving average without start-up bias."""
    average, total, points = 0.0, 0.0, []
    for step, loss in curve:
        average = weight * average + (1 - weight) * loss
        total = weight * total + (1 - weight)
        points.append((step, average / total))
    return points


def loss_plot(train: Curve, validation: Curve, title: str) -> str:
    """SVG text of the training loss (faint: each step; bold: smoothed) and validation loss."""
    train = [(s, v) for s, v in train if math.isfinite(v)]
    validation = [(s, v) for s, v in validation if math.isfinite(v)]
    points = [*train, *validation] or [(0.0, 0.0), (1.0, 1.0)]
    x_high = max(step for step, _ in points) or 1.0
    y_low = min(value for _, value in points)
    y_high = max(value for _, value in points)
    margin = 0.05 * max(y_high - y_low, 1e-3)
    y_low, y_high = y_low - margin, y_high + margin
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(step: float, value: float) -> str:
        x = _LEFT + plot_width * step / x_high
        y = _TOP + plot_height * (y_high - value) / (y_high - y_low)
        return f"{x:.1f},{y:.1f}"

    def line(curve: Curve, style: str) -> str:
        return f'<polyline fill="none" {style} points="{" ".join(at(s, v) for s, v in curve)}"/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="26" font-size="16" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in _ticks(y_low, y_high):
        y = at(0, tick).split(",")[1]
        parts.append(f'<path d="M{_LEFT} {y}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y}" dy="4" text-anchor="end">{tick:g}</text>')
    for tick in _ticks(0, x_high):
        x = at(tick, y_low).split(",")[0]
        parts.append(
            f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{tick:g}</text>'
        )
    parts += [
        f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" '
        'fill="none" stroke="#444"/>',
        f'<text x="{_LEFT + plot_width / 2}" y="{_HEIGHT - 14}" text-anchor="middle">step</text>',
        f'<text transform="translate(18 {_TOP + plot_height / 2}) rotate(-90)" '
        'text-anchor="middle">loss, nats per token</text>',
        line(train, 'stroke="#1f77b4" stroke-opacity="0.25"'),
        line(_smoothed(train), 'stroke="#1f77b4" stroke-width="2"'),
        line(validation, 'stroke="#d62728" stroke-width="2"'),
    ]
    for step, value in validation:
        x, y = at(step, value).split(",")
        parts.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="#d62728"/>')
    for row, (name, color) in enumerate((("training", "#1f77b4"), ("validation", "#d62728"))):
        y = _TOP + 16 + 20 * row
        x = _WIDTH - _RIGHT - 120
        parts.append(f'<path d="M{x} {y}h24" stroke="{color}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 32}" y="{y + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def save_loss_plot(path: Path, train: Curve, validation: Curve, title: str) -> None:
    """Write the plot, by rename."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(loss_plot(train, validation, title), encoding="utf-8")
    partial.replace(path)
