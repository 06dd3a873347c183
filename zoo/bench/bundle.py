"""Bundles: the records of runs in one file, from which anybody recomputes their numbers.

A bundle is a ZIP file without compression: bundle.json, then the files of the runs by name. The same files make the
same bytes on every machine, so that a bundle is whole if writing its contents again gives it byte for byte.
"""

import hashlib
import io
import math
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from zoo.bench.matrix import results
from zoo.bench.report import runs
from zoo.bench.report.runs import ATTEMPTS, MATRIX
from zoo.config import loader
from zoo.data.audit import TABLE_NAME
from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular
from zoo.logs import airank, journal
from zoo.logs.journal import Event
from zoo.run.description import recipe_digest
from zoo.run.folder import RECIPE

MANIFEST = "bundle.json"
FORMAT = 1
OF_RUN = (journal.FILE, RECIPE, airank.FILE, TABLE_NAME)  # files of a run that it has
OF_MATRIX = (MATRIX, ATTEMPTS, "results.json", "results.csv")
MODEL = "model.safetensors"  # of a checkpoint
MAX_BYTES, MAX_FILES = 1 << 30, 20_000  # of a bundle from elsewhere
DATE = (1980, 1, 1, 0, 0, 0)  # of every file in a ZIP file: the earliest there is
TOLERANCE = 1e-9  # relative, of statistics that another version of numpy computes


def pack(folder: str, license_name: str) -> bytes:
    """Return the bundle of a run or of a folder above runs, such as a matrix.

    Raises:
        UserError: there is no run, or the records contradict one another.
    """
    found = runs.find(folder)
    if not found:
        raise UserError(f"{folder}: no run in it, there is no {journal.FILE}")
    top = Path(os.path.realpath(folder))
    paths = [Path(os.path.realpath(run)) / name for run in found for name in OF_RUN] + [
        top / name for name in OF_MATRIX
    ]
    files = {(top.name / path.relative_to(top)).as_posix(): path.read_bytes() for path in paths if path.is_file()}
    names = [Path(os.path.realpath(run)).relative_to(top.parent).as_posix() for run in found]
    with tempfile.TemporaryDirectory() as copy:  # a run may go on writing
        _write(files, copy)
        problems = contradictions(Path(copy), files)
        described = {name: describe(Path(copy, name)) for name in names}
    if problems:
        raise UserError(f"{folder} cannot be published:\n" + "".join(f"  - {line}\n" for line in problems).rstrip())
    manifest = {
        "format": FORMAT,
        "license": license_name,
        "runs": described,
        "weights": {name: digests for name in names if (digests := _weights(top.parent / name))},
        "files": {name: [len(content), _sha256(content)] for name, content in sorted(files.items())},
    }
    return _archive({**manifest, "sha256": _sha256(_canonical(manifest))}, files)


def unpack(path: str, folder: str) -> dict[str, Any]:
    """Write the files of a bundle to an empty folder and return its manifest.

    Raises:
        UserError: it is no bundle, or not as it was written.
    """
    with parsing(f"{path} is no bundle"):
        if os.path.getsize(path) > MAX_BYTES:
            raise UserError(f"{path}: {os.path.getsize(path)} bytes; a bundle has at most {MAX_BYTES}")
        packed = Path(path).read_bytes()
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_FILES or any(each.compress_type != zipfile.ZIP_STORED for each in entries):
                raise UserError(f"{path} is no bundle: too many files, or compressed ones")
            contents = {each.filename: archive.read(each) for each in entries}
        manifest = regular.parse_json(contents.pop(MANIFEST).decode())
        if manifest["format"] != FORMAT:
            raise UserError(f"{path}: a bundle of format {manifest['format']}; this version reads {FORMAT}")
        digest, stated = manifest.pop("sha256"), manifest["files"]
    problem = _difference(manifest, digest, stated, contents)
    if problem or _archive({**manifest, "sha256": digest}, contents) != packed:
        raise UserError(f"{path} is not as it was written: {problem or 'something was added, or the order changed'}")
    with parsing(f"{path} is no bundle"):
        _write(contents, folder)
    return manifest


