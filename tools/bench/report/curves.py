"""Curves of a report: loss or metric over samples and over time."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from zoo.bench.report import figures
from zoo.bench.report.figures import Plot
from zoo.bench.report.labels import labels
from zoo.bench.report.run import Case, Point

MAX_POINTS = 400  # of a curve; the means of neighbours where there are more
TIME_UNITS = ((3 * 86400, 86400, "days"), (3 * 3600, 3600, "hours"), (180, 60, "minutes"), (0, 1, "seconds"))


class Curve(NamedTuple):
    """Points of a run.

    Attributes:
        case: of the run.
        points: in the order of the journal.
    """

    case: Case
    points: Sequence[Point]


def plot(name: str, title: str, label: str, curves: Sequence[Curve], targets: Sequence[float]) -> Plot | None:
    """Return values over samples and over time, side by side with one legend."""
    is_metric = label.endswith("(%)")
    cases = list(dict.fromkeys(curve.case for curve in curves))
    names, styles = labels(cases), figures.styles(cases)
    panels: list[tuple[str, Callable[[Point], float | None], float]] = []
    if any(point.samples is not None for curve in curves for point in curve.points):
        panels.append(("samples", lambda point: point.samples, 1.0))
    longest = max((point.seconds or 0 for curve in curves for point in curve.points), default=0)
    _, unit, unit_name = next(row for row in TIME_UNITS if longest >= row[0])
    if longest > 0:
        panels.append((f"time ({unit_name})", lambda point: point.seconds, unit))
    if not panels:
        return None
    figure, all_axes = figures.create(3.4 + figures.ROW * math.ceil(len(cases) / 2), len(panels), share_y=True)
    drawn: list[float] = []
    for axes, (axis, position_of, divisor) in zip(all_axes, panels):
        labelled = set()
        for curve in curves:
            color, dash = styles[curve.case]
            x, y = _thinned(curve.points, position_of)
            drawn += y
            text = None if curve.case in labelled or axes is not all_axes[0] else names[curve.case]
            labelled.add(curve.case)
            scale = 100 if is_metric else 1
            marker = "o" if is_metric and len(x) < 60 else ""
            axes.plot(np.divide(x, divisor), np.multiply(y, scale), dash, color=color, label=text, linewidth=1.4,
                      alpha=0.85, marker=marker, markersize=3)  # fmt: skip
        for target in targets:
            axes.axhline(100 * target, color=figures.INK, linestyle=":", linewidth=1)
        axes.set_xlabel(axis)
        axes.set_xlim(left=0)
    if not is_metric and min(drawn) > 0 and max(drawn) > 100 * min(drawn):
        all_axes[0].set_yscale("log")
    if panels[0][0] == "samples":
        figures.shorten_thousands(all_axes[0])
    all_axes[0].set_ylabel(label)
    if targets:
        all_axes[0].plot(
            [], [], ":", color=figures.INK, label="target " + ", ".join(f"{100 * t:.4g} %" for t in targets)
        )
    figures.add_legend(figure)
    note = "Time counts from the beginning of the run and never stops." + _thinning_note(curves)
    return Plot(name, title, note, figure)


def _thinned(points: Sequence[Point], position_of: Callable[[Point], float | None]) -> tuple[list[float], list[float]]:
    """Return positions and values of a curve, as means of neighbours where there are more than MAX_POINTS."""
    pairs = [(x, point.value) for point in points if (x := position_of(point)) is not None]
    if len(pairs) <= MAX_POINTS:
        return [x for x, _ in pairs], [y for _, y in pairs]
    groups = np.array_split(np.array(pairs), MAX_POINTS)
    means = [group.mean(0) for group in groups]
    return [float(x) for x, _ in means], [float(y) for _, y in means]


def _thinning_note(curves: Sequence[Curve]) -> str:
    longest = max(len(curve.points) for curve in curves)
    return f" Curves are means of {math.ceil(longest / MAX_POINTS)} points." if longest > MAX_POINTS else ""
