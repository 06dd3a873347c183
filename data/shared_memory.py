"""Shared memory of this program: segments that tell whose they are, and the removal of those that dead runs left.

Every process that starts readers holds a lock on a file beside its segments, which ends with it however it ends:

    /dev/shm/vision-zoo-<token>.lock            locked as long as the owner lives
    /dev/shm/vision-zoo-<token>-<process>-<n>   an array of a batch, or what a reader is doing (data/reader_board.py)
    /dev/shm/sem.vision-zoo-<token>-<name>      a semaphore between the owner and its readers

So a segment without a locked file is garbage. This also holds where containers share /dev/shm, which do not see each
other's processes.
"""

import atexit
import errno
import fcntl
import itertools
import multiprocessing
import os
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import shared_memory

from zoo.data import host
from zoo.data.errors import UserError

PREFIX = "vision-zoo-"
LOCK = ".lock"
NAME = re.compile(rf"(sem\.)?{PREFIX}(?P<token>[0-9a-f]{{16}})(?P<rest>{re.escape(LOCK)}|(-[0-9]+)?-[0-9a-z_]+)")
REMEDY = (
    "make it larger (docker run --shm-size 8g), or use fewer data.workers, a smaller train.batch, or threads of the "
    "training process with data.workers=0"
)
FULL = (errno.ENOSPC, errno.ENOMEM)

_numbers = itertools.count()
_guard = threading.Lock()
_owned: tuple[str, int] | None = None  # token of this process, and the descriptor of its locked file


def claim() -> str:
    """Return the token of this process; the first call removes what dead processes have left.

    Raises:
        UserError: there is no room for an empty file.
    """
    global _owned
    with _guard:
        if _owned is None:
            sweep()
            _owned = _lock(secrets.token_hex(8))
            atexit.register(release)
            # Where multiprocessing keeps the prefix of the names of semaphores, which has no other setting.
            getattr(multiprocessing.current_process(), "_config", {})["semprefix"] = f"/{PREFIX}{_owned[0]}"
        return _owned[0]


def release() -> None:
    """Give up the token of this process, which Python's teardown does; before a process ends without it."""
    global _owned
    with _guard:
        if _owned is not None:
            token, descriptor = _owned
            _remove(f"{PREFIX}{token}{LOCK}")
            os.close(descriptor)
            _owned = None


def discard(token: str, process: int) -> None:
    """Remove the segments of a reader that has ended, but those that this process has received."""
    received = _mapped()
    for of_token, rest, name in _names():
        if of_token == token and rest.startswith(f"-{process}-") and name not in received:
            _remove(name)


def sweep() -> list[str]:
    """Remove the segments of this user whose owner is dead; return their names."""
    mine = list(_names())
    alive = {token for token, rest, name in mine if rest == LOCK and not _is_dead(name)}
    dead = [name for token, rest, name in mine if token not in alive]
    # Segments first: without their lock they would be found again, but a lock that is gone may be made anew.
    for name in sorted(dead, key=lambda name: name.endswith(LOCK)):
        _remove(name)
    return dead


def create(token: str, size: int) -> shared_memory.SharedMemory:
    """Return a new segment of so many bytes.

    Its pages are reserved at once. The kernel lets a file be larger than what is free, and kills a process that writes
    to a page for which there is no room with SIGBUS.

    Raises:
        UserError: there is no room.
    """
    name = segment(token)
    try:
        memory = shared_memory.SharedMemory(name, create=True, size=size)
        try:
            _reserve(name, size)
        except OSError:
            memory.close()
            memory.unlink()
            raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise UserError(
            f"{host.SHARED_MEMORY} has {megabytes(host.free_shared_memory())} free, and an array of a batch takes "
            f"{megabytes(size)}; {REMEDY}"
        ) from None
    return memory


def segment(token: str, kind: str = "") -> str:
    """Return an unused name of a segment of this process. kind: letters before its number."""
    return f"{PREFIX}{token}-{os.getpid()}-{kind}{next(_numbers)}"


def path(name: str) -> str:
    """Return the path of a segment."""
    return os.path.join(host.SHARED_MEMORY, name)


def megabytes(size: float) -> str:
    """Return a number of bytes for a message."""
    return f"{size / 2**20:.1f} MB"


def _names() -> Iterator[tuple[str, str, str]]:
    """Yield token, rest and name of the files of this user."""
    with suppress(OSError), os.scandir(host.SHARED_MEMORY) as entries:
        for entry in entries:
            match = NAME.fullmatch(entry.name)
            with suppress(OSError):
                if match and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    yield match["token"], match["rest"], entry.name


def _mapped() -> set[str]:
    """Return the names of the segments that are mapped into this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return {os.path.basename(line.split(maxsplit=5)[-1].strip()) for line in file if PREFIX in line}


def _lock(token: str) -> tuple[str, int]:
    """Create the file of a token, locked before it has its name, so that nobody takes it for a dead one's."""
    name, temporary = f"{PREFIX}{token}{LOCK}", path(f".{PREFIX}{token}")
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(temporary, path(name))
    except OSError as error:
        raise UserError(f"{host.SHARED_MEMORY} cannot be used: {error.strerror}; {REMEDY}") from None
    return token, descriptor


def _is_dead(name: str) -> bool:
    """Return whether nobody holds the lock of a file."""
    try:
        descriptor = os.open(path(name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False  # gone, or not a file
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _reserve(name: str, size: int) -> None:
    descriptor = os.open(path(name), os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def _remove(name: str) -> None:
    with suppress(OSError):
        os.remove(path(name))
