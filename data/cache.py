"""Copies of a data set's files on a fast local disk (data.cache), made when a file is first read.

A copy has the bytes of its file, so samples do not depend on what is cached. It belongs to the absolute path of the
file. When a run first uses a copy, it compares size and modification time with those of the file, and copies the file
anew if they differ; later it takes the copy without a question to the file system of the data set. That a copy was
compared in this run is known from its change time (ctime), which only the comparison and the copying set: so it holds
for all processes of the run, and none keeps a list. Nothing is ever removed to make room: every epoch reads every file
once, and what stays is read faster in each of them.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from typing import Protocol

from zoo.data.cache_folder import CacheFolder
from zoo.data.errors import UserError
from zoo.data.stages import READ, stage

LocalPath = Callable[[str], str]  # path of a file -> path to read it from

BLOCK = 1 << 20  # bytes
CLOCK_TOLERANCE = 10**9  # nanoseconds by which a change time may lie in the future
MAX_EXTENSION = 16  # characters; some decoders look at the extension


class CacheSettings(Protocol):
    """The settings of a data set that this module uses."""

    @property
    def root(self) -> str: ...
    @property
    def cache(self) -> str | None: ...
    @property
    def cache_gb(self) -> float: ...


class _SourceError(Exception):
    """The file of the data set cannot be read."""


class FileCache:
    """The path to read a file from; picklable, and for any number of threads and processes.

    Args:
        folder: that holds the copies.
        started: time of CacheFolder.open in this run.
    """

    def __init__(self, folder: CacheFolder, started: int):
        self.folder, self.started = folder, started

    def __call__(self, path: str) -> str:
        """Return the path of the copy of a file, which is made if there is room for it; else the path itself."""
        name = copy_name(path)
        copy = self.folder.copy_path(name)
        try:
            status = os.stat(copy)
        except OSError:
            return copy if self._store(path, name) else path
        compared = self.started < status.st_ctime_ns < time.time_ns() + CLOCK_TOLERANCE
        if compared or _is_current(path, copy, status) or self._store(path, name):
            return copy
        return path

    @stage(READ)
    def _store(self, path: str, name: str) -> bool:
        """Copy a file; return whether the copy is there. Errors of the file itself are left to its reader."""
        try:
            with _open(path) as source:
                before = _status(source)
                if not stat.S_ISREG(before.st_mode) or not before.st_size or not self.folder.takes(before.st_size):
                    return False
                return self.folder.store(name, before.st_size, lambda target: _copy(source, target, before))
        except _SourceError:
            return False
        except OSError as error:
            self.folder.stop(error.strerror or str(error))
            return False


def source_path(path: str) -> str:
    """Return the path itself: no cache."""
    return path


def open_cache(settings: CacheSettings) -> LocalPath:
    """Open the cache of a data set; without data.cache, files are read where they are.

    Raises:
        UserError: The folder cannot be used.
    """
    if settings.cache is None:
        return source_path
    root, folder = os.path.realpath(settings.root), os.path.realpath(settings.cache)
    if os.path.commonpath([root, folder]) == root:
        raise UserError(
            f"data.cache: {settings.cache} lies in data.root, {settings.root}, which is never written to; name a "
            "folder elsewhere, on a fast local disk"
        )
    cache = _folder(settings)
    return FileCache(cache, cache.open())


def refuse_packs(settings: CacheSettings, paths: list[str]) -> None:
    """Raise UserError if there is a cache for packs: each is one large file, which the cache would copy whole."""
    if settings.cache is None:
        return
    size = sum(os.path.getsize(path) for path in paths)
    raise UserError(
        f"data.cache: keeps single files, but the samples of {settings.root} lie in packs ({size / 1e9:.1f} GB); copy "
        "them to the fast disk, set data.root to that folder, and leave data.cache out"
    )


def notes(settings: CacheSettings) -> tuple[str, ...]:
    """Return what to tell the user when a run starts."""
    if settings.cache is None:
        return ()
    folder = _folder(settings)
    return (f"data.cache: {settings.cache} holds {folder.total() / 1e9:.1f} of {settings.cache_gb:g} GB",)


def copy_name(path: str) -> str:
    """Return the name of the copy of a file: a digest of its absolute path, and its extension."""
    absolute = os.path.join(os.getcwd(), path)
    if os.pardir not in absolute.split(os.sep):  # which leads elsewhere behind a link
        absolute = os.path.normpath(absolute)
    digest = hashlib.blake2b(os.fsencode(absolute), digest_size=16).hexdigest()
    return digest + os.path.splitext(path)[1][:MAX_EXTENSION]


def _folder(settings: CacheSettings) -> CacheFolder:
    assert settings.cache
    return CacheFolder(settings.cache, int(settings.cache_gb * 1e9))


def _is_current(path: str, copy: str, status: os.stat_result) -> bool:
    """Compare a copy with its file, and note that in the change time of the copy."""
    try:
        source = os.stat(path)
    except OSError:
        return False
    if (source.st_size, source.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
        return False
    with suppress(OSError):
        os.utime(copy, ns=(source.st_mtime_ns, source.st_mtime_ns))
    return True


def _copy(source: FileIO, target: FileIO, before: os.stat_result) -> bool:
    """Copy a file and its modification time; return False if it changes meanwhile. Raises OSError of the target."""
    for block in _blocks(source, min(before.st_size, BLOCK)):
        rest = memoryview(block)
        while rest:
            rest = rest[target.write(rest) :]
    after, written = _status(source), os.fstat(target.fileno()).st_size
    os.utime(target.fileno(), ns=(before.st_mtime_ns, before.st_mtime_ns))
    return written == before.st_size == after.st_size and before.st_mtime_ns == after.st_mtime_ns


def _open(path: str) -> FileIO:
    try:
        return FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # never waits at a pipe
    except OSError:
        raise _SourceError from None


def _status(source: FileIO) -> os.stat_result:
    try:
        return os.fstat(source.fileno())
    except OSError:
        raise _SourceError from None


def _blocks(source: FileIO, size: int) -> Iterator[bytes]:
    try:
        while block := source.read(size):
            yield block
    except OSError:
        raise _SourceError from None
