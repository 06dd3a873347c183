"""The folder of data.cache: which files are ours, how many bytes they hold, and the budget that all processes share.

All of it lies in the subfolder NAME of the folder that the user gives: `files` holds the copies, `tmp` those that are
being written, `ledger` their bytes (data/cache_ledger.py). A copy is renamed from `tmp` when it is complete. The ledger
names the file that is about to be renamed, so that it stays exact whenever a process is killed.
"""

import errno
import fcntl
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from zoo.data import cache_ledger
from zoo.data.cache_ledger import Ledger
from zoo.data.errors import UserError

NAME = "vision-zoo-cache"
FILES, TEMPORARY = "files", "tmp"
MIN_FREE = 10**9  # bytes of the disk that stay free: checkpoints may lie there too
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class CacheFolder:
    """The folder of a cache; picklable. Every process and thread may use it at once.

    Args:
        folder: data.cache.
        budget: bytes that all copies may hold together.
    """

    def __init__(self, folder: str, budget: int):
        self.folder, self.budget = folder, budget
        self.path = os.path.join(os.path.abspath(folder), NAME)

    def open(self) -> int:
        """Make the folder if it does not exist, and remove what killed processes left.

        Returns:
            The time of this call on the clock of the file system, in nanoseconds.

        Raises:
            UserError: The folder cannot be written, or holds files that are not ours.
        """
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)  # private: the data set may be
            cache_ledger.create(self.path)
            for name in (FILES, TEMPORARY):
                os.makedirs(os.path.join(self.path, name), exist_ok=True)
            with cache_ledger.locked(self.path) as file:
                ledger = self._read(file)
                self._remove_leftovers()
                boot = _boot_id()
                if ledger.boot != boot:  # after a power failure the ledger may be older than the files
                    ledger = ledger._replace(boot=boot, total=self._count())
                cache_ledger.write(file, ledger._replace(stopped=False))
                return os.fstat(file.fileno()).st_ctime_ns
        except OSError as error:
            raise UserError(
                f"data.cache: {error.filename or self.path}: cannot be written ({error.strerror}); name another "
                "folder, or leave it out"
            ) from None

    def total(self) -> int:
        """Return the bytes of all copies."""
        return cache_ledger.peek(self.path).total

    def takes(self, size: int) -> bool:
        """Return whether a file of this size may be copied. Raises OSError."""
        ledger = cache_ledger.peek(self.path)
        return not ledger.stopped and ledger.total + size <= self.budget

    def copy_path(self, name: str) -> str:
        """Return the path of a copy by its name; folders hold one 4096th of the copies each."""
        return os.path.join(self.path, FILES, name[:3], name[3:])

    def store(self, name: str, size: int, write: Callable[[FileIO], bool]) -> bool:
        """Make a copy, unless the budget is used up.

        Args:
            name: of the copy; one that exists is replaced.
            size: bytes of the file.
            write: writes the file; returns whether it is complete.

        Returns:
            Whether the copy is there.

        Raises:
            OSError: It cannot be written.
        """
        if shutil.disk_usage(self.path).free - size < MIN_FREE:
            raise OSError(errno.ENOSPC, f"less than {MIN_FREE / 1e9:g} GB would stay free there")
        descriptor, path = tempfile.mkstemp(dir=os.path.join(self.path, TEMPORARY))
        with FileIO(descriptor, "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed: its writer lives
                return write(file) and self._rename(path, self.copy_path(name), size)
            finally:
                with suppress(OSError):
                    os.unlink(path)  # it is still there if there was no room, or an error

    def stop(self, reason: str) -> None:
        """Make no more copies in this run, and tell the user once, whichever process comes first."""
        with suppress(OSError), cache_ledger.locked(self.path) as file:
            ledger = self._read(file)
            cache_ledger.write(file, ledger._replace(stopped=True))
            if ledger.stopped:
                return
        warnings.warn(
            f"data.cache: {self.folder}: {reason}; files that are not there yet are read from data.root", stacklevel=1
        )

    def _rename(self, temporary: str, copy: str, size: int) -> bool:
        """Turn a complete file into a copy; return whether the budget allows it."""
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with cache_ledger.locked(self.path) as file:
            ledger = self._read(file)
            total = ledger.total + size - _size(copy)
            if total > self.budget:
                return False
            begun = ledger._replace(renaming=os.path.basename(temporary).encode(), total_then=total)
            try:
                cache_ledger.write(file, begun)
                os.rename(temporary, copy)
            except FileNotFoundError:  # a run that started took it for a leftover, in the moment before it was locked
                cache_ledger.write(file, ledger)
                return False
            except OSError:
                cache_ledger.write(file, ledger)
                raise
            cache_ledger.write(file, ledger._replace(total=total))
        return True

    def _read(self, file: FileIO) -> Ledger:
        """Read the ledger, which is locked, and add a rename that a killed process had begun."""
        ledger = cache_ledger.read(file)
        if not ledger.renaming:
            return ledger
        done = not os.path.exists(os.path.join(self.path, TEMPORARY, os.fsdecode(ledger.renaming)))
        return ledger._replace(total=ledger.total_then if done else ledger.total, renaming=b"")

    def _remove_leftovers(self) -> None:
        """Remove the files in `tmp` that no living process writes."""
        folder = os.path.join(self.path, TEMPORARY)
        for name in os.listdir(folder):
            with suppress(FileNotFoundError, BlockingIOError), open(os.path.join(folder, name), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(file.name)

    def _count(self) -> int:
        """Return the bytes of all copies, from the file system."""
        folders = [entry.path for entry in os.scandir(os.path.join(self.path, FILES))]
        return sum(entry.stat().st_size for folder in folders for entry in os.scandir(folder))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _boot_id() -> bytes:
    try:
        return BOOT_ID.read_bytes().strip()
    except OSError:
        return b"unknown"
