"""Plots of commands as PNG files: the settings of a sweep, and the losses of a learning-rate range test."""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure

from zoo.data import durable


class Bar(NamedTuple):
    """A setting: the mean of its runs, half the width of the interval, and the metric of each run."""

    name: str
    mean: float
    half_width: float
    runs: Sequence[float]


def plot_settings(bars: Sequence[Bar], label: str, path: str) -> None:
    """Draw the mean of each setting with its interval, and a dot per run."""
    with matplotlib.rc_context({"text.parse_math": False}):  # values may contain dollars
        figure = Figure(figsize=(7, 1 + 0.35 * len(bars)), layout="constrained")
        axes, places = figure.subplots(), range(len(bars))
        widths = [bar.half_width for bar in bars]
        axes.errorbar([bar.mean for bar in bars], places, xerr=widths, fmt="o", capsize=4, color="#0077bb")
        for place, bar in zip(places, bars):
            axes.plot(bar.runs, [place] * len(bar.runs), ".", color="#888888")
        axes.set_yticks(places, [bar.name for bar in bars])
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_xlabel(label)
        _save(figure, path)


def plot_rates(
    rates: Sequence[float], losses: Sequence[float], means: Sequence[float], best: float | None, path: str
) -> None:
    """Draw losses and their averages over learning rates, and the suggested rate if there is one."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.semilogx(rates, losses, color="#bbbbbb", label="loss")
    axes.semilogx(rates, means, color="#0077bb", label="average")
    if best is not None:
        axes.axvline(best, color="#cc3311", linestyle="--", label=f"suggested: {best:.2g}")
    fall = means[0] - min(means)
    axes.set_ylim(min(means) - fall / 2, means[0] + max(fall, 0.05 * abs(means[0])))  # not the divergence
    axes.set_xlabel("optim.lr")
    axes.set_ylabel("loss")
    axes.legend()
    _save(figure, path)


def _save(figure: Figure, path: str) -> None:
    with open(path, "wb", opener=durable.fresh) as file:
        figure.savefig(file, format="png", dpi=120)
