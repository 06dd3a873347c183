"""Plots: no text overlaps another or leaves the figure, and the page needs nothing from elsewhere."""

import itertools
import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tests.bench.report.runs import speed_events, training_events, write
from zoo.bench.report import cases, journals, labels, page, plots, tables
from zoo.bench.report.curves import MAX_POINTS, _thinned
from zoo.bench.report.page import Section
from zoo.bench.report.run import Case, Point

LONG = "a_recipe_with_an_extremely_long_name_that_nobody_would_type_" * 3
FRAMEWORKS = ("torch", "paddle", "mindspore")


def read(tmp_path, sets):
    return [journals.read(write(tmp_path / f"run{number}", events)) for number, events in enumerate(sets)]


def one(_):
    return [training_events()]


def many_cases(_):
    """24 cases of one model with long names that differ at their ends."""
    return [
        training_events((0.1, 0.5, 0.72), seconds=5.0 + i, framework=FRAMEWORKS[i % 3], recipe=f"{LONG}{i}")
        for i in range(24)
    ]


def scaling(_):
    return [
        speed_events(
            100.0 * cards**0.95 * (i + 1), cards, max(cards // 8, 1), framework=name, step_ms=[1.0, 2.0, 900.0]
        )
        for i, name in enumerate(FRAMEWORKS)
        for cards in (1, 2, 4, 8, 16, 32, 64, 1024)
        for _ in range(3)
    ]


def without_evaluations(_):
    events = training_events((0.1, 0.2))
    return [[event for event in events if event["event"] != "eval"]]


def few_cards(_):
    return [speed_events(1e9 * cards, cards) for cards in (1, 2)]


def incomplete(_):
    return [training_events()[:-1], training_events((0.1,))[:3], []]


def noisy(_):
    """Two runs a case, whose confidence interval is hundreds of times as wide as the bar is long."""
    return [speed_events(rate, cards) for cards in (1, 2) for rate in (17.0 * cards, 43.0 * cards)]


def dollars(_):
    return [training_events(recipe="$x_1$ & <b> ${", metric="$\\frac{1}{0}$"), training_events(recipe="%s $")]


SETS = (one, many_cases, scaling, without_evaluations, few_cards, incomplete, noisy, dollars)


@pytest.fixture(params=SETS, ids=lambda make: make.__name__)
def drawn(request, tmp_path):
    runs = read(tmp_path, request.param(None))
    return plots.draw("model", runs, cases.group(runs))


def visible_texts(figure):
    """Return (text, box) of all texts that are drawn: a tick beyond the limits of its axis is not."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [
                tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high and tick.label1.get_visible()
            ]
            texts += [tick.label1 for tick in ticks]
    renderer = canvas.get_renderer()
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]


def overlaps(a, b):
    """Whether two boxes share more than a pixel of width and height."""
    width = min(a.x1, b.x1) - max(a.x0, b.x0)
    height = min(a.y1, b.y1) - max(a.y0, b.y0)
    return width > 1 and height > 1


def test_texts_neither_overlap_nor_leave_the_figure(drawn):
    for plot in drawn:
        texts, figure = visible_texts(plot.figure), plot.figure.bbox
        pairs = [(a[0], b[0]) for a, b in itertools.combinations(texts, 2) if overlaps(a[1], b[1])]
        assert pairs == [] and len(texts) > 3, plot.name
        inside = [b.x0 >= -1 and b.y0 >= -1 and b.x1 <= figure.x1 + 1 and b.y1 <= figure.y1 + 1 for _, b in texts]
        assert all(inside), (plot.name, texts[inside.index(False)])


def test_no_text_is_mathematical(drawn):
    """The page prints texts as they are."""
    assert not [text for plot in drawn for text, _ in visible_texts(plot.figure) if "mathdefault" in text]


def test_axes_have_titles_with_units(drawn):
    for plot in drawn:
        titles = [axes.get_xlabel() for axes in plot.figure.axes]
        assert all(titles), plot.name
        expected = {"throughput": "(samples/s)", "steps": "(ms)", "scaling": "cards"}.get(plot.name.rpartition("-")[2])
        assert expected is None or all(expected in title for title in titles)
        if plot.name.endswith(("-loss", "-metric")):
            assert re.match(r"samples|time \((seconds|minutes)\)", titles[-1]) and plot.figure.axes[0].get_ylabel()


@pytest.mark.parametrize(
    "make, kinds",
    [
        (one, {"throughput", "steps", "loss", "metric"}),
        (scaling, {"throughput", "steps", "scaling"}),
        (without_evaluations, {"throughput", "steps", "loss"}),
        (incomplete, {"loss", "metric"}),
    ],
)
def test_plots_of_what_was_measured(tmp_path, make, kinds):
    runs = read(tmp_path, make(None))
    assert {plot.name.removeprefix("model-") for plot in plots.draw("model", runs, cases.group(runs))} == kinds


def test_curves_have_the_points_of_the_journal(tmp_path):
    runs = read(tmp_path, one(None))
    metric = next(plot for plot in plots.draw("m", runs, cases.group(runs)) if plot.name == "m-metric")
    left, right = (axes.get_lines()[0].get_xydata().tolist() for axes in metric.figure.axes)
    assert left == [[1000.0, 50.0], [2000.0, 72.0], [3000.0, 70.0]]
    assert right == [[20.0, 50.0], [40.0, 72.0], [60.0, 70.0]]


def test_bars_have_the_medians(tmp_path):
    runs = read(tmp_path, [speed_events(rate) for rate in (90.0, 100.0, 130.0)])
    throughput = plots.draw("m", runs, cases.group(runs))[0]
    assert [bar.get_width() for bar in throughput.figure.axes[0].patches] == [100.0]
    assert "100" in [text.get_text() for text in throughput.figure.axes[0].texts]


def test_a_wide_interval_does_not_squeeze_the_bars(tmp_path):
    runs = read(tmp_path, noisy(None))
    axes = plots.draw("m", runs, cases.group(runs))[0].figure.axes[0]
    assert max(result.speed.high for result in cases.group(runs)) > 1000 and axes.get_xlim()[1] < 2 * 86


def test_linear_scaling_starts_at_the_fewest_cards(tmp_path):
    runs = read(tmp_path, [speed_events(rate, cards) for cards, rate in ((2, 100.0), (4, 180.0), (16, 600.0))])
    plot = next(plot for plot in plots.draw("m", runs, cases.group(runs)) if plot.name == "m-scaling")
    linear, measured = (line.get_ydata().tolist() for line in plot.figure.axes[0].get_lines()[:2])
    assert linear == [100.0, 200.0, 800.0] and measured == [100.0, 180.0, 600.0]
    assert plot.figure.axes[1].get_lines()[0].get_ydata().tolist() == [100.0, 90.0, 75.0]


def test_long_curves_are_means_of_neighbours():
    points = [Point(float(i), None, float(i % 2)) for i in range(10 * MAX_POINTS)]
    x, y = _thinned(points, lambda point: point.samples)
    assert len(x) == MAX_POINTS and x[0] == 4.5 and set(y) == {0.5}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.ids, self.references = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name in ("src", "href", "xlink:href", "data", "action"):
                self.references.append(value)


def test_the_page_is_self_contained(tmp_path):
    runs = read(tmp_path, scaling(None) + [training_events(recipe="<script>alert(1)</script>")])
    results = cases.group(runs)
    shown = tables.build(runs, results, [])
    sections = [Section(f"m{i}", ["<b>"], shown[:-1], plots.draw(f"m{i}", runs, results)) for i in (1, 2)]
    text = page.render("<Title>", ["<warning>"], sections, shown[-1])
    parsed = Page()
    parsed.feed(text)
    assert len(parsed.ids) == len(set(parsed.ids)) > 50
    assert all(reference.removeprefix("#") in parsed.ids for reference in parsed.references) and parsed.references
    assert not {"script", "link", "img", "iframe"} & set(parsed.tags) and "http" not in re.sub(
        r'xmlns(:\w+)?="[^"]*"', "", text
    )
    assert set(re.findall(r"url\((.)", text)) == {"#"}
    assert "currentColor" in text and "&lt;Title&gt;" in text and "<warning>" not in text and "alert(1)</s" not in text


def test_labels_name_what_differs():
    base = Case("resnet", "r", None, "torch", "fp32", 4, 1, 1, 1, "V100", "timed updates")
    assert labels.labels([base]) == {base: "torch fp32"}
    others = [base, base._replace(cards=8), base._replace(cards=8, batch=2)]
    assert list(labels.labels(others).values()) == [
        "torch fp32 batch 4 1 card", "torch fp32 batch 4 8 cards", "torch fp32 batch 2 8 cards"]  # fmt: skip
    long = [base._replace(recipe=f"{LONG}{i}") for i in range(3)]
    assert len(set(labels.labels(long).values())) == 3 and max(map(len, labels.labels(long).values())) <= 52
    same = [base._replace(recipe=f"{i}{LONG}") for i in ("a" * 30 + "b" + "a" * 30, "a" * 30 + "c" + "a" * 30)]
    assert len(set(labels.labels(same).values())) == 2


def test_file_names_are_safe():
    assert (
        plots.file_name("a/../b c") == "a-b-c"
        and plots.file_name(None) == "unknown"
        and plots.file_name("§") == "unknown"
    )
