"""Bundles: the records of runs in one file, from which anybody recomputes their numbers.

A bundle is a ZIP file without compression: bundle.json, then the files of the runs by name. The same files make the
same bytes on every machine, so that a bundle is whole if writing its contents again gives it byte for byte.
"""

import hashlib
import io
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from zoo.bench import consistency
from zoo.bench.report import runs
from zoo.bench.report.runs import ATTEMPTS, MATRIX
from zoo.data.audit import TABLE_NAME
from zoo.data.errors import UserError, parsing, printable
from zoo.data.formats import regular
from zoo.logs import airank, journal
from zoo.run.folder import RECIPE
from zoo.weights.files import sha256

MANIFEST = "bundle.json"
FORMAT = 1
KEYS = {"format", "license", "runs", "weights", "files"}  # of a manifest, beside its SHA-256
OF_RUN = (journal.FILE, RECIPE, airank.FILE, TABLE_NAME)  # files of a run that it has
OF_MATRIX = (MATRIX, ATTEMPTS, "results.json", "results.csv")
MODEL = "model.safetensors"  # of a checkpoint
MAX_BYTES, MAX_FILES = 1 << 30, 20_000  # of a bundle from elsewhere
OF_STEP, SHA256 = re.compile(r"step-[0-9]{1,18}"), re.compile("[0-9a-f]{64}")
DATE = (1980, 1, 1, 0, 0, 0)  # of every file in a ZIP file: the earliest there is


def pack(folder: str, license_name: str) -> bytes:
    """Return the bundle of a run or of a folder above runs, such as a matrix.

    Raises:
        UserError: there is no run, or the records contradict one another.
    """
    found = runs.find(folder)
    if not found:
        raise UserError(f"{folder}: no run in it, there is no {journal.FILE}")
    top = Path(os.path.realpath(folder))
    matrix = next((parent for parent in top.parents if (parent / MATRIX).is_file()), None)
    if matrix:
        raise UserError(f"{folder} is a part of {matrix}, whose records say when the machine was busy; publish that")
    paths = [Path(os.path.realpath(run)) / name for run in found for name in OF_RUN] + [
        top / name for name in OF_MATRIX
    ]
    files = {(top.name / path.relative_to(top)).as_posix(): path.read_bytes() for path in paths if path.is_file()}
    if unfit := [name for name in files if not _is_name(name)]:
        raise UserError(f"{printable(unfit[0])}: a bundle cannot have a file of this name; rename its folder")
    names = [Path(os.path.realpath(run)).relative_to(top.parent).as_posix() for run in found]
    with tempfile.TemporaryDirectory() as copy:  # a run may go on writing
        _write(files, copy)
        problems = consistency.contradictions(Path(copy), files)
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


def is_bundle(path: str) -> bool:
    """Return whether a file is a ZIP file, or called one."""
    with open(path, "rb") as file:
        return file.read(2) == b"PK" or path.lower().endswith(".zip")


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
            problem = problem or "something was added, or the order changed"
            raise UserError(f"{path} is not as it was written: {problem}")
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
        return [*consistency.contradictions(folder, manifest["files"]), *_misstated(manifest, folder)]


def _misstated(manifest: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield what a manifest states and the records do not."""
    for name, stated in manifest["runs"].items():
        found = regular.parse_json(_canonical(describe(folder / name)).decode())
        for key in sorted({*stated, *found}):
            if not consistency.same(stated.get(key), found.get(key)):
                yield f"{name}: {key} is stated as {stated.get(key)}, and by the records {found.get(key)}"
    recorded = {os.path.dirname(name) for name in manifest["files"] if os.path.basename(name) == journal.FILE}
    for name in sorted(recorded ^ {*manifest["runs"]}):
        yield f"{name}: not a run of both the records and the manifest"
    for name, digests in manifest["weights"].items():
        for step, digest in digests.items():
            if name not in recorded or not (OF_STEP.fullmatch(step) and SHA256.fullmatch(digest)):
                yield f"{name}: {step} has no SHA-256 of weights: {digest}"


def describe(folder: Path) -> dict[str, Any]:
    """Return what a run is and what it has measured, by its journal."""
    run = runs.read(str(folder))
    begin = journal.first(journal.history(str(folder)), "begin") or {}
    kept = ("recipe", "recipe_sha256", "model", "framework", "framework_version", "protocol", "metric", "git", "hosts")
    values = {key: value for key, value in run.values._asdict().items() if value is not None and key != "step_ms"}
    return {
        "state": f"{run.state} {run.remark}".strip(),
        **{key: begin.get(key) for key in (*kept, "data", "checksum", "device", "compute", "ranks", "seed")},
        "values": values,
    }


def _weights(run: Path) -> dict[str, str]:
    """Return the SHA-256 of the weights of a run's last and best checkpoint, by the update after which they are."""
    paths = {Path(os.path.realpath(run / "checkpoints" / name)) / MODEL for name in ("last", "best")}
    return {path.parent.name: sha256(str(path)) for path in sorted(paths) if path.is_file()}


def _difference(manifest: Mapping[str, Any], digest: str, stated: Any, contents: Mapping[str, bytes]) -> str:
    """Return how files and manifest differ; "" if they do not."""
    if digest != _sha256(_canonical(manifest)):
        return f"{MANIFEST} has changed"
    if manifest.keys() != KEYS:
        return f"{MANIFEST} has {', '.join(sorted(manifest))}, not {', '.join(sorted(KEYS))}"
    for name in sorted({*stated, *contents}):
        if not _is_name(name):
            return f"{name} is no name of a file in it"
        if name not in contents or name not in stated:
            return f"{name} is {'missing' if name in stated else 'not in the manifest'}"
        if stated[name] != [len(contents[name]), _sha256(contents[name])]:
            return f"{name} has changed"
    return ""


def _is_name(name: str) -> bool:
    """Return whether a path is one of the files that a bundle has, below its folder."""
    path = PurePosixPath(name)
    is_below = not path.is_absolute() and ".." not in path.parts and "\\" not in name and printable(name) == name
    return is_below and path.name in (*OF_RUN, *OF_MATRIX)


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
