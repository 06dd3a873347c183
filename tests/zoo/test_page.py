"""The page of a run: its numbers against numpy's, its parts for each task, and what it says where some is missing."""

import json
import re
import shutil
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import zoo
from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.helpers.processes import train_arguments
from zoo import cli, data
from zoo.data import extras, order
from zoo.data.errors import UserError
from zoo.logs.journal import history
from zoo.visualization import charts, page
from zoo.visualization.evaluation import Recorder, loss_of_mistake, wrong_pixels

VOID = {"meta", "link", "img", "br", "line", "polyline", "circle"}


class Page(HTMLParser):
    """A page, parsed: every element is closed.

    Attributes:
        tables: rows of cells below each heading.
        images: address and text.
        points: of the lines of the charts, by title.
        text: of the page.
        addresses: that elements refer to.
    """

    def __init__(self, text):
        super().__init__()
        self.tables, self.images, self.points, self.addresses = {}, [], {}, []
        self.text, self._open, self._heading, self._chart = "", [], "", ""
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.addresses += [values[name] for name in ("src", "href") if name in values]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "h2":
            self._heading = ""
        elif tag == "tr":
            self.tables.setdefault(self._heading, []).append([])
        elif tag in ("td", "th"):
            self.tables[self._heading][-1].append("")
        elif tag == "img":
            self.images.append((self._heading, values["alt"]))
        elif tag == "svg":
            self._chart = values["aria-label"]
        elif tag == "polyline":
            points = [[float(number) for number in point.split(",")] for point in values["points"].split()]
            self.points.setdefault(self._chart, []).append(points)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, text):
        if "style" in self._open:
            assert "url(" not in text and "@import" not in text
            return
        self.text += text
        if "h2" in self._open:
            self._heading += text
        elif {"td", "th"} & set(self._open):
            self.tables[self._heading][-1][-1] += text.strip()


@pytest.fixture
def copy_of(single_run, tmp_path):
    """model -> a copy of the folder of its small run."""

    def copy(model):
        return shutil.copytree(single_run("torch", model), tmp_path / model, symlinks=True)

    return copy


def read(folder):
    assert page.write_page(folder) == folder / "report.html"
    found = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert all(address.startswith("data:") for address in found.addresses)
    return found


def val_set(loaded):
    name = loaded.recipe["data.name"]
    keys = {key[5:]: value for key, value in loaded.recipe.items() if key.startswith("data.") and key != "data.name"}
    return data.find(name).load(data.find(name).Settings(**keys))[1]


def confusion_of(pairs, count):
    matrix = np.zeros((count, count), int)
    for label, predicted in pairs:
        matrix[label, predicted] += 1
    return matrix


def check_scores(rows, matrix, names, ious):
    """Compare the table of classes with precision, recall and F1 as their definitions say."""
    assert [row[0] for row in rows[1:]] == list(names)
    for k, (_, *printed) in enumerate(rows[1:]):
        right, missed, wrong = matrix[k, k], matrix[k].sum() - matrix[k, k], matrix[:, k].sum() - matrix[k, k]
        parts = [(right, right + wrong), (right, right + missed), (2 * right, 2 * right + wrong + missed)]
        parts += [(right, right + wrong + missed)] * ious
        expected = [f"{part / whole:.3f}" if whole else "-" for part, whole in parts]
        assert printed == [*expected, str(matrix[k].sum())], names[k]


@pytest.mark.parametrize("model", ["resnet50", "tsm"])
def test_numbers_of_a_classifier(copy_of, model):
    folder = copy_of(model)
    loaded = zoo.load(folder / "checkpoints/best")
    split, names = val_set(loaded), loaded.class_names
    found = read(folder)
    files = [f"{loaded.recipe['data.root']}/{split.name(index)}" for index in range(len(split))]
    labels = [int(split.sample(index, order.generator(1, "evaluate", index))["label"]) for index in range(len(split))]
    predicted = loaded.predict(files)
    matrix = confusion_of(
        ((label, names.index(result.labels[0])) for label, result in zip(labels, predicted)), len(names)
    )
    header, *rows = found.tables["Confusion matrix"]
    assert header == ["", *names] and [row[0] for row in rows] == list(names)
    assert np.array_equal(np.array([row[1:] for row in rows], int), matrix)
    check_scores(found.tables["Classes"], matrix, names, ious=False)
    share, count = np.diag(matrix).mean(), np.diag(matrix).sum()
    shown = dict(found.tables["Evaluation of the best checkpoint"])["top1"]
    assert shown.startswith(f"{share:.4f} ({count} of {len(split)}, 95 % interval 0.")
    wrong = [index for index, label in enumerate(labels) if predicted[index].labels[0] != names[label]]
    assert sum(heading == "Worst mistakes" for heading, _ in found.images) == min(len(wrong), page.SHOWN) > 0
    assert sum(heading == "Samples" for heading, _ in found.images) == len(split)
    for index in wrong:
        result = predicted[index]
        text = f"{result.labels[0]} {max(result.probabilities):.2f}, is {names[labels[index]]}"
        assert ("Worst mistakes", text) in found.images
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert len(found.points["Loss"][0]) == sum(each["event"] == "train" for each in events)
    assert {"Loss", "Learning rate"} <= found.points.keys() and loaded.recipe["model.name"] in found.text


