"""Line charts as SVG for a page, whose style sheet has the colors: computed here, written by page.html."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

WIDTH, HEIGHT = 360, 220  # pixels, of a chart
LEFT, RIGHT = 46, 10  # margins
TOP, BOTTOM = 10, 24
MAX_POINTS = 300  # of a line; means of neighbours where there are more
TICKS = 5  # about as many per axis
Tick = tuple[float, str]  # position in pixels, text
Points = Sequence[tuple[float, float]]


class Chart(NamedTuple):
    """A line chart. lines: name and points, as SVG writes them; a line of one point is drawn as such."""

    title: str
    x_label: str
    lines: Sequence[tuple[str, str]]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]


def chart(title: str, x_label: str, lines: Mapping[str, Points]) -> Chart | None:
    """Return the chart of lines by name; None without a finite point."""
    arrays = {name: _thinned(points) for name, points in lines.items()}
    every = np.concatenate([*arrays.values(), np.empty((0, 2))])
    if not len(every):
        return None
    (x_low, y_low), (x_high, y_high) = every.min(0), every.max(0)
    x_ticks, y_ticks = _ticks(min(x_low, 0), x_high), _ticks(y_low, y_high)
    x_range, y_range = (min(x_low, 0), max(x_high, x_low + 1e-9)), (y_ticks[0], y_ticks[-1])

    def x(value: float) -> float:
        return round(LEFT + (value - x_range[0]) / (x_range[1] - x_range[0]) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - y_range[0]) / (y_range[1] - y_range[0]) * (HEIGHT - TOP - BOTTOM), 1)

    return Chart(
        title,
        x_label,
        [(name, " ".join(f"{x(a)},{y(b)}" for a, b in points)) for name, points in arrays.items() if len(points)],
        [(x(value), f"{value:g}") for value in x_ticks if value <= x_range[1]],
        [(y(value), f"{value:g}") for value in y_ticks],
    )


def _thinned(points: Points) -> np.ndarray:
    """Return the finite points (N, 2)."""
    array = np.array([point for point in points if np.isfinite(point).all()]).reshape(-1, 2)
    if len(array) > MAX_POINTS:
        array = np.array([group.mean(0) for group in np.array_split(array, MAX_POINTS)])
    return array


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers from `low` or below it to `high` or above it, at least two; from 0 to a single value."""
    low, high = (low, high) if high > low else (min(low, 0.0), max(high, 0.0))
    span = high - low or 1.0
    exponent = math.floor(math.log10(span / TICKS))
    step = next(factor * 10.0**exponent for factor in (1, 2, 5, 10) if factor * 10.0**exponent * TICKS >= span)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12 - exponent) for number in range(first, max(last, first + 1) + 1)]
