"""Check of a submission's tree, of this project or any other, from its files alone."""

import json
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from zoo.bench.airank_log.grammar import Log
from zoo.bench.airank_log.rules import deviations, speed_bounds
from zoo.bench.airank_log.values import reached
from zoo.bench.submission import plausible, rules, sections, system
from zoo.bench.submission.submitted import Model, ModelLog, folders, read_model, read_text, system_folders
from zoo.bench.submission.tree import DEMO_FILE, DEMO_TITLE
from zoo.data.errors import UserError

MAX_WARMUPS = 100  # ends of a warm-up that are tried where a submission does not name its own


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


def check(tree: str) -> Result:
    """Check a tree.

    Raises:
        UserError: there is no such folder.
    """
    root = Path(tree)
    if not root.is_dir():
        raise UserError(f"{tree}: there is no such folder; name the one that holds the submitter's")
    is_demo = read_text(root / DEMO_FILE).startswith(DEMO_TITLE)
    problems, notes, logs = [], [], 0
    if is_demo:
        notes.append(f"a demo, not a submission ({DEMO_FILE} says why): targets and data are not checked")
    systems = list(system_folders(root))
    if not systems:
        problems.append(f"{tree}: no folder submitter/system in it")
    for folder in systems:
        models = [read_model(path) for path in folders(folder)]
        wrong, remarks = _system(folder, models, is_demo)
        problems += [f"{_short(root, folder)}: {text}" for text in wrong]
        notes += [f"{_short(root, folder)}: {text}" for text in remarks]
        if not models:
            problems.append(f"{_short(root, folder)}: no folder of a model in it")
        for model in models:
            logs += len(model.logs)
            problems += [f"{_short(root, model.path)}/{text}" for text in _model(model, is_demo)]
            notes += [f"{_short(root, model.path)}/{text}" for text in plausible.log_notes(model)]
            cards = {log.cards for log in model.logs}
            absent = [rules.log_name(count) for count in rules.CARDS if count not in cards]
            if absent and model.logs:
                notes.append(f"{_short(root, model.path)}: without {', '.join(absent)}, which the rules wish for")
    return Result(problems, notes, logs)


def _system(folder: Path, models: list[Model], is_demo: bool) -> tuple[list[str], list[str]]:
    """Return what is wrong with the folder of a system, but for its models, and what is to be noted."""
    lines: list[str] = []
    if folder.name.lower() not in rules.SYSTEMS:
        lines.append(f"the folder of a system is named {' or '.join(rules.SYSTEMS)}, not {folder.name}")
    path = folder / rules.SYSTEM_FILE
    if not path.is_file():
        return [*lines, f"{rules.SYSTEM_FILE} is missing"], []
    text = read_text(path)
    wrong = system.problems(text, is_demo)
    notes = []
    if not any(problem.startswith("is not") for problem in wrong):
        names = system.extra_fields(text)
        notes += [f"{rules.SYSTEM_FILE} has fields that the rules do not name: {', '.join(names)}"] if names else []
    if not wrong and not is_demo:
        fields = json.loads(text)
        wrong = plausible.system_problems(folder, fields, models)
        notes += [f"{rules.SYSTEM_FILE}: {line}" for line in plausible.system_notes(folder, fields)]
    return lines + [f"{rules.SYSTEM_FILE}: {line}" for line in wrong], notes


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
        lines += [f"code/{rules.README}: {text}" for text in sections.problems(read_text(path), scales)]
    if (model.path / "data").is_dir() and not model.checksums:
        lines.append("data: no note with the checksum of the data")
    if (model.path / "log").is_dir() and not model.logs:
        lines.append(f"log: none of {', '.join(map(rules.log_name, rules.CARDS))}")
    lines += [f"log/{name}: not named GPUx and a number of cards, such as {rules.log_name(8)}" for name in model.others]
    lines += plausible.log_problems(model)
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
        numbers = " to ".join(map(str, dict.fromkeys(limits)))
        lines.append(f"{samples[0]} training samples in the data note; the data of the rules has {numbers}")
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


def _short(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