@pytest.mark.slow
def test_numbers_of_scenes(copy_of):
    folder = copy_of("deeplabv3plus")
    loaded = zoo.load(folder / "checkpoints/best")
    split, count = val_set(loaded), len(loaded.class_names)
    found, matrix, shares = read(folder), np.zeros((count, count), int), []
    for index in range(len(split)):
        sample = split.sample(index, order.generator(1, "evaluate", index))
        predicted = loaded.predict(f"{loaded.recipe['data.root']}/{split.name(index)}").class_map
        known = sample["label"] != 255
        np.add.at(matrix, (sample["label"][known], predicted[known]), 1)
        shares.append((predicted == sample["label"])[known].mean())
    check_scores(found.tables["Classes"], matrix, loaded.class_names, ious=True)
    printed = np.array([row[1:] for row in found.tables["Confusion matrix"][1:]], int)
    assert np.abs(printed - 100 * matrix / np.maximum(matrix.sum(1, keepdims=True), 1)).max() <= 0.5001
    worst = [text for heading, text in found.images if heading == "Worst mistakes"]
    assert worst == [f"image, labels, prediction ({share:.0%} right)" for share in sorted(shares)]


@pytest.mark.slow
def test_a_page_of_faces(copy_of):
    found = read(copy_of("arcface"))
    assert [heading for heading in found.tables if "person" in heading] == []
    assert {heading for heading, _ in found.images} == {
        f"{who} person{'s' * (who == 'Different')}, {how} alike"
        for who in ("Same", "Different")
        for how in ("most", "least")
    }
    (points,) = found.points["True accept rate"]
    assert points[0] == [charts.LEFT, charts.HEIGHT - charts.BOTTOM] and points[-1][1] == charts.TOP
    printed = dict(found.tables["Evaluation of the best checkpoint"])
    assert "unseen_tar" in printed
    assert re.fullmatch(
        r"cosine -?[01]\.\d{3} \(squared distance \d\.\d\d\): faces more alike count as one person; .* of unseen best",
        printed["unseen: threshold"],
    )


@pytest.mark.slow
def test_a_moving_average_is_what_is_evaluated(demo_sets, tmp_path):
    line = train_arguments(demo_sets, "resnet50", tmp_path / "run", "torch", train__ema=0.5)
    assert cli.main(["train", *line[1:]]) == 0
    (evaluation,) = (each for each in history(str(tmp_path / "run")) if each["event"] == "eval")
    printed = dict(read(tmp_path / "run").tables["Evaluation of the best checkpoint"])
    assert printed["loss"] == f"{evaluation['ema']['loss']:.4f}" != f"{evaluation['loss']:.4f}"


def test_a_page_of_a_run_whose_data_are_gone_says_so(copy_of, tmp_path, capsys):
    folder = copy_of("resnet50")
    record = folder / "checkpoints/best/checkpoint.json"
    values = json.loads(record.read_text())
    values["recipe"] = re.sub(r"(?m)^(  root:) \S+", rf"\1 {tmp_path}", values["recipe"])
    record.write_text(json.dumps(values))
    capsys.readouterr()
    assert call_zoo("report", folder, "--html") == 0
    assert capsys.readouterr().out == f"written: {folder}/report.html\n"  # and nothing of the evaluation
    found = Page((folder / "report.html").read_text())
    assert "could not be evaluated" in found.text and "is not a demo set" in found.text
    assert "Training" in found.text and "Recipe" in found.text and "Confusion matrix" not in found.text


def test_names_are_escaped_and_a_run_may_have_no_evaluation_yet(copy_of):
    folder = copy_of("resnet50").rename(copy_of("tsm").parent / "<b>&run")
    lines = (folder / "events.jsonl").read_text().splitlines()
    begun = next(place for place, line in enumerate(lines) if '"begin"' in line)
    (folder / "events.jsonl").write_text("\n".join(lines[: begun + 1]) + "\n")
    shutil.rmtree(folder / "checkpoints")
    found = read(folder)
    assert "<b>&run" in found.text and "no best checkpoint" in found.text and found.points == {}


def test_what_no_page_can_be_written_of(copy_of, tmp_path, capsys, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty is no run that has begun"):
        page.write_page(tmp_path / "empty")
    assert call_zoo("report", tmp_path / "emtpy", "--html") == 2
    assert "emtpy does not exist; did you mean" in capsys.readouterr().err
    (tmp_path / "log.txt").touch()
    for paths in ([tmp_path / "empty", tmp_path], [tmp_path / "log.txt"]):
        assert call_zoo("report", *paths, "--html") == 2
        assert capsys.readouterr().err.startswith("error: --html: without a file it writes the page of a run")
    folder = copy_of("tsm")
    journal = (folder / "events.jsonl").read_text()
    (folder / "events.jsonl").write_text(journal.replace('"plan"', '"plane"'))
    with pytest.raises(UserError, match="events.jsonl is damaged"):
        page.write_page(folder)
    (folder / "events.jsonl").write_text(journal)
    (folder / "config.yaml").unlink()
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(UserError, match="config.yaml cannot be read"):
        page.write_page(folder)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UserError, match=re.escape(extras.missing("jinja2"))):
        page.write_page(copy_of("resnet50"))


