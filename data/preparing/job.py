"""What a preparation does: its settings, and the folder that it writes to."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from zoo.data import durable
from zoo.data.errors import UserError
from zoo.data.packs import manifest

MARK, WORK, LOCK = "prepare.json", "work", "lock"
FORMAT = "vision-zoo prepared data set"
VERSION = 1
FORMS = {  # form -> media that it applies to, the first one being what is prepared without an option
    "files": ("video", "frames", "image", "pair", "face"),
    "pack": ("video", "frames", "image", "pair", "face"),
    "reencode": ("video",),
    "frames": ("video",),
    "resize": ("image",),
}


@dataclass(frozen=True)
class Job:
    """Settings that the result depends on.

    Attributes:
        root: Folder of the data set, absolute.
        form: `files` (checked only), `pack`, `reencode`, `frames` or `resize`.
        short_side: Of re-encoded frames and images, in pixels.
        full: Decode every frame of every video.
        lists: Settings of the data set as (name, value), such as ("suffix", ".mp4").
    """

    kind: str
    root: str
    form: str
    short_side: int
    crf: int
    gop: int
    quality: int
    full: bool
    lists: tuple[tuple[str, str | int], ...] = ()


def default_folder(root: str) -> str:
    """Return where a data set is prepared to without --out: beside it."""
    return f"{os.path.abspath(root)}-prepared"


def claim(out: str, job: Job) -> None:
    """Mark a new or empty folder as this job's, or check that it is already marked so.

    Raises:
        UserError: The folder holds something else, or cannot be written.
    """
    root, folder = os.path.realpath(job.root), os.path.realpath(out)
    if os.path.commonpath([root, folder]) == root:
        raise UserError(f"--out {out}: lies inside the data set, which is never written to; choose another folder")
    path = os.path.join(out, MARK)
    try:
        os.makedirs(out, exist_ok=True)
        if set(os.listdir(out)) <= {f"{MARK}.tmp"}:  # left by a kill at the first moment
            write_file(path, json.dumps({"format": FORMAT, "version": VERSION, **asdict(job)}, indent=1) + "\n")
        if not manifest.is_prepared(out):
            os.makedirs(os.path.join(out, WORK), exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{error.filename or out}: cannot be written ({error.strerror}); choose another --out"
        ) from None
    stored = _read_mark(path)
    if stored is None:
        raise UserError(
            f"--out {out}: this folder holds other files, and nothing is ever written over; choose a new folder"
        )
    current = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **asdict(job)}))
    different = [key for key in current if stored.get(key) != current[key]]
    if different:
        lines = "; ".join(f"{key}: {stored.get(key)!r} there, {current[key]!r} now" for key in different)
        raise UserError(f"--out {out}: another preparation was begun there ({lines}); choose a new folder")


@contextmanager
def lock(out: str) -> Iterator[None]:
    """Keep other programs from working in the same folder. Raises UserError if one does."""
    with open(os.path.join(out, WORK, LOCK), "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"--out {out}: another process is preparing this folder; wait for it") from None
        yield


def write_file(path: str, content: str | bytes) -> None:
    """Write a file completely or not at all, even at a power failure."""
    durable.replace(
        path, content if isinstance(content, bytes) else content.encode(errors="surrogateescape"), f"{path}.tmp"
    )


def _read_mark(path: str) -> dict | None:
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
    except (OSError, ValueError):
        return None
    return stored if isinstance(stored, dict) and stored.get("format") == FORMAT else None
