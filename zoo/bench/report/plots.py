"""Plots of a model: throughput, scaling, and curves over samples and time."""

import base64
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.bench.report.results import MAX_EFFICIENCY, Result, labels, order
from zoo.bench.report.runs import SPEED, Case, Point, Run
from zoo.data import extras
from zoo.data.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colors that differ for color-blind readers too (Okabe and Ito, Paul Tol).
COLORS = ("#0077bb", "#ee7733", "#009e73", "#cc3377", "#a58500", "#33bbee", "#8c6bb1", "#888888")
DASHES = ("-", "--", "-.", ":")
INK = "#222222"  # of texts and axes
WIDTH, ROW = 9.0, 0.32  # inches: of a figure, and of a row or a line of a legend
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "report",
    "font.size": 10,
    "text.parse_math": False,  # a name may contain dollars
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
LEGEND: dict[str, Any] = {"loc": "outside lower center", "ncols": 2, "frameon": False}
MAX_WHISKER = 1.5  # end of the axis of throughput / highest run; intervals of few runs may be far wider
TIME_UNITS = ((3 * 86400, 86400, "days"), (3 * 3600, 3600, "hours"), (180, 60, "minutes"), (0, 1, "seconds"))


class Plot(NamedTuple):
    name: str  # of its file, without a suffix: <model>-<kind>
    title: str  # its heading
    note: str  # what it shows
    figure: "Figure"  # of matplotlib

    def svg(self) -> str:
        """Return the figure as the address of an image in SVG, which holds the image itself."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self._save('svg', metadata={'Date': None})).decode()}"

    def png(self, path: str) -> None:
        """Write the figure to a PNG file."""
        Path(path).write_bytes(self._save("png", dpi=120))

    def _save(self, form: str, **options: Any) -> bytes:
        import matplotlib

        file = io.BytesIO()
        with matplotlib.rc_context(SETTINGS):
            self.figure.savefig(file, format=form, facecolor="white", **options)
        return file.getvalue()


def require() -> None:
    """Raise UserError if matplotlib is not installed."""
    if not extras.is_installed("matplotlib"):
        raise UserError(f"{extras.missing('matplotlib')}, or leave out --html and --png")


def draw(model: str, runs: Sequence[Run], results: Sequence[Result]) -> list[Plot]:
    """Return the plots of a model, which begins their names; those that nothing was measured for are left out."""
    import matplotlib

    runs = sorted(runs, key=lambda run: order(run.case))
    losses = [(run.case, run.losses) for run in runs if len(run.losses) > 1 and run.case.counting != SPEED]
    metrics = [(run.case, run.metrics) for run in runs if run.metrics]
    metric = next((run.metric for run in runs if run.metric), None) or "main metric"
    targets = sorted({run.target for run in runs if run.target is not None and run.metrics})
    speeds = [result for result in results if result.speed]
    with matplotlib.rc_context(SETTINGS):
        plots = [
            _throughput(model, speeds) if speeds else None,
            _scaling(model, speeds),
            _curves(f"{model}-loss", "Training loss", "loss", losses, ()) if losses else None,
            _curves(f"{model}-metric", f"Evaluation ({metric})", f"{metric} (%)", metrics, targets)
            if metrics
            else None,
        ]
    return [plot for plot in plots if plot]


def _axes(height: float, columns: int = 1, share_y: bool = False) -> tuple["Figure", list["Axes"]]:
    """Return a figure of a height in inches, and its axes side by side, with a grid."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False, sharey=share_y)[0])
    for one in axes:
        one.grid(True, color="#808080", alpha=0.3, linewidth=0.6)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _styles(cases: Sequence[Case]) -> dict[Case, tuple[str, str]]:
    unique = list(dict.fromkeys(cases))
    return {case: (COLORS[i % len(COLORS)], DASHES[i // len(COLORS) % len(DASHES)]) for i, case in enumerate(unique)}


def _throughput(model: str, results: Sequence[Result]) -> Plot:
    figure, (axes,) = _axes(1.1 + ROW * len(results))
    names, frameworks = labels([r.case for r in results]), list(dict.fromkeys(r.case.framework for r in results))
    colors = [COLORS[frameworks.index(result.case.framework) % len(COLORS)] for result in results]
    axes.set_yticks(range(len(results)), [names[result.case] for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)  # a row for each case, the first on top
    axes.grid(False, axis="y")
    most = max(max(result.speeds) for result in results)
    limit = min(max(most, *(result.speed.high or 0 for result in results if result.speed)), MAX_WHISKER * most)
    for row, (result, color) in enumerate(zip(results, colors)):
        speed, end = result.speed, max(result.speeds)
        assert speed
        axes.barh(row, speed.median, height=0.62, color=color, alpha=0.55)
        if speed.low is not None and speed.high is not None:
            high = min(speed.high, limit)
            axes.plot([speed.low, high], [row, row], "|-", color=INK, linewidth=1.2)
            end = max(end, high)
        axes.plot(result.speeds, [row] * len(result.speeds), "o", color=color, markersize=3.5)
        words = f"{_speed(speed.median)}  {result.mark}".rstrip()
        axes.text(end + 0.015 * limit, row, words, va="center", fontsize=9, color=INK)
    axes.set_xlim(0, 1.14 * limit)
    axes.xaxis.set_major_formatter(lambda value, _: _speed(value))
    axes.set_xlabel("throughput (samples/s)")
    note = "Bar: median of the runs; line: its 95 % confidence interval, cut where it is far wider; dots: runs."
    return Plot(f"{model}-throughput", "Throughput", note, figure)


def _scaling(model: str, results: Sequence[Result]) -> Plot | None:
    """Return throughput and efficiency over the cards, for cases that were measured with several numbers of cards."""
    series: dict[Case, list[tuple[int, float, bool]]] = {}
    for result in results:
        if result.case.cards and result.speed:
            case = result.case._replace(cards=None, nodes=None)
            series.setdefault(case, []).append((result.case.cards, result.speed.median, bool(result.mark)))
    series = {case: sorted(points) for case, points in series.items() if len({cards for cards, *_ in points}) > 1}
    if not series:
        return None
    names, styles = labels(list(series)), _styles(list(series))
    figure, (left, right) = _axes(3.6 + ROW * math.ceil((len(series) + 1) / 2), 2)
    ticks = sorted({cards for points in series.values() for cards, *_ in points})
    for case, points in series.items():
        color, dash = styles[case]
        cards, speeds, doubtful = zip(*points)
        linear = [speeds[0] * count / cards[0] for count in cards]
        left.plot(cards, linear, ":", color=color, linewidth=1, alpha=0.8)
        left.plot(cards, speeds, dash, marker="o", markersize=4, color=color, label=names[case])
        efficiency = [100 * speed / ideal for speed, ideal in zip(speeds, linear)]
        believed = [value if value <= 100 * MAX_EFFICIENCY else math.nan for value in efficiency]
        of_base = [is_doubtful or doubtful[0] for is_doubtful in doubtful]  # to which the efficiency is relative
        right.plot(cards, believed, dash, marker="o", markersize=4, color=color)
        for axes, values, doubts in ((left, speeds, doubtful), (right, believed, of_base)):
            hollow = [value if is_doubtful else math.nan for value, is_doubtful in zip(values, doubts)]
            axes.plot(cards, hollow, "o", markersize=4, color=color, markerfacecolor="white")
    left.plot([], [], ":", color=INK, label="linear scaling")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("cards")
    left.set_yscale("log", base=2)
    left.yaxis.set_major_formatter(lambda value, _: _speed(value))
    left.set_ylabel("throughput (samples/s)")
    right.axhline(100, color=INK, linestyle=":", linewidth=1)
    low, high = right.get_ylim()
    right.set_ylim(max(0, 10 * math.floor((low - 5) / 10)), max(103, high))
    right.set_ylabel("efficiency (% of linear)")
    figure.legend(**LEGEND)
    note = (
        "Dotted: linear scaling from the fewest cards of the case, to which the efficiency is relative too. Hollow: "
        "measured while others used the machine, or too noisy; an efficiency that is impossible is left out."
    )
    return Plot(f"{model}-scaling", "Scaling", note, figure)


def _curves(
    name: str, title: str, label: str, curves: Sequence[tuple[Case, Sequence[Point]]], targets: Sequence[float]
) -> Plot | None:
    """Return values over samples and over time, side by side with one legend; a metric, with `(%)`, in percent."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    scale = 100 if label.endswith("(%)") else 1
    every = [point for _, points in curves for point in points]
    panels: list[tuple[str, Callable[[Point], float | None], float]] = []
    if any(point.samples is not None for point in every):
        panels.append(("samples", lambda point: point.samples, 1.0))
    longest = max((point.seconds or 0 for point in every), default=0)
    _, unit, unit_name = next(row for row in TIME_UNITS if longest >= row[0])
    if longest > 0:
        panels.append((f"time ({unit_name})", lambda point: point.seconds, unit))
    if not panels:
        return None
    cases = list(dict.fromkeys(case for case, _ in curves))
    names, styles = labels(cases), _styles(cases)
    figure, all_axes = _axes(3.4 + ROW * math.ceil(len(cases) / 2), len(panels), share_y=True)
    for axes, (axis, position_of, divisor) in zip(all_axes, panels):
        for case, points in curves:
            pairs = [(at / divisor, scale * point.value) for point in points if (at := position_of(point)) is not None]
            (color, dash), (x, y) = styles[case], zip(*pairs) if pairs else ((), ())
            marker = "o" if scale == 100 and len(pairs) < 60 else ""
            axes.plot(x, y, dash, color=color, label=names.pop(case, None), linewidth=1.4, alpha=0.85,
                      marker=marker, markersize=3)  # fmt: skip
        for target in targets:
            axes.axhline(100 * target, color=INK, linestyle=":", linewidth=1)
        axes.set_xlabel(axis)
        axes.set_xlim(left=0)
    values = [point.value for point in every]
    if scale == 1 and min(values) > 0 and max(values) > 100 * min(values):
        all_axes[0].set_yscale("log")
    if panels[0][0] == "samples":  # as 10k, 2M
        all_axes[0].xaxis.set_major_formatter(EngFormatter(sep=""))
        all_axes[0].xaxis.set_major_locator(MaxNLocator(6, integer=True))
    all_axes[0].set_ylabel(label)
    if targets:
        words = ", ".join(f"{100 * target:.4g} %" for target in targets)
        all_axes[0].plot([], [], ":", color=INK, label=f"target {words}")
    figure.legend(**LEGEND)
    return Plot(name, title, "Time counts from the beginning of the run and never stops.", figure)


def _speed(value: float) -> str:
    """Print samples per second: whole from a thousand on, else four digits."""
    return f"{value:,.0f}" if 1000 <= value < 1e12 else f"{value:.4g}"