def _write(files: Mapping[str, bytes], folder: str) -> None:
    for name, content in files.items():
        target = Path(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def verify(manifest: Mapping[str, Any], folder: Path) -> list[str]:
    """Recompute the numbers of a bundle that was unpacked to a folder; list what contradicts."""
    with parsing("the records are damaged"):
        return [*contradictions(folder, manifest["files"]), *_misstated(manifest, folder)]


def _misstated(manifest: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield what a manifest states and the records do not."""
    for name, stated in manifest["runs"].items():
        found = regular.parse_json(_canonical(describe(folder / name)).decode())
        for key in sorted({*stated, *found}):
            if not _same(stated.get(key), found.get(key)):
                yield f"{name}: {key} is stated as {stated.get(key)}, and by the records {found.get(key)}"
    recorded = {os.path.dirname(name) for name in manifest["files"] if os.path.basename(name) == journal.FILE}
    for name in sorted(recorded ^ {*manifest["runs"]}):
        yield f"{name}: not a run of both the records and the manifest"


def describe(folder: Path) -> dict[str, Any]:
    """Return what a run is and what it has measured, by its journal."""
    run = runs.read(str(folder))
    begin = runs.first(journal.history(str(folder)), "begin") or {}
    kept = ("recipe", "recipe_sha256", "model", "framework", "framework_version", "protocol", "metric", "git", "hosts")
    values = {key: value for key, value in run.values._asdict().items() if value is not None and key != "step_ms"}
    return {
        "state": f"{run.state} {run.remark}".strip(),
        **{key: begin.get(key) for key in (*kept, "data", "checksum", "device", "compute", "ranks", "seed")},
        "values": values,
    }


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
    begin = runs.first(events, "begin")
    if begin is None:
        yield f"{journal.FILE}: the run has not begun"
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
    log, targets = folder / airank.FILE, {begin.get("target"), recipe["target"].value}
    texts = ["".join(f"{line}\n" for line in airank.lines(events, each, begin["warmup_epochs"])) for each in targets]
    if log.is_file() and log.read_text(encoding="utf-8") not in texts:
        yield f"{airank.FILE}: not what follows from {journal.FILE}"
    yield from _of_events(events, begin)


def _of_events(events: list[Event], begin: Event) -> Iterator[str]:
    """Yield what contradicts itself within the events of a run."""
    goes_on = any(event["event"] in ("resume", "data_changed") for event in events)  # perhaps with other batches
    for event in events:
        where = f"{journal.FILE}: {event['event']} at step {event.get('step')}"
        if event["event"] == "eval" and not _same(event["accuracy"], _metric(event, begin)):
            yield f"{where}: the accuracy is not the {begin['metric']}"
        if event["event"] == "speed" and not _same(event["samples_per_s"], event["samples"] / event["seconds"]):
            yield f"{where}: the throughput is not samples by seconds"
        if event["event"] == "train" and not goes_on:
            samples = event["step"] * begin["global_batch"]
            # Epochs are rounded to whole ones within a batch.
            if abs(event["epoch"] * begin["train_samples"] - samples) >= begin["global_batch"]:
                yield f"{where}: epoch {event['epoch']}, after {samples} samples of {begin['train_samples']} each"


def _metric(event: Event, begin: Event) -> Any:
    """Return the main metric of an evaluation: of the moving average, where there is one."""
    return (event.get("ema") or event).get(begin["metric"], event["accuracy"])


def _of_matrix(path: Path) -> Iterator[str]:
    """Yield what in the results of a matrix does not follow from its runs."""
    cases = regular.load_json(str(path))["cases"]
    recorded = {Path(run).relative_to(path.parent).parts: run for run in runs.find(str(path.parent))}
    for case in cases:
        found: dict[int, runs.Run] = {}
        for row in case["runs"]:
            parts = Path(row["folder"]).parts
            folder = next((run for own, run in recorded.items() if parts[-len(own) :] == own), None)
            if folder is None:
                yield f"there is no run {row['folder']}"
                continue
            run = found[row["run"]] = runs.read(folder)
            for name in results.RUN_VALUES:
                if not _same(row[name], getattr(run.values, name)):
                    yield f"{name} of {'/'.join(parts[-1:])} is {row[name]}, and by its journal another"
        for name, value in results.Outcome(found).values.items():
            if not _same(case[name], value):
                yield f"{name} of {case['recipe']} {case['framework']} is {case[name]}, and by its runs {value}"


def _weights(run: Path) -> dict[str, str]:
    """Return the SHA-256 of the weights of a run's last and best checkpoint, by the update after which they are."""
    paths = {Path(os.path.realpath(run / "checkpoints" / name)) / MODEL for name in ("last", "best")}
    return {path.parent.name: file_sha256(path) for path in sorted(paths) if path.is_file()}


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _difference(manifest: Mapping[str, Any], digest: str, stated: Any, contents: Mapping[str, bytes]) -> str:
    """Return how files and manifest differ; "" if they do not."""
    if digest != _sha256(_canonical(manifest)):
        return f"{MANIFEST} has changed"
    for name in sorted({*stated, *contents}):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name:
            return f"{name} is no name of a file in it"
        if name not in contents or name not in stated:
            return f"{name} is {'missing' if name in stated else 'not in the manifest'}"
        if stated[name] != [len(contents[name]), _sha256(contents[name])]:
            return f"{name} has changed"
    return ""


def _archive(manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in ((MANIFEST, _canonical(manifest)), *sorted(files.items())):
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = 3  # as on Linux, wherever it is written
            archive.writestr(entry, content)
    return packed.getvalue()


def _canonical(values: Mapping[str, Any]) -> bytes:
    return (journal.json_text(values, indent=1) + "\n").encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _same(a: Any, b: Any) -> bool:
    """Return whether two values of JSON are the same, numbers but for the rounding of statistics."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if journal.is_number(a) and journal.is_number(b):
        return math.isclose(a, b, rel_tol=TOLERANCE) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)