def test_a_copy_without_its_links_and_recipe_has_the_same_page(copy_of):
    folder = copy_of("resnet50")
    found = read(folder)
    for name in ("config.yaml", "checkpoints/best", "checkpoints/last"):
        (folder / name).unlink()
    again = read(folder)
    assert "depth: 18" in again.text and "Samples" in again.text and len(again.text) == len(found.text)


def test_a_run_of_an_older_version_has_a_page(tmp_path):
    folder = shutil.copytree(ROOT / "tests/golden/old_run", tmp_path / "run")
    found = read(folder)
    assert "no best checkpoint" in found.text and "Learning rate" in found.text and "torch" in found.text


def test_many_classes_list_their_most_frequent_confusions(monkeypatch, copy_of):
    monkeypatch.setattr(page, "MAX_CELLS", 3)
    found = read(copy_of("resnet50"))
    assert "Confusion matrix" not in found.tables
    counts = [int(row[2]) for row in found.tables["Most frequent confusions"][1:]]
    assert counts == sorted(counts, reverse=True) and len(found.tables["Classes"]) == 9


def test_accept_rates_at_every_threshold():
    rng = np.random.default_rng(0)
    distance, same = rng.integers(0, 8, 50) / 4, rng.random(50) < 0.4  # with ties
    expected = [(0.0, 0.0)]
    for threshold in sorted(set(distance)):
        accepted = distance <= threshold
        expected.append((accepted[~same].mean(), accepted[same].mean()))
    assert np.allclose(page.roc(distance, same), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "low, high", [(0, 1), (0.98, 0.99), (-3, 1234.5), (7, 7), (0, 0), (1e-7, 3e-6), (1e-13, 2e-13)]
)
def test_a_chart_has_round_ticks_around_its_points(low, high):
    found = charts.chart("loss", "step", {"a": [(1, low), (2, high), (3, float("nan"))], "b": []})
    ((name, points),) = found.lines
    xy = np.array([[float(value) for value in point.split(",")] for point in points.split()])
    assert name == "a" and xy.shape == (2, 2)
    assert (xy[:, 1] >= charts.TOP).all() and (xy[:, 1] <= charts.HEIGHT - charts.BOTTOM).all()
    ticks = np.array([[y, float(text)] for y, text in found.y_ticks])
    assert 2 <= len(ticks) <= charts.TICKS + 2 and ticks[0, 1] <= low and ticks[-1, 1] >= high
    assert np.allclose(
        np.interp(xy[::-1, 1], ticks[::-1, 0], ticks[::-1, 1]), [high, low], atol=(high - low or 1) / 100
    )


def test_a_chart_of_nothing_and_of_many_points():
    assert charts.chart("loss", "step", {"a": [], "b": [(1, float("nan"))]}) is None
    found = charts.chart("loss", "step", {"a": [(step, step) for step in range(30_000)]})
    assert len(found.lines[0][1].split()) == charts.MAX_POINTS


class Metric:
    state = None

    def update(self, outputs, batch):
        """Count nothing."""


@pytest.mark.parametrize("views", [1, 2])
def test_the_worst_mistakes_are_those_with_the_largest_losses(views):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(20, views, 4)), rng.integers(-1, 4, 20)
    recorder = Recorder(Metric(), 20, 1, 5, loss_of_mistake)
    for first in range(0, 24, 6):  # the last batch has four rows of padding
        rows = np.arange(first, first + 6) % 20
        batch = {"label": labels[rows], "valid": (np.arange(first, first + 6) < 20).astype(float)}
        recorder.update(logits[rows].reshape(-1, 4), batch)
    mean = logits.mean(1)
    losses = [-np.log(np.exp(row[label]) / np.exp(row).sum()) for row, label in zip(mean, labels)]
    wrong = [index for index in range(20) if labels[index] not in (-1, mean[index].argmax())]
    assert [index for index, _ in recorder.worst] == sorted(wrong, key=lambda index: -losses[index])[:5]
    assert all(np.array_equal(outputs, logits[index]) for index, outputs in recorder.worst)


def test_the_share_of_wrong_pixels_leaves_out_those_without_a_label():
    label = np.array([[0, 1], [255, 1]])
    assert wrong_pixels(np.array([[[0, 0], [0, 1]]]), label) == pytest.approx(1 / 3)
    assert wrong_pixels(np.zeros((1, 2, 2)), np.full((2, 2), 255)) == 0
