"""Check of the tree of a submission, from its files alone, and the table that AI-Rank's reviewers make of it."""

import filecmp
import os
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from zoo.bench.airank_log import Log, deviations, measure, parse
from zoo.bench.submission import rules, runs
from zoo.bench.submission.tree import DEMO_FILE
from zoo.data.errors import UserError
from zoo.data.formats import regular
from zoo.data.parsing import parsing
from zoo.logs import journal
from zoo.table import table

SAMPLES = re.compile(r"training samples: (\d{1,12})$", re.MULTILINE)  # of readme.data_note
WARMUP = re.compile(r"avg_ips leaves out warm-up epochs: (\d{1,6})$", re.MULTILINE)  # of readme.readme
HEAD = ("model", "cards", "Time2train(sec)", "throughput(samples/sec)", "accuracy(%)", "speed-up")


class Model(NamedTuple):
    """The folder of a model in a tree.

    Attributes:
        path: the folder.
        logs: number of cards -> log.
        samples: training samples per epoch, by the data note.
        warmup: epochs that avg_ips leaves out, by code/README.md.
        checksum: checksum of the data, by the data note.
    """

    path: Path
    logs: dict[int, Log]
    samples: int | None
    warmup: int
    checksum: str | None

    @property
    def target(self) -> Decimal | None:
        """AI-Rank's target, None for a model that it does not list."""
        listed = rules.find(self.path.name)
        return listed.target if listed else None


class Row(NamedTuple):
    """A row of the reviewers' table.

    Attributes:
        model: folder of the model; or model, framework and precision of a run.
        cards: number of cards.
        time_to_train_s: time stamp of the evaluation that reaches the target minus that of test_begin.
        samples_per_s: avg_ips, recomputed from the log.
        accuracy_percent: the best one.
        source: the folder of the model or of the run.
    """

    model: str
    cards: int
    time_to_train_s: float | None
    samples_per_s: float | None
    accuracy_percent: float | None
    source: str


def check(tree: str) -> list[str]:
    """List the problems of a tree, each with its file.

    Raises:
        UserError: there is no such folder.
    """
    root, lines = _root(tree), []
    is_demo = (root / DEMO_FILE).is_file()
    files = sorted(root.glob(f"*/*/{rules.SYSTEM_FILE}"))
    if not files:
        return [f"{tree}: no submitter/system/{rules.SYSTEM_FILE} in it"]
    for file in files:
        with parsing(f"{file}: no JSON"):
            fields = regular.load_json(str(file))
        found = rules.problems(fields, is_demo) if isinstance(fields, dict) else ["no object"]
        models = [read_model(folder) for folder in sorted(file.parent.iterdir()) if folder.is_dir()]
        cards = max((count for model in models for count in model.logs), default=0)
        if not found and not is_demo:
            present = fields["accelerators_per_node"] * fields["number_of_nodes"]
            found += [f"{present} accelerators, but a log of {cards} cards"] if present < cards else []
        lines += [f"{file.relative_to(root)}: {text}" for text in found]
        lines += [] if models else [f"{file.parent.relative_to(root)}: no folder of a model in it"]
        for model in models:
            lines += [f"{model.path.relative_to(root)}/{text}" for text in _problems(model, is_demo)]
    return lines


def read_model(path: Path) -> Model:
    """Read the folder of a model; what is not there is None."""
    note, page = _text(path / "data" / rules.README), _text(path / "code" / rules.README)
    samples, warmup, checksum = SAMPLES.search(note), WARMUP.search(page), rules.CHECKSUM.search(note)
    logs = {cards: path / "log" / rules.log_name(cards) for cards in rules.CARDS}
    return Model(
        path,
        {cards: parse(_text(file).splitlines()) for cards, file in logs.items() if file.is_file()},
        int(samples[1]) if samples else None,
        int(warmup[1]) if warmup else 0,
        checksum[0].lower() if checksum else None,
    )


