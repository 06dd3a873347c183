"""Copies of a data set's files on a fast local disk (data.cache), made when a file is first read.

A copy has the bytes, size and modification time of its file, and is compared with it at every use: samples do not
depend on what is cached. All lies in the subfolder NAME of data.cache: `files` holds the copies by the digest of the
path of their file, `tmp` those that are being written, `bytes` what they take together. Nothing is removed to make
room: every epoch reads every file once, and what stays is read faster in each of them.
"""

import errno
import hashlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from typing import Any, BinaryIO

from zoo.data import addresses, durable, sources
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import regular
from zoo.data.sources import Status
from zoo.data.stages import READ, stage

LocalPath = Callable[[str], str]  # path of a file -> path to read it from

NAME = "vision-zoo-cache"
MIN_FREE = 10**9  # bytes of the disk that stay free: checkpoints may lie there too
MAX_EXTENSION = 16  # characters; some decoders look at the extension
ABANDONED = 3600  # seconds since a file in `tmp` was last written


class FileCache:
    """The path to read a file from; picklable, and for any number of threads and processes.

    Args:
        budget: bytes that all copies may take together.
    """

    def __init__(self, folder: str, budget: int):
        self.budget, self.stopped = budget, False
        self.path = os.path.join(os.path.abspath(folder), NAME)
        self.files, self.temporary = os.path.join(self.path, "files"), os.path.join(self.path, "tmp")
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)  # private: the data set may be
            _require_own(self.path)
            for name in (self.files, self.temporary):
                os.makedirs(name, exist_ok=True)
            for entry in os.scandir(self.temporary):
                with suppress(FileNotFoundError):
                    if time.time() - entry.stat().st_mtime > ABANDONED:  # by a process that was killed
                        os.unlink(entry.path)
            with self._open_total() as file:
                _write_total(file, self._read_total(file))
        except OSError as error:
            raise UserError(
                f"data.cache: {error.filename or self.path}: cannot be written ({error.strerror}); name another "
                "folder, or leave it out"
            ) from None

    def __call__(self, path: str) -> str:
        """Return the path of the copy of a file, which is made if there is room for it; else the path itself."""
        try:
            source = sources.status(path)
        except OSError:  # left to its reader
            return path
        if source.stamp == addresses.UNMARKED:
            return path
        copy = self.copy_path(path)
        with suppress(OSError):
            if sources.status(copy) == source:
                return copy
        return copy if self._store(path, source, copy) else path

    def copy_path(self, path: str) -> str:
        """Return the path of the copy of a file; folders hold one 4096th of the copies each."""
        absolute = path if addresses.is_address(path) else os.path.join(os.getcwd(), path)
        if os.pardir not in absolute.split(os.sep):  # which leads elsewhere behind a link
            absolute = os.path.normpath(absolute)
        digest = hashlib.blake2b(os.fsencode(absolute), digest_size=16).hexdigest()
        return os.path.join(self.files, digest[:3], digest[3:] + os.path.splitext(path)[1][:MAX_EXTENSION])

    def total(self) -> int:
        """Return the bytes of all copies."""
        with self._open_total() as file:
            return self._read_total(file)

    @stage(READ)
    def _store(self, path: str, source: Status, copy: str) -> bool:
        """Copy a file; return whether the copy is there. The first error ends all copying by this process."""
        if self.stopped or not source.size:
            return False
        with suppress(OSError, BadSample), regular.open_file(path, None) as file:  # errors are left to its reader
            return self._store_open(path, file, source, copy)
        return False

    def _store_open(self, path: str, file: BinaryIO, source: Status, copy: str) -> bool:
        try:
            return self.total() + source.size <= self.budget and self._copy(path, file, source, copy)
        except OSError as error:
            self.stopped = True
            warnings.warn(
                f"data.cache: {self.path}: {error.strerror or error}; files that are not there yet are read from "
                "data.root",
                stacklevel=1,
            )
            return False

    def _copy(self, path: str, file: BinaryIO, source: Status, copy: str) -> bool:
        """Copy an open file, unless it changes meanwhile or the budget is used up."""
        if shutil.disk_usage(self.path).free - source.size < MIN_FREE:
            raise OSError(errno.ENOSPC, f"less than {MIN_FREE / 1e9:g} GB would stay free there")
        descriptor, temporary = tempfile.mkstemp(dir=self.temporary)
        try:
            with open(descriptor, "wb") as target:
                shutil.copyfileobj(file, target)
            os.utime(temporary, ns=(source.stamp, source.stamp))
            if not sources.status(temporary) == sources.status(path) == source:
                return False
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            with self._open_total() as total:
                replaced = os.stat(copy).st_size if os.path.exists(copy) else 0
                bytes_then = self._read_total(total) + source.size - replaced
                if bytes_then > self.budget:
                    return False
                os.replace(temporary, copy)
                _write_total(total, bytes_then)
            return True
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    @contextmanager
    def _open_total(self) -> Iterator[FileIO]:
        """Open the file `bytes` for this thread alone."""
        path = os.path.join(self.path, "bytes")
        with FileIO(path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o600)) as file:
            durable.lock(file, wait=True)
            yield file

    def _read_total(self, file: FileIO) -> int:
        """Return the number in the file `bytes`; counted anew if there is none, as after a power failure."""
        text = os.pread(file.fileno(), 32, 0)
        if text.isdigit():
            return int(text)
        return sum(entry.stat().st_size for folder in os.scandir(self.files) for entry in os.scandir(folder.path))


def source_path(path: str) -> str:
    """Return the path itself: no cache."""
    return path


def open_cache(settings: Any) -> LocalPath:
    """Open the cache of a data set, by its settings; without data.cache, files are read where they are."""
    if settings.cache is None:
        return source_path
    root, folder = os.path.realpath(settings.root), os.path.realpath(settings.cache)
    if os.path.commonpath([root, folder]) == root:
        raise UserError(
            f"data.cache: {settings.cache} lies in data.root, {settings.root}, which is never written to; name a "
            "folder elsewhere, on a fast local disk"
        )
    return FileCache(settings.cache, int(settings.cache_gb * 1e9))


def refuse_packs(settings: Any) -> None:
    """Raise UserError if there is a cache for packs: each is one large file, which the cache would copy whole."""
    if settings.cache is not None:
        raise UserError(
            f"data.cache: keeps single files, but the samples of {settings.root} lie in packs; copy them to the fast "
            "disk, set data.root to that folder, and leave data.cache out"
        )


def notes(settings: Any) -> tuple[str, ...]:
    """Return what to tell the user when a run starts."""
    if settings.cache is None:
        return ()
    total = FileCache(settings.cache, 0).total()
    return (f"data.cache: {settings.cache} holds {total / 1e9:.1f} of {settings.cache_gb:g} GB",)


def _require_own(path: str) -> None:
    """Raise UserError if others may have put copies, or links to write through, into a folder."""
    status, link = os.stat(path), os.lstat(path)
    if {status.st_uid, link.st_uid} != {os.geteuid()} or status.st_mode & 0o022:
        raise UserError(
            f"data.cache: {path} is not yours, or others can write to it, and what it holds would be taken for your "
            "data; name another folder, or remove it"
        )


def _write_total(file: FileIO, total: int) -> None:
    os.pwrite(file.fileno(), b"%020d" % total, 0)
