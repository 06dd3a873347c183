"""Check of a submission's tree, of this project or any other, from its files alone."""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from data.errors import UserError
from tools.airank_log.grammar import Log, parse
from tools.airank_log.rules import deviations, speed_bounds
from tools.airank_log.values import reached
from tools.submission import rules, sections, system
from tools.submission.rules import Listed
from tools.submission.tree import DEMO_FILE

MAX_TEXT, MAX_LOG = 4 << 20, 256 << 20  # bytes that are read of a file
MAX_WARMUPS = 1000  # ends of a warm-up that are tried where a submission does not name its own
LOG_NAME = re.compile(r"gpux(\d{1,5})(?!\d).*\.log", re.IGNORECASE)
SAMPLES = re.compile(r"training samples\W{1,3}(\d{1,12})(?!\d)", re.IGNORECASE)
WARMUP = re.compile(r"warm-?up epochs\W{1,3}(\d{1,6})(?!\d)", re.IGNORECASE)


class Result(NamedTuple):
    """What a check found.

    Attributes:
        problems: what the rules refuse, each with its file.
        notes: what a reader should know.
        logs: number of logs that were read.
    """

    problems: list[str]
    notes: list[str]
    logs: int


class ModelLog(NamedTuple):
    """A log of a model's folder.

    Attributes:
        path: of the file.
        cards: number in its name.
        log: its events.
    """

    path: Path
    cards: int
    log: Log


class Model(NamedTuple):
    """The folder of a model.

    Attributes:
        path: of the folder.
        listed: the model of AI-Rank's list that its name begins with.
        logs: by number of cards.
        samples: training samples per epoch as the data note says, None where it does not.
        warmup: epochs that avg_ips leaves out as code/README.md says, None where it does not.
        checksums: of the data, in the data note.
        others: names of files `.log` that name no number of cards.
    """

    path: Path
    listed: Listed | None
    logs: list[ModelLog]
    samples: int | None
    warmup: int | None
    checksums: list[str]
    others: list[str]


def check(tree: str) -> Result:
    """Check a tree.

    Raises:
        UserError: there is no such folder.
    """
    root = Path(tree)
    if not root.is_dir():
        raise UserError(f"{tree}: there is no such folder; name the one that holds the submitter's")
    is_demo = (root / DEMO_FILE).is_file()
    problems, notes, logs = [], [], 0
    if is_demo:
        notes.append(f"a demo, not a submission ({DEMO_FILE} says why): targets and data are not checked")
    systems = list(system_folders(root))
    if not systems:
        problems.append(f"{tree}: no folder submitter/system in it")
    for folder in systems:
        problems += [f"{_short(root, folder)}: {text}" for text in _system(folder)]
        notes += [f"{_short(root, folder)}: {text}" for text in _extra_fields(folder)]
        models = [read_model(path) for path in folders(folder)]
        if not models:
            problems.append(f"{_short(root, folder)}: no folder of a model in it")
        for model in models:
            logs += len(model.logs)
            problems += [f"{_short(root, model.path)}/{text}" for text in _model(model, is_demo)]
            cards = {log.cards for log in model.logs}
            absent = [rules.log_name(count) for count in rules.CARDS if count not in cards]
            if absent and model.logs:
                notes.append(f"{_short(root, model.path)}: without {', '.join(absent)}, which the rules wish for")
    return Result(problems, notes, logs)


def system_folders(root: Path) -> Iterator[Path]:
    """Yield the folders submitter/system of a tree."""
    for submitter in folders(root):
        yield from folders(submitter)


def folders(path: Path) -> list[Path]:
    """Return the folders in a folder, without hidden ones. Raises UserError if it cannot be read."""
    return [entry for entry in _entries(path) if entry.is_dir() and not entry.name.startswith(".")]


def read_model(path: Path) -> Model:
    """Read the folder of a model."""
    note = "\n".join(_text(file) for file in _files(path / "data"))
    samples, warmup = SAMPLES.search(note), WARMUP.search(_text(path / "code" / rules.README))
    logs, others = [], []
    for file in _files(path / "log"):
        match = LOG_NAME.fullmatch(file.name)
        if not match and file.suffix.lower() == ".log":
            others.append(file.name)
        if match:
            logs.append(ModelLog(file, int(match[1]), parse(_text(file, MAX_LOG).splitlines())))
    return Model(
        path,
        rules.find(path.name),
        sorted(logs, key=lambda log: (log.cards, log.path.name)),
        int(samples[1]) if samples else None,
        int(warmup[1]) if warmup else None,
        [found.lower() for found in rules.CHECKSUM.findall(note)],
        others,
    )


