"""One writer per run: an exclusive lock on the folder, which ends with the process that holds it."""

import errno
import fcntl
import os
import socket
from contextlib import ExitStack
from typing import TextIO

from zoo.data.errors import UserError

FILE = ".lock"  # holds the host and the process that locked it last
UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # file systems without locks


def _locked(path: str) -> TextIO:
    """Return the open file, locked.

    Raises:
        BlockingIOError: another process holds the lock; `strerror` is what the file says of it.
        OSError: the file cannot be written or locked.
    """
    with ExitStack() as closed_on_error:
        file = closed_on_error.enter_context(open(path, "a+", encoding="utf-8"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise BlockingIOError(error.errno, file.read(200).strip() or "another process") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        closed_on_error.pop_all()
        return file


class FolderLock:
    """The lock on a run's folder, held from `acquire` to `release` or to the end of the process."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def acquire(self, folder: str) -> None:
        """Lock a folder that exists, unless this object holds its lock already.

        Nothing is locked on a file system that has no locks.

        Raises:
            UserError: another process writes to the folder, or it cannot be written to.
        """
        if self._file:
            return
        try:
            self._file = _locked(os.path.join(folder, FILE))
        except BlockingIOError as error:
            raise UserError(
                f"{folder} is being written by {error.strerror}: wait for its end, or stop it, before going on with "
                "--resume; or choose another folder with --out DIR"
            ) from None
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise UserError(f"out: cannot write to {folder}: {error.strerror}") from None

    def release(self) -> None:
        """Let other processes write to the folder. The file stays, because removing it would unlock a newer holder."""
        if self._file:
            self._file.close()
            self._file = None
