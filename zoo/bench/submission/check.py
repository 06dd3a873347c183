"""Check of the tree of a submission, from its files alone, and the table that AI-Rank's reviewers make of it."""

import filecmp
import math
import os
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.airank_log import Log, deviations, measure, parse
from zoo.bench.report.results import too_fast
from zoo.bench.submission import rules, runs
from zoo.bench.submission.tree import DEMO_FILE
from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular
from zoo.logs import journal
from zoo.table import table

SAMPLES = re.compile(r"training samples: (\d{1,12})$", re.MULTILINE)  # of readme.data_note
WARMUP = re.compile(r"avg_ips leaves out warm-up epochs: (\d{1,6})$", re.MULTILINE)  # of readme.readme
SPEED_UPS = ("speedup", "speedup_by_throughput")
HEAD = ("model", "cards", "Time2train(sec)", "throughput(samples/sec)", "accuracy(%)", "speed-up")


class Model(NamedTuple):
    path: Path  # the folder
    logs: dict[int, Log]  # number of cards -> log
    samples: int | None  # training samples per epoch, by the data note
    warmup: int  # epochs that avg_ips leaves out, by code/README.md
    checksum: str | None  # checksum of the data, by the data note

    @property
    def target(self) -> Decimal | None:
        """AI-Rank's target, None for a model that it does not list."""
        listed = rules.find(self.path.name)
        return listed.target if listed else None


def check(tree: str) -> list[str]:
    """List the problems of a tree; a demo is one."""
    root = _root(tree)
    lines = [f"{DEMO_FILE}: marked as a demo, which cannot be submitted"] if (root / DEMO_FILE).is_file() else []
    files = sorted(root.glob(f"*/*/{rules.SYSTEM_FILE}"))
    if not files:
        return [*lines, f"{tree}: no submitter/system/{rules.SYSTEM_FILE} in it"]
    for file in files:
        with parsing(f"{file}: no JSON"):
            fields = regular.load_json(str(file))
        found = rules.problems(fields) if isinstance(fields, dict) else ["no object"]
        models = [read_model(folder) for folder in sorted(file.parent.iterdir()) if folder.is_dir()]
        cards = max((count for model in models for count in model.logs), default=0)
        if (present := _accelerators(fields, cards)) < cards:
            found.append(f"{present} accelerators, but a log of {cards} cards")
        lines += [f"{file.relative_to(root)}: {text}" for text in found]
        lines += [] if models else [f"{file.parent.relative_to(root)}: no folder of a model in it"]
        for model in models:
            lines += [f"{model.path.relative_to(root)}/{text}" for text in _problems(model)]
    return lines


def _accelerators(fields: Any, unknown: int) -> int:
    """Return the number of accelerators of all nodes; `unknown` where it is missing."""
    names = ("accelerators_per_node", "number_of_nodes")
    counts = [fields.get(name) if isinstance(fields, dict) else None for name in names]
    known = [count for count in counts if isinstance(count, int)]
    return math.prod(known) if len(known) == len(names) else unknown


def read_model(path: Path) -> Model:
    """Read the folder of a model; what is not there is None."""
    note, page = _text(path / "data" / rules.README), _text(path / "code" / rules.README)
    samples, warmup, checksum = SAMPLES.search(note), WARMUP.search(page), rules.CHECKSUM.search(note)
    files = {rules.cards_of(file.name): file for file in (path / "log").glob("*.log")}
    return Model(
        path,
        {cards: parse(_text(file).splitlines()) for cards, file in sorted(files.items()) if cards},
        int(samples[1]) if samples else None,
        int(warmup[1]) if warmup else 0,
        checksum[0].lower() if checksum else None,
    )


