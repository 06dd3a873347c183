"""The ledger of a cache: the bytes of all copies, in a small file that changes under a lock.

It also marks a folder as that of a cache.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import NamedTuple

from zoo.data.errors import UserError

NAME = "ledger"
MAGIC = b"vision-zoo cache"
LAYOUT = struct.Struct("<16s36s?qq64s")  # MAGIC and the fields of Ledger


class Ledger(NamedTuple):
    """What is known of the copies as a whole.

    Attributes:
        boot: of the machine, when the bytes were last counted.
        stopped: whether a process could not write and told the user.
        total: bytes of all copies.
        total_then: the same when the file `renaming` has become a copy.
        renaming: name of a file that is about to become a copy, empty if there is none.
    """

    boot: bytes = b""
    stopped: bool = False
    total: int = 0
    total_then: int = 0
    renaming: bytes = b""


def create(folder: str) -> None:
    """Mark an empty folder as that of a cache, unless it is one. Raises UserError if it holds something else."""
    path, draft = os.path.join(folder, NAME), os.path.join(folder, f"{NAME}.new")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not set(os.listdir(descriptor)) - {os.path.basename(draft)}:  # which a killed process leaves
            with open(draft, "wb") as file:
                file.write(LAYOUT.pack(MAGIC, *Ledger()))
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, path)
        content = _content(path) if os.path.isfile(path) else b""
        if len(content) != LAYOUT.size or not content.startswith(MAGIC):
            raise UserError(
                f"data.cache: {folder}: holds files that are not of a cache, and nothing is ever written over; "
                "name another folder"
            )
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: str) -> Iterator[FileIO]:
    """Open the ledger for this thread alone."""
    with FileIO(os.path.join(folder, NAME), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def read(file: FileIO) -> Ledger:
    """Read the ledger, which is locked."""
    return _parse(os.pread(file.fileno(), LAYOUT.size, 0))


def peek(folder: str) -> Ledger:
    """Read the ledger without a lock, which may be out of date at once."""
    return _parse(_content(os.path.join(folder, NAME)))


def write(file: FileIO, ledger: Ledger) -> None:
    """Write the ledger, in one call: a killed process leaves the whole or nothing."""
    os.pwrite(file.fileno(), LAYOUT.pack(MAGIC, *ledger), 0)


def _parse(content: bytes) -> Ledger:
    _, boot, stopped, total, total_then, renaming = LAYOUT.unpack(content)
    return Ledger(boot.rstrip(b"\0"), stopped, total, total_then, renaming.rstrip(b"\0"))


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