def _system(folder: Path) -> list[str]:
    """List what is wrong with the folder of a system, but for its models."""
    lines = []
    if folder.name.lower() not in rules.SYSTEMS:
        lines.append(f"the folder of a system is named {' or '.join(rules.SYSTEMS)}, not {folder.name}")
    path = folder / rules.SYSTEM_FILE
    if not path.is_file():
        return [*lines, f"{rules.SYSTEM_FILE} is missing"]
    return lines + [f"{rules.SYSTEM_FILE}: {text}" for text in system.problems(_text(path))]


def _extra_fields(folder: Path) -> list[str]:
    text = _text(folder / rules.SYSTEM_FILE)
    if any(problem.startswith("is not JSON") for problem in system.problems(text)):
        return []
    names = system.extra_fields(text)
    return [f"{rules.SYSTEM_FILE} has fields that the rules do not name: {', '.join(names)}"] if names else []


def _model(model: Model, is_demo: bool) -> list[str]:
    """List what is wrong with the folder of a model; every line begins with a path in it."""
    lines = [f"{name}: the folder is missing" for name in rules.FOLDERS if not (model.path / name).is_dir()]
    if model.listed is None and not is_demo:
        lines.append(f"code: AI-Rank lists no model of the name {model.path.name}")
    path = model.path / "code" / rules.README
    scales = [log.cards for log in model.logs]
    if not path.is_file():
        lines.append(f"code/{rules.README}: is missing")
    else:
        lines += [f"code/{rules.README}: {text}" for text in sections.problems(_text(path), scales)]
    if (model.path / "data").is_dir() and not model.checksums:
        lines.append("data: no note with the checksum of the data")
    if (model.path / "log").is_dir() and not model.logs:
        lines.append(f"log: none of {', '.join(map(rules.log_name, rules.CARDS))}")
    lines += [f"log/{name}: not named GPUx and a number of cards, such as {rules.log_name(8)}" for name in model.others]
    for log in model.logs:
        name = f"log/{log.path.name}"
        lines += [f"{name}: {text}" for text in [*_name(log), *_log(model, log, is_demo)]]
    return lines


def _name(log: ModelLog) -> list[str]:
    if log.cards not in rules.CARDS:
        return [f"the rules know logs of {', '.join(map(str, rules.CARDS))} cards"]
    expected = rules.log_name(log.cards)
    return [] if log.path.name == expected else [f"must be named {expected}"]


def _log(model: Model, entry: ModelLog, is_demo: bool) -> list[str]:
    """List what is wrong with a log."""
    log, target = entry.log, None if is_demo or not model.listed else model.listed.target
    lines = deviations(log, target)
    if log.kind != "training":
        return lines
    if target is not None and reached(log, target) is None:
        lines.append(f"no evaluation reaches AI-Rank's target {target}")
    if log.first("target_quality_time") is None and not is_demo:
        lines.append("no target_quality_time")
    load = log.first("load_data")
    signature = (load.text or "").lower() if load else ""
    if signature and model.checksums and signature not in model.checksums:
        lines.append(f"the checksum {signature} is not that of the data note")
    return lines + _speed(model, log, is_demo)


def _speed(model: Model, log: Log, is_demo: bool) -> list[str]:
    """List why avg_ips is not what the counters give, for any warm-up where the submission does not name its own."""
    declared, limits = log.first("avg_ips"), model.listed.train_samples if model.listed else None
    samples = (model.samples, model.samples) if model.samples is not None else limits
    if declared is None or declared.value is None or samples is None:
        return []
    lines = []
    if limits and not is_demo and not limits[0] <= samples[0] <= limits[1]:
        lines.append(f"{samples[0]} training samples in the data note; the data of the rules has {limits[0]}")
    bounds = [speed_bounds(log, *samples, warmup) for warmup in _warmups(model, log)]
    allowed = [pair for pair in bounds if pair]
    if not allowed:
        return [*lines, "avg_ips cannot be recomputed from the epoch counters"]
    if not any(low <= declared.value <= high for low, high in allowed):
        low, high = allowed[0]
        lines.append(f"avg_ips is {declared.value}, by time stamps and counters {low:.2f} to {high:.2f}")
    return lines


def _warmups(model: Model, log: Log) -> list[int]:
    if model.warmup is not None:
        return [model.warmup]
    counts = {
        int(epochs) for event in log.evals if (epochs := log.epochs(event)) is not None and epochs < Decimal(10**6)
    }
    return [0, *sorted(counts - {0})[:MAX_WARMUPS]]


def _files(folder: Path) -> list[Path]:
    return [entry for entry in _entries(folder) if entry.is_file()] if folder.is_dir() else []


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror})") from None


def _text(path: Path, limit: int = MAX_TEXT) -> str:
    """Return the text of a file, its first `limit` bytes; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode(errors="replace")
    except OSError:
        return ""


def _short(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
