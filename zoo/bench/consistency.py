"""What in the records of runs, and in the results of a matrix, contradicts itself."""

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.bench.matrix import results
from zoo.bench.report import runs
from zoo.bench.report.runs import ATTEMPTS, COMPLETE
from zoo.config import loader
from zoo.data.errors import parsing
from zoo.data.formats import regular
from zoo.logs import airank, journal
from zoo.logs.journal import Event
from zoo.run.description import recipe_digest
from zoo.run.folder import RECIPE
from zoo.table import csv_text

TOLERANCE = 1e-9  # relative, of statistics that another version of numpy computes
TIMING = 0.01  # relative, by which times of updates may be longer than the time of all
OF_RECIPE = {  # field of the event `begin` -> key of the recipe that it repeats
    "framework": "framework",
    "seed": "seed",
    "target": "target",
    "data": "data.name",
    "precision": "train.precision",
    "batch": "train.batch",
    "accumulate": "train.accumulate",
}
OF_CASE = {"framework": "framework", "precision": "precision", "batch": "batch", "processes": "ranks", "model": "model"}


def contradictions(folder: Path, names: Iterable[str]) -> list[str]:
    """List what in the records of runs contradicts itself. names: of the files, below the folder."""
    problems = []
    for name in names:
        path, where = folder / name, os.path.dirname(name)
        with parsing(f"{name} is damaged"):
            if path.name == journal.FILE:
                problems += [f"{where}: {problem}" for problem in _of_run(path.parent)]
            elif path.name == "results.json":
                problems += [f"{name}: {problem}" for problem in _of_matrix(path)]
    return problems


def _of_run(folder: Path) -> Iterator[str]:
    """Yield what in the records of a run contradicts itself."""
    events = journal.history(str(folder))
    begin = journal.first(events, "begin")
    if begin is None:
        yield f"{journal.FILE}: the run has not begun"
        return
    if not all(map(journal.is_number, _numbers(events))):
        yield f"{journal.FILE}: a number that nothing can measure"
        return
    times = [event["time"] for event in events]
    if times != sorted(times):
        yield f"{journal.FILE}: time goes back"
    if not (folder / RECIPE).is_file():
        yield f"{RECIPE} is missing"
        return
    recipe = loader.read(str(folder / RECIPE))
    if recipe_digest(recipe, begin["weights"]) != begin["recipe_sha256"]:
        yield f"{RECIPE}: not the recipe that the run began with"
    for field, key in OF_RECIPE.items():
        is_divided = field in ("batch", "accumulate") and recipe["train.global_batch"].value is not None
        if not is_divided and begin.get(field) != recipe[key].value:
            yield f"{journal.FILE}: {field} is {begin.get(field)}, and {key} of the recipe {recipe[key].value}"
    log, targets = folder / airank.FILE, {begin.get("target"), recipe["target"].value}
    texts = ["".join(f"{line}\n" for line in airank.lines(events, each, begin["warmup_epochs"])) for each in targets]
    if log.is_file() and log.read_text(encoding="utf-8") not in texts:
        yield f"{airank.FILE}: not what follows from {journal.FILE}"
    yield from _of_events(events, begin)


def _of_events(events: list[Event], begin: Event) -> Iterator[str]:
    """Yield what contradicts itself within the events of a run."""
    if begin["ranks"] * begin["accumulate"] * begin["batch"] != begin["global_batch"]:
        yield f"{journal.FILE}: the global batch is not the samples of all ranks and micro-batches"
    goes_on = any(event["event"] in ("resume", "data_changed") for event in events)  # perhaps with other batches
    for event in events:
        where = f"{journal.FILE}: {event['event']} at step {event.get('step')}"
        if event["event"] == "eval":
            yield from (f"{where}: {problem}" for problem in _of_evaluation(event, begin))
        if event["event"] == "speed":
            yield from (f"{where}: {problem}" for problem in _of_speed(event, begin))
        if event["event"] == "train" and not goes_on:
            samples = event["step"] * begin["global_batch"]
            # Epochs are rounded to whole ones within a batch.
            if abs(event["epoch"] * begin["train_samples"] - samples) >= begin["global_batch"]:
                yield f"{where}: epoch {event['epoch']}, after {samples} samples of {begin['train_samples']} each"


