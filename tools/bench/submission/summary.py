"""Summary of submissions and runs: the table that AI-Rank's reviewers make."""

import os
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.airank_log.grammar import Log, parse
from zoo.bench.airank_log.values import measure
from zoo.bench.submission import runs, submitted
from zoo.bench.submission.tree import DEMO_FILE
from zoo.data.errors import UserError
from zoo.logs import journal

TAIL = re.compile(r"^gpux\d+[_-]*", re.IGNORECASE)
HEAD = ("model", "cards", "Time2train(sec)", "throughput(samples/sec)", "accuracy(%)", "speed-up")


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        model: folder of the model, with what a log's name adds; or model, framework and precision of a run.
        cards: number of cards.
        time_to_train_s: time stamp of the evaluation that reaches the target minus that of test_begin.
        samples_per_s: avg_ips, recomputed from the log where the number of samples is known, else as it declares.
        accuracy_percent: the best one.
        source: the log or the run.
    """

    model: str
    cards: int
    time_to_train_s: float | None
    samples_per_s: float | None
    accuracy_percent: float | None
    source: str


def rows(paths: Sequence[str], target: Decimal | None) -> list[Row]:
    """Return the rows of trees and runs, sorted by model and cards.

    Args:
        paths: folders of runs, or of trees.
        target: accuracy that ends Time2train; None for AI-Rank's, or in a demo for the run's own.

    Raises:
        UserError: a path is neither, or a tree has no log.
    """
    found = []
    for path in paths:
        is_run = os.path.isfile(os.path.join(path, journal.FILE))
        more = [_of_run(path, target)] if is_run else _of_tree(path, target)
        if not more:
            raise UserError(f"{path}: no run, and no log of a submission in it")
        found += more
    return sorted(found, key=lambda row: (row.model, row.cards))


def table(found: Sequence[Row]) -> str:
    """Format rows as Markdown; `-` where there is no value."""
    lines = [f"| {' | '.join(HEAD)} |", "|---|---:|---:|---:|---:|---:|"]
    for row in found:
        values = (row.time_to_train_s, row.samples_per_s, row.accuracy_percent, speedup(found, row, "time_to_train_s"))
        cells = ["-" if value is None else f"{value:.2f}" for value in values]
        lines.append(f"| {row.model} | {row.cards} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def report(found: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows for JSON, with the speed-up by Time2train and, for comparison, by throughput."""
    return [
        {
            **row._asdict(),
            "speedup": speedup(found, row, "time_to_train_s"),
            "speedup_by_throughput": speedup(found, row, "samples_per_s"),
        }
        for row in found
    ]


def speedup(found: Sequence[Row], row: Row, by: str) -> float | None:
    """Return how many times faster a row is than the model's row of one card, None without the two values."""
    base = next((getattr(other, by) for other in found if (other.model, other.cards) == (row.model, 1)), None)
    value = getattr(row, by)
    if not base or not value:
        return None
    return base / value if by == "time_to_train_s" else value / base


def _of_run(path: str, target: Decimal | None) -> Row:
    run = runs.read(path)
    begin = run.begin
    log = parse(run.log(target))
    name = f"{begin['model']} ({begin['framework']}, {begin['compute']})"
    return _row(name, run.cards, log, target, begin["train_samples"], begin["warmup_epochs"], path)


def _of_tree(path: str, target: Decimal | None) -> list[Row]:
    root = Path(path)
    if not root.is_dir():
        raise UserError(f"{path}: there is no such folder")
    found = []
    is_demo = (root / DEMO_FILE).is_file()
    systems = list(submitted.system_folders(root))
    for model in (submitted.read_model(folder) for system in systems for folder in submitted.folders(system)):
        name = model.path.name if len(systems) == 1 else model.path.relative_to(root).as_posix()
        own = target or (model.listed.target if model.listed and not is_demo else None)
        for entry in model.logs:
            source = entry.path.relative_to(root).as_posix()
            tail = TAIL.sub("", entry.path.stem)  # of others' names: GPUx8_AMP.log is another model than GPUx8_FP32.log
            label = f"{name} ({tail})" if tail else name
            found.append(_row(label, entry.cards, entry.log, own, model.samples, model.warmup or 0, source))
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