def _problems(model: Model, is_demo: bool) -> list[str]:
    """List the problems of the folder of a model; every line begins with a path in it."""
    lines = [f"{name}: the folder is missing" for name in rules.FOLDERS if not (model.path / name).is_dir()]
    target = None if is_demo else model.target
    if target is None and not is_demo:
        lines.append(f"code: AI-Rank lists no model of the name {model.path.name}")
    if not _text(model.path / "code" / rules.README):
        lines.append(f"code/{rules.README}: is missing")
    if model.checksum is None or model.samples is None:
        lines.append(f"data/{rules.README}: no checksum or number of training samples")
    if not model.logs:
        lines.append(f"log: none of {', '.join(map(rules.log_name, rules.CARDS))}")
    names = {cards: rules.log_name(cards) for cards in model.logs}
    for few, many in combinations(model.logs, 2):
        if filecmp.cmp(model.path / "log" / names[few], model.path / "log" / names[many], shallow=False):
            lines.append(f"log/{names[many]}: the same file as {names[few]}")
    for cards, log in model.logs.items():
        found = deviations(log, target, model.samples, model.warmup)
        if log.kind == "training" and not is_demo and log.first("target_quality_time") is None:
            found.append(f"no target_quality_time; AI-Rank's target is {target}")
        load = log.first("load_data")
        if load and load.text and model.checksum and load.text.lower() != model.checksum:
            found.append(f"the checksum {load.text} is not that of the data note")
        lines += [f"log/{names[cards]}: {text}" for text in found]
    return lines


def rows(paths: Sequence[str], target: Decimal | None) -> list[Row]:
    """Return the reviewers' rows of trees and runs, sorted by model and cards.

    Args:
        paths: folders of runs, or of trees.
        target: accuracy that ends Time2train; None for AI-Rank's, or in a demo for the run's own.

    Raises:
        UserError: a path is neither, or a tree has no log.
    """
    found = []
    for path in paths:
        is_run = os.path.isfile(os.path.join(path, journal.FILE))
        more = [_row_of_run(path, target)] if is_run else _rows_of_tree(path, target)
        if not more:
            raise UserError(f"{path}: no run, and no log of a submission in it")
        found += more
    return sorted(found, key=lambda row: (row.model, row.cards))


def speedup(found: Sequence[Row], row: Row, by: str) -> float | None:
    """Return how many times faster a row is than the model's row of one card, None without the two values."""
    base = next((getattr(other, by) for other in found if (other.model, other.cards) == (row.model, 1)), None)
    value = getattr(row, by)
    if not base or not value:
        return None
    return base / value if by == "time_to_train_s" else value / base


def summary(found: Sequence[Row]) -> list[str]:
    """Return the lines of the reviewers' table in Markdown."""
    cells = []
    for row in found:
        values = (row.time_to_train_s, row.samples_per_s, row.accuracy_percent, speedup(found, row, "time_to_train_s"))
        cells.append((row.model, row.cards, *(None if value is None else f"{value:.2f}" for value in values)))
    return table(cells, HEAD, markdown=True)


def _row_of_run(path: str, target: Decimal | None) -> Row:
    run = runs.read(path)
    begin, log = run.begin, parse(run.log(target))
    name = f"{begin['model']} ({begin['framework']}, {begin['compute']})"
    return _row(name, run.cards, log, target, begin["train_samples"], begin["warmup_epochs"], path)


def _rows_of_tree(path: str, target: Decimal | None) -> list[Row]:
    root, found = _root(path), []
    is_demo = (root / DEMO_FILE).is_file()
    for folder in sorted(root.glob("*/*/*")):
        model = read_model(folder)
        own = target or (None if is_demo else model.target)
        for cards, log in model.logs.items():
            source = folder.relative_to(root).as_posix()
            found.append(_row(folder.name, cards, log, own, model.samples, model.warmup, source))
    return found


def _row(
    model: str, cards: int, log: Log, target: Decimal | None, samples: int | None, warmup: int, source: str
) -> Row:
    values = measure(log, target, samples, warmup)
    seconds = values["time_to_target"] if target is not None else values["target_quality_time"]
    speed = values["samples_per_s"] if values["samples_per_s"] is not None else values["avg_ips"]
    accuracy = values["best"]
    if accuracy is not None and values["accuracy_unit"] == "fraction":
        accuracy *= 100
    return Row(model, cards, seconds, speed, accuracy, source)


def _root(tree: str) -> Path:
    if not os.path.isdir(tree):
        raise UserError(f"{tree}: there is no such folder; name the one that holds the submitter's")
    return Path(tree)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
