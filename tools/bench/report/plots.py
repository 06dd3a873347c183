"""Plots of a report: throughput, scaling, times of an update and curves of each model."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from zoo.bench.report import curves, figures
from zoo.bench.report.cases import Result, order
from zoo.bench.report.curves import Curve
from zoo.bench.report.figures import COLORS, INK, ROW, Plot
from zoo.bench.report.labels import labels, shorten
from zoo.bench.report.measures import SPEED
from zoo.bench.report.run import Case, Run

if TYPE_CHECKING:
    from zoo.bench.report.figures import Axes, Figure

MAX_DOTS = 100  # steps of a case that are drawn one by one
MAX_WHISKER = 1.5  # end of the axis of throughput / highest run; intervals of few runs may be far wider
MAX_LINEAR = 4  # most cards / fewest cards up to which both axes of a scaling plot are linear


def draw(model: str, runs: Sequence[Run], results: Sequence[Result]) -> list[Plot]:
    """Return the plots of a model; those that nothing was measured for are left out.

    Args:
        model: short name for file names.
        runs: of the model.
        results: its complete cases.
    """
    runs = sorted(runs, key=lambda run: order(run.case))
    losses = [Curve(run.case, run.losses) for run in runs if len(run.losses) > 1 and run.case.counting != SPEED]
    metrics = [Curve(run.case, run.metrics) for run in runs if run.metrics]
    metric = next((run.metric for run in runs if run.metric), None) or "main metric"
    targets = sorted({run.target for run in runs if run.target is not None and run.metrics})
    speeds = [result for result in results if result.speed]
    timed = [result for result in results if result.steps.p50]
    plots = [
        _throughput(model, speeds) if speeds else None,
        _scaling(model, speeds),
        _step_times(model, timed) if timed else None,
        curves.plot(f"{model}-loss", "Training loss", "loss", losses, ()) if losses else None,
        curves.plot(f"{model}-metric", f"Evaluation ({metric})", f"{metric} (%)", metrics, targets)
        if metrics
        else None,
    ]
    return [plot for plot in plots if plot]


def _rows(results: Sequence[Result]) -> tuple["Figure", "Axes", list[str]]:
    """Return a figure with a row for each case, the first on top, and the colors of their frameworks."""
    figure, (axes,) = figures.create(1.1 + ROW * len(results))
    names = labels([result.case for result in results])
    frameworks = list(dict.fromkeys(result.case.framework for result in results))
    axes.set_yticks(range(len(results)), [names[result.case] for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.grid(False, axis="y")
    return figure, axes, [COLORS[frameworks.index(result.case.framework) % len(COLORS)] for result in results]


def _throughput(model: str, results: Sequence[Result]) -> Plot:
    figure, axes, colors = _rows(results)
    most = max(max(result.speeds) for result in results)
    limit = min(max(most, *(result.speed.high or 0 for result in results if result.speed)), MAX_WHISKER * most)
    for row, (result, color) in enumerate(zip(results, colors)):
        speed, end = result.speed, max(result.speeds)
        assert speed
        axes.barh(row, speed.median, height=0.62, color=color, alpha=0.55)
        if speed.low is not None and speed.high is not None:
            high = min(speed.high, limit)
            axes.errorbar(speed.median, row, xerr=[[speed.median - speed.low], [high - speed.median]], color=INK,
                          capsize=3, linewidth=1.2)  # fmt: skip
            if high < speed.high:
                axes.plot(high, row, ">", color=INK, markersize=5)
            end = max(end, high)
        axes.plot(result.speeds, [row] * len(result.speeds), "o", color=color, markersize=3.5)
        axes.text(end + 0.015 * limit, row, _speed(speed.median), va="center", fontsize=9, color=INK)
    axes.set_xlim(0, 1.14 * limit)
    axes.xaxis.set_major_formatter(lambda value, _: _speed(value))
    axes.set_xlabel("throughput (samples/s)")
    note = (
        "Bar: median of the runs; whiskers: its 95 % confidence interval, with an arrow where it goes on; dots: runs."
    )
    return Plot(f"{model}-throughput", "Throughput", note, figure)


def _step_times(model: str, results: Sequence[Result]) -> Plot:
    figure, axes, colors = _rows(results)
    rng = np.random.default_rng(0)
    values = []
    for row, (result, color) in enumerate(zip(results, colors)):
        steps = result.steps
        median = steps.p50 or 0.0
        high = steps.p99 or steps.p90 or median
        axes.plot([median, high], [row, row], color=color, linewidth=1.5)
        axes.plot([median, steps.p90 or median], [row, row], color=color, linewidth=6, alpha=0.5)
        axes.plot([median], [row], "|", color=INK, markersize=13, markeredgewidth=2)
        drawn = rng.permutation(steps.every)[:MAX_DOTS]
        axes.plot(drawn, row + rng.uniform(-0.28, 0.28, len(drawn)), ".", color=color, markersize=2.5, alpha=0.5)
        values += [median, high, *drawn]
    if max(values) > 20 * min(values):
        figures.set_logarithmic(axes)
    axes.set_xlabel("time of an update (ms)")
    note = (
        "Line: median; thick band up to the 90th percentile, thin one up to the 99th; dots: single updates of speed "
        f"runs, at most {MAX_DOTS} per case."
    )
    return Plot(f"{model}-steps", "Time of an update", note, figure)


def _scaling(model: str, results: Sequence[Result]) -> Plot | None:
    """Return throughput and efficiency over the cards, for cases that were measured with several numbers of cards."""
    series: dict[Case, list[tuple[int, float]]] = {}
    for result in results:
        if result.case.cards and result.speed:
            series.setdefault(result.case._replace(cards=None, nodes=None), []).append(
                (result.case.cards, result.speed.median)
            )
    series = {case: sorted(points) for case, points in series.items() if len({cards for cards, _ in points}) > 1}
    if not series:
        return None
    names, styles = labels(list(series)), figures.styles(list(series))
    figure, (left, right) = figures.create(3.6 + ROW * math.ceil((len(series) + 1) / 2), 2)
    ticks = sorted({cards for points in series.values() for cards, _ in points})
    for case, points in series.items():
        color, dash = styles[case]
        cards, speeds = zip(*points)
        linear = [speeds[0] * count / cards[0] for count in cards]
        left.plot(cards, linear, ":", color=color, linewidth=1, alpha=0.8)
        left.plot(cards, speeds, dash, marker="o", markersize=4, color=color, label=names[case])
        efficiency = [100 * speed / ideal for speed, ideal in zip(speeds, linear)]
        right.plot(cards, efficiency, dash, marker="o", markersize=4, color=color)
    left.plot([], [], ":", color=INK, label="linear scaling")
    is_wide = ticks[-1] > MAX_LINEAR * ticks[0]
    for axes in (left, right):
        if is_wide:
            axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("cards")
    if is_wide:
        left.set_yscale("log", base=2)
    else:
        left.set_ylim(bottom=0)
    left.yaxis.set_major_formatter(lambda value, _: _speed(value))
    left.set_ylabel("throughput (samples/s)")
    right.axhline(100, color=INK, linestyle=":", linewidth=1)
    low, high = right.get_ylim()
    right.set_ylim(max(0, 10 * math.floor((low - 5) / 10)), max(103, high))
    right.set_ylabel("efficiency (% of linear)")
    figures.add_legend(figure)
    note = "Dotted: linear scaling from the fewest cards of the case, to which the efficiency is relative too."
    return Plot(f"{model}-scaling", "Scaling", note, figure)


def _speed(value: float) -> str:
    """Print samples per second: whole from a thousand on, else four digits."""
    return f"{value:,.0f}" if 1000 <= value < 1e12 else f"{value:.4g}"


def file_name(model: str | None) -> str:
    """Return a name for files from the name of a model."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", shorten(model or "unknown", 60)).strip("-") or "unknown"
