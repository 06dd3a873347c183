"""The secret of a start: what the ranks of a run share and other processes do not know (docs/reliability.md)."""

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from zoo.data.errors import UserError

VARIABLE = "ZOO_SECRET"  # set by tools/launch.py, anew for each start
FILE = ".zoo-secret"  # in the home folder, for starts without tools/launch.py
MAX_FILE_SIZE = 4096  # bytes


def derive_key(job: str, environ: Mapping[str, str]) -> bytes:
    """Return the key of a run, 32 bytes: of ZOO_SECRET, else of the file in the home folder, else of the job alone.

    Args:
        job: identifiers by which the launcher tells starts apart; they are part of every key.
        environ: environment of this process.

    Raises:
        UserError: Other users may read the file.
    """
    secret = environ.get(VARIABLE, "").encode() or _read_file(Path(environ.get("HOME") or "/nonexistent") / FILE)
    return hmac.digest(secret, job.encode(), hashlib.sha256)


def sign(key: bytes, nonce: bytes, message: bytes) -> bytes:
    """Return the code, 32 bytes, of a message to the side that chose `nonce`, so that none is valid twice."""
    return hmac.digest(key, nonce + message, hashlib.sha256)


def is_signed(key: bytes, nonce: bytes, message: bytes, code: bytes) -> bool:
    """Return whether `code` is that of `sign`."""
    return hmac.compare_digest(sign(key, nonce, message), code)


def _read_file(path: Path) -> bytes:
    """Return the content of the file, empty if there is none."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise UserError(f"{path}: has to be a file of yours that nobody else may read; `chmod 600 {path}`")
        with open(path, "rb") as file:
            return file.read(MAX_FILE_SIZE).strip()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
