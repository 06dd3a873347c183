"""Plots: they show what was measured, no text overlaps another, and the page needs nothing from elsewhere."""

import itertools
import re

import pytest

pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tests.helpers.report_runs import speed_events, training_events, write
from zoo.bench.commands.report import TEMPLATE, Section
from zoo.bench.report import plots, runs, tables
from zoo.bench.report.results import group, labels
from zoo.bench.report.runs import Case
from zoo.templates import render

FRAMEWORKS = ("torch", "paddle", "mindspore", "jax")
ONE = [training_events()]
MANY_CASES = [
    training_events((0.1, 0.5, 0.72), seconds=5.0 + i, framework=FRAMEWORKS[i % 3], recipe=f"tsm_k400_{i}")
    for i in range(12)
]
SCALING = [
    speed_events(100.0 * cards**0.95 * (i + 1), cards, max(cards // 8, 1), framework=name, step_ms=[1.0, 2.0, 900.0])
    for i, name in enumerate(FRAMEWORKS)
    for cards in (1, 2, 4, 8, 64, 1024)
    for _ in range(3)
]
NOISY = [speed_events(rate, cards) for cards in (1, 2) for rate in (17.0 * cards, 43.0 * cards)]  # wide intervals
INCOMPLETE = [training_events()[:-1], training_events((0.1,))[:3], []]
DOLLARS = [training_events(recipe="$x_1$ & <b> ${", metric="$\\frac{1}{0}$"), training_events(recipe="%s $")]


def read(tmp_path, several):
    return [runs.read(write(tmp_path / f"run{number}", events)) for number, events in enumerate(several)]


def draw(tmp_path, several):
    found = read(tmp_path, several)
    return {plot.name.removeprefix("m-"): plot for plot in plots.draw("m", found, group(found))}


def visible_texts(figure):
    """Return (text, box) of all texts that are drawn: a tick beyond the limits of its axis is not."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [tick.label1 for tick in axis.get_major_ticks()
                      if low <= tick.get_loc() <= high and tick.label1.get_visible()]  # fmt: skip
    renderer = canvas.get_renderer()
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]


def overlaps(a, b):
    """Whether two boxes share more than a pixel of width and height."""
    return min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1


@pytest.mark.parametrize(
    "several, kinds",
    [
        (ONE, {"throughput", "loss", "metric"}),
        (MANY_CASES, {"throughput", "loss", "metric"}),
        (SCALING, {"throughput", "scaling"}),
        (NOISY, {"throughput", "scaling"}),
        (INCOMPLETE, {"loss", "metric"}),
        (DOLLARS, {"throughput", "loss", "metric"}),
    ],
    ids=["one", "many", "scaling", "noisy", "incomplete", "dollars"],
)
def test_plots_of_what_was_measured_without_texts_that_overlap_or_leave_the_figure(tmp_path, several, kinds):
    drawn = draw(tmp_path, several)
    assert drawn.keys() == kinds
    for name, plot in drawn.items():
        texts, figure = visible_texts(plot.figure), plot.figure.bbox
        pairs = [(a[0], b[0]) for a, b in itertools.combinations(texts, 2) if overlaps(a[1], b[1])]
        assert pairs == [] and len(texts) > 3, name
        assert all(b.x0 >= -1 and b.y0 >= -1 and b.x1 <= figure.x1 + 1 and b.y1 <= figure.y1 + 1 for _, b in texts)
        assert not [text for text, _ in texts if "mathdefault" in text]  # the page prints texts as they are
        titles = [axes.get_xlabel() for axes in plot.figure.axes]
        expected = {"throughput": r".*\(samples/s\)", "scaling": "cards"}
        assert all(re.match(expected.get(name, r"samples|time \((seconds|minutes)\)"), title) for title in titles)


def test_values_that_are_drawn(tmp_path):
    metric = draw(tmp_path / "a", ONE)["metric"]
    left, right = (axes.get_lines()[0].get_xydata().tolist() for axes in metric.figure.axes)
    assert left == [[1000.0, 50.0], [2000.0, 72.0], [3000.0, 70.0]]
    assert right == [[20.0, 50.0], [40.0, 72.0], [60.0, 70.0]]
    axes = draw(tmp_path / "b", [speed_events(rate) for rate in (90.0, 100.0, 130.0)])["throughput"].figure.axes[0]
    assert [bar.get_width() for bar in axes.patches] == [100.0]
    assert "100  noisy" in [text.get_text() for text in axes.texts]
    assert draw(tmp_path / "c", NOISY)["throughput"].figure.axes[0].get_xlim()[1] < 2 * 86  # bars are not squeezed
    rates = ((2, 100.0), (4, 180.0), (16, 600.0))
    scaling = draw(tmp_path / "d", [speed_events(rate, cards) for cards, rate in rates])["scaling"]
    linear, measured = (line.get_ydata().tolist() for line in scaling.figure.axes[0].get_lines()[:2])
    assert linear == [100.0, 200.0, 800.0] and measured == [100.0, 180.0, 600.0]
    assert scaling.figure.axes[1].get_lines()[0].get_ydata().tolist() == [100.0, 90.0, 75.0]


def test_the_page_is_self_contained(tmp_path):
    found = read(tmp_path, [*ONE, training_events(recipe="<script>alert(1)</script>")])
    results = group(found)
    shown = tables.build(found, results, [])
    sections = [Section("m", ["<b>"], shown[:-1], plots.draw("m", found, results))]
    text = render(TEMPLATE, warnings=["<warning>"], sections=sections, runs=shown[-1])
    references = re.findall(r'(?:src|href|data|action)="([^"]*)"', text)
    assert references and all(reference.startswith("data:image/svg+xml;base64,") for reference in references)
    assert "http" not in text and "&lt;warning&gt;" in text and "<warning>" not in text and "<script" not in text


def test_labels_name_what_differs():
    base = Case("resnet", "r", None, "torch", "fp32", 4, 1, 1, 1, "V100", "timed updates")
    assert labels([base]) == {base: "torch fp32"}
    others = [base, base._replace(cards=8), base._replace(cards=8, batch=2)]
    assert list(labels(others).values()) == [
        "torch fp32 batch 4 1 cards", "torch fp32 batch 4 8 cards", "torch fp32 batch 2 8 cards"]  # fmt: skip
