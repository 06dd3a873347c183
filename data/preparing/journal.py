"""Journal of a chunk: one line of JSON per finished sample, and the pack that grows with it.

The pack is synced before the lines that describe it. So whatever kills the process, the pack holds at least what the
journal says; what it holds beyond that is cut off when the work goes on.
"""

import fcntl
import json
import os
import time
from io import FileIO
from typing import Any

from zoo.data.errors import UserError

COMMIT_INTERVAL = 1.0  # seconds of work that may be lost
COMMIT_BYTES = 32 << 20  # of records kept in memory

Entry = dict[str, Any]


class Journal:
    """The journal of a chunk, opened for appending after the last complete entry.

    Attributes:
        count: Number of entries.
        end: Size of the pack in bytes.

    Args:
        path: The journal.
        pack: The pack that belongs to it, None if nothing is packed.
    """

    def __init__(self, path: str, pack: str | None):
        self.path, self.pack = path, pack
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by close())
        # A process of a killed run may still write its last entries.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._records = open(pack, "ab", buffering=0) if pack else None  # noqa: SIM115
        entries, size = _complete_entries(path, os.path.getsize(pack) if pack else None)
        self.count, self.end = len(entries), entries[-1].get("end", 0) if entries else 0
        self._file.truncate(size)
        if self._records:
            self._records.truncate(self.end)
        self._lines: list[bytes] = []
        self._pending: list[bytes] = []
        self._committed = time.monotonic()

    def append(self, entry: Entry, records: list[bytes]) -> None:
        """Add a sample and its records, whose offsets become `at` of the entry."""
        if self._records:
            offsets = []
            for record in records:
                offsets.append(self.end)
                self.end += len(record)
            entry = {**entry, **({"at": offsets} if offsets else {}), "end": self.end}
            self._pending += records
        self._lines.append(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        self.count += 1
        if time.monotonic() - self._committed > COMMIT_INTERVAL or sum(map(len, self._pending)) > COMMIT_BYTES:
            self.commit()

    def commit(self) -> None:
        """Make all entries durable. Raises UserError if the disk does not take them."""
        try:
            if self._records:
                self._write(self._records, self._pending)
            self._write(self._file, self._lines)
        except OSError as error:
            raise UserError(
                f"{self.pack or self.path}: cannot be written ({error.strerror}); make room, and run the same command "
                "again: it goes on from here"
            ) from None
        self._lines, self._pending, self._committed = [], [], time.monotonic()

    def close(self) -> None:
        self._file.close()
        if self._records:
            self._records.close()

    @staticmethod
    def _write(file: FileIO, parts: list[bytes]) -> None:
        content = memoryview(b"".join(parts))
        while content:
            content = content[file.write(content) :]
        if parts:
            os.fsync(file.fileno())


def read_entries(path: str) -> list[Entry]:
    """Read the journal of a finished chunk."""
    with open(path, "rb") as file:
        return [json.loads(line) for line in file]


def count_entries(path: str) -> int:
    """Return the number of lines of a journal, 0 if there is none."""
    try:
        with open(path, "rb") as file:
            return sum(line.endswith(b"\n") for line in file)
    except FileNotFoundError:
        return 0


def _complete_entries(path: str, pack_size: int | None) -> tuple[list[Entry], int]:
    """Return the entries that were written completely, and the size of the journal that ends with them."""
    entries: list[Entry] = []
    size = 0
    with open(path, "rb") as file:
        for line in file:
            try:
                entry = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                entry = None
            if entry is None or (pack_size is not None and entry["end"] > pack_size):
                break
            entries.append(entry)
            size += len(line)
    return entries, size