def _of_evaluation(event: Event, begin: Event) -> Iterator[str]:
    metrics = event.get("ema") or event  # those of the moving average, where there is one
    if not same(event["accuracy"], metrics.get(begin["metric"], event["accuracy"])):
        yield f"the accuracy is not the {begin['metric']}"
    if event["accuracy"] < 0 or event["accuracy"] > 1:  # neither is true of NaN
        yield f"the accuracy {event['accuracy']} is no fraction"
    known = [value for value in (metrics.get("iou") or {}).values() if value is not None]
    if known and not same(metrics["miou"], statistics.fmean(known)):
        yield "the miou is not the mean of the classes"


def _of_speed(event: Event, begin: Event) -> Iterator[str]:
    if event["samples"] != event["count"] * begin["global_batch"]:
        yield f"samples are not {event['count']} global batches"
    if not same(event["samples_per_s"], event["samples"] / event["seconds"]):
        yield "the throughput is not samples by seconds"
    if sum(event["step_ms"]["all"]) / 1000 > (1 + TIMING) * event["seconds"]:  # ranks may wait for the last one
        yield "the updates take longer than all seconds"


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield value


def _of_matrix(path: Path) -> Iterator[str]:
    """Yield what in the results of a matrix does not follow from its runs."""
    content = regular.load_json(str(path))
    recorded = {Path(run).relative_to(path.parent).parts: run for run in runs.find(str(path.parent))}
    busy = sum(bool(entry.get("busy")) for entry in runs.attempts(path.parent) if entry.get("kind") == "run")
    if content["runs_on_a_busy_machine"] != busy:
        yield f"runs_on_a_busy_machine is {content['runs_on_a_busy_machine']}, and by {ATTEMPTS} {busy}"
    listed = set()
    for case in content["cases"]:
        found: dict[int, runs.Run] = {}
        for row in case["runs"]:
            parts = Path(row["folder"]).parts
            own = next((own for own in recorded if parts[-len(own) :] == own), None)
            if own is None:
                yield f"there is no run {row['folder']}"
                continue
            listed.add(own)
            run = found[row["run"]] = runs.read(recorded[own])
            yield from (f"{problem} {'/'.join(own)}" for problem in _of_row(row, case, run))
        values = {**results.Outcome(found).values, "count": len(found)}
        for name, value in values.items():
            if not same(case[name], value):
                yield f"{name} of {case['recipe']} {case['framework']} is {case[name]}, and by its runs {value}"
    for own in sorted(recorded.keys() - listed):
        if runs.read(recorded[own]).state == COMPLETE:
            yield f"{'/'.join(own)} is complete, and no run of a case"
    rows = [{key: value for key, value in case.items() if key != "runs"} for case in content["cases"]]
    table = path.with_suffix(".csv")
    if not rows or not table.is_file() or table.read_text() != csv_text(rows, list(rows[0])):
        yield f"{table.name} is not the table of the cases"


def _of_row(row: Mapping[str, Any], case: Mapping[str, Any], run: runs.Run) -> Iterator[str]:
    """Yield what results state of a run, and its journal does not."""
    begin = journal.first(journal.history(run.path), "begin") or {}
    for name in results.RUN_VALUES:
        if not same(row[name], getattr(run.values, name)):
            yield f"{name} is {row[name]}, and by the journal another, of"
    for name, field in OF_CASE.items():
        if case[name] != begin.get(field):
            yield f"{name} is {case[name]}, and by the journal {begin.get(field)}, of"


def same(a: Any, b: Any) -> bool:
    """Return whether two values of JSON are the same, numbers but for the rounding of statistics."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if journal.is_number(a) and journal.is_number(b):
        return math.isclose(a, b, rel_tol=TOLERANCE) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)
