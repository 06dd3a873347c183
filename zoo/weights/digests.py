"""SHA-256 of the files of a checkpoint, which its checkpoint.json records."""

import hashlib
import os

from zoo.data.errors import UserError
from zoo.data.formats import budgeted_json
from zoo.data.parsing import parsing

RECORD, KEY = "checkpoint.json", "sha256"  # KEY -> digests by the name of the file


class DamagedFile(UserError):
    """A file of a checkpoint is not what was written."""


def sha256(path: str) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(path: str, digest: str) -> None:
    """Compare the digest of a file with the one that the checkpoint in its folder records, if there is one.

    Raises:
        DamagedFile: they differ.
    """
    expected = _recorded(os.path.join(os.path.dirname(path), RECORD), os.path.basename(path))
    if expected not in (None, digest):
        raise DamagedFile(
            f"{path} is damaged: its SHA-256 is {digest[:12]}..., but {RECORD} beside it has {str(expected)[:12]}...; "
            "use another checkpoint, or copy this one again"
        )


def _recorded(path: str, name: str) -> str | None:
    try:
        with parsing(path):
            return str(budgeted_json.load(path)[KEY][name])
    except UserError:
        return None  # no checkpoint, or one that is too old to have digests