def _problems(model: Model) -> list[str]:
    """List the problems of the folder of a model; every line begins with a path in it."""
    lines = [f"{name}: the folder is missing" for name in rules.FOLDERS if not (model.path / name).is_dir()]
    target = model.target
    if target is None:
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
        if log.kind == "training" and log.first("target_quality_time") is None:
            best = measure(log, target, model.samples, model.warmup)["best"]
            found.append(f"no target_quality_time: best accuracy {best}, AI-Rank's target is {target or 'unknown'}")
        found += [] if cards in rules.CARDS else [rules.OTHER_CARDS]
        load = log.first("load_data")
        if load and load.text and model.checksum and load.text.lower() != model.checksum:
            found.append(f"the checksum {load.text} is not that of the data note")
        lines += [f"log/{names[cards]}: {text}" for text in found]
    return lines


def rows(paths: Sequence[str], target: Decimal | None) -> list[dict[str, Any]]:
    """Return the reviewers' rows of trees and runs, sorted by model and cards; None is what is not known.

    Args:
        target: accuracy that ends Time2train; None for AI-Rank's, or in a demo for the run's own.
    """
    found: list[dict[str, Any]] = []
    for path in paths:
        is_run = os.path.isfile(os.path.join(path, journal.FILE))
        more = [_row_of_run(path, target)] if is_run else _rows_of_tree(path, target)
        if not more:
            raise UserError(f"{path}: no run, and no log of a submission in it")
        found += more
    for row in found:
        base = next((other for other in found if (other["model"], other["cards"]) == (row["model"], 1)), {})
        times, speeds = ([base.get(key), row[key]] for key in ("time_to_train_s", "samples_per_s"))
        row["speedup"] = times[0] / times[1] if all(times) else None
        row["speedup_by_throughput"] = speeds[1] / speeds[0] if all(speeds) else None
        doubts = [too_fast(key, row[key], row["cards"]) for key in SPEED_UPS]
        row |= {key: None for key, doubt in zip(SPEED_UPS, doubts) if doubt}
        row["remark"] = "; ".join(filter(None, doubts)) or None
    return sorted(found, key=lambda row: (row["model"], row["cards"]))


def summary(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the reviewers' table in Markdown, and below it why a speed-up is left out."""
    keys = ("time_to_train_s", "samples_per_s", "accuracy_percent", "speedup")
    cells = [
        (row["model"], row["cards"], *(None if row[key] is None else f"{row[key]:.2f}" for key in keys))
        for row in found
    ]
    remarks = [f"{row['model']}, {row['cards']} cards: {row['remark']}" for row in found if row["remark"]]
    return [*table(cells, HEAD, markdown=True), *remarks]


def _row_of_run(path: str, target: Decimal | None) -> dict[str, Any]:
    run = runs.read(path)
    begin, log = run.begin, parse(run.log(target))
    name = f"{begin['model']} ({begin['framework']}, {begin['compute']})"
    return _row(name, run.cards, path, log, target, begin["train_samples"], begin["warmup_epochs"])


def _rows_of_tree(path: str, target: Decimal | None) -> list[dict[str, Any]]:
    root = _root(path)
    is_demo = (root / DEMO_FILE).is_file()
    found = []
    for model in map(read_model, sorted(root.glob("*/*/*"))):
        own, source = target or (None if is_demo else model.target), model.path.relative_to(root).as_posix()
        for cards, log in model.logs.items():
            found.append(_row(model.path.name, cards, source, log, own, model.samples, model.warmup))
    return found


def _row(
    model: str, cards: int, source: str, log: Log, target: Decimal | None, samples: int | None, warmup: int
) -> dict[str, Any]:
    values = measure(log, target, samples, warmup)
    best = values["best"]
    return {
        "model": model,
        "cards": cards,
        "time_to_train_s": values["target_quality_time" if target is None else "time_to_target"],
        "samples_per_s": values["samples_per_s"] or values["avg_ips"],
        "accuracy_percent": best * 100 if best is not None and values["accuracy_unit"] == "fraction" else best,
        "source": source,
    }


def _root(tree: str) -> Path:
    if not os.path.isdir(tree):
        raise UserError(f"{tree}: there is no such folder; name the one that holds the submitter's")
    return Path(tree)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
