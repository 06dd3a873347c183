"""The tree of a submission as it is read: its folders, and what a model's folder holds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zoo.bench.airank_log.grammar import Log, parse
from zoo.bench.submission import rules
from zoo.bench.submission.rules import Listed
from zoo.data.errors import UserError

MAX_TEXT, MAX_LOG = 4 << 20, 256 << 20  # bytes that are read of a file
LOG_NAME = re.compile(r"gpux(\d{1,5})(?!\d).*\.log", re.IGNORECASE)
SAMPLES = re.compile(r"training samples\W{1,3}(\d{1,3}(?:,\d{3}){1,3}|\d{1,12})(?![,.]?\d)", re.IGNORECASE)
WARMUP = re.compile(r"avg_ips leaves out warm-?up epochs\W{1,3}(\d{1,6})(?!\d)", re.IGNORECASE)  # of readme.py


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
        ignored: names of files that are no `.log`, but begin like one.
    """

    path: Path
    listed: Listed | None
    logs: list[ModelLog]
    samples: int | None
    warmup: int | None
    checksums: list[str]
    others: list[str]
    ignored: list[str]


def system_folders(root: Path) -> Iterator[Path]:
    """Yield the folders submitter/system of a tree."""
    for submitter in folders(root):
        yield from folders(submitter)


def folders(path: Path) -> list[Path]:
    """Return the folders in a folder, without hidden ones. Raises UserError if it cannot be read."""
    return [entry for entry in _entries(path) if entry.is_dir() and not entry.name.startswith(".")]


def read_model(path: Path) -> Model:
    """Read the folder of a model."""
    notes = [file for file in _files(path / "data") if file.stat().st_size <= MAX_TEXT]  # the data itself is no note
    note = "\n".join(map(read_text, notes))
    samples, warmup = SAMPLES.search(note), WARMUP.search(read_text(path / "code" / rules.README))
    logs, others, ignored = [], [], []
    for file in _files(path / "log"):
        match = LOG_NAME.fullmatch(file.name)
        if not match and file.suffix.lower() == ".log":
            others.append(file.name)
        elif not match and file.name.lower().startswith("gpux"):
            ignored.append(file.name)
        if match:
            logs.append(ModelLog(file, int(match[1]), parse(read_text(file, MAX_LOG).splitlines())))
    return Model(
        path,
        rules.find(path.name),
        sorted(logs, key=lambda log: (log.cards, log.path.name)),
        int(samples[1].replace(",", "")) if samples else None,
        int(warmup[1]) if warmup else None,
        [found.lower() for found in rules.CHECKSUM.findall(note)],
        others,
        ignored,
    )


def _files(folder: Path) -> list[Path]:
    return [entry for entry in _entries(folder) if entry.is_file()] if folder.is_dir() else []


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror})") from None


def read_text(path: Path, limit: int = MAX_TEXT) -> str:
    """Return the text of a file, its first `limit` bytes; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8-sig", errors="replace")
    except OSError:
        return ""
