"""Files of a data set wherever they lie: in folders, in tar and zip archives, and at addresses that fsspec opens.

A path goes on behind an archive or an address as behind a folder: shards/{00..99}.tar/train/cat/1.jpg,
s3://bucket/photos/train/cat/1.jpg. The functions of this module are those of `os` for all such paths. Names are
sorted, and what is read is a function of the path, so the order of samples is the same on every rank.
"""

import errno
import os
import posixpath
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from zoo.data import addresses, host
from zoo.data.addresses import Status
from zoo.data.errors import BadSample, Option, UserError
from zoo.data.tables import TABLES

EXTENSIONS = (".tar", ".zip", *TABLES)
ARCHIVE = re.compile(r"(.+?\.(?:(?i:tar|zip)|parquet|arrow))(?:/(.*))?", re.DOTALL)
PACKED_TAR = re.compile(r"\.(?:tgz|tar\.\w+)(?:/|$)")


class Source(Protocol):
    """Where files lie that are not in a folder of this machine. Paths are those behind the source."""

    def names(self, folder: str) -> dict[str, bool]:
        """Return the names in a folder, sorted, and whether each is a folder; none if there is no such folder."""

    def status(self, path: str) -> Status | None:
        """Return the status of a file; None if there is no such file."""

    def read(self, path: str, offset: int, count: int) -> bytes:
        """Return up to `count` bytes of a file. Raises OSError."""


class Place(NamedTuple):
    """A path that leads into a source: `inner` is the path behind it, `path` the whole one."""

    source: Source
    inner: str
    path: str

    def status(self) -> Status:
        """Return the status of the file. Raises FileNotFoundError."""
        status = self.source.status(self.inner)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", self.path)
        return status

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes of the file. Raises OSError if it gives fewer."""
        content = self.source.read(self.inner, offset, count)
        if len(content) != count:
            raise OSError(errno.EIO, f"it gives {len(content)} bytes of {count}", self.path)
        return content


def locate(path: str) -> Place | None:
    """Return the place of a path that leads into a source; None for one of this machine."""
    is_address = addresses.is_address(path)
    if not is_address and not any(extension in path.lower() for extension in EXTENSIONS):
        return None
    match = ARCHIVE.fullmatch(path)
    if match:
        from zoo.data import archives  # which sets of plain files do without

        opened = archives.open_archives(match[1])
        if opened is not None:
            return Place(opened, _normal(match[2] or ""), path)
    return Place(addresses.remote(path), path.rstrip("/"), path) if is_address else None


def names(folder: str) -> dict[str, bool]:
    """Return the names in a folder, sorted, and whether each is a folder.

    Raises:
        OSError: there is no such folder on this machine; that of a source has no names then.
    """
    place = locate(folder)
    if place:
        return place.source.names(place.inner)
    with os.scandir(folder) as entries:
        return dict(sorted((entry.name, entry.is_dir()) for entry in entries))


def listdir(folder: str) -> list[str]:
    """Return the sorted names in a folder of this machine or of a source. Raises OSError."""
    return list(names(folder))


def absolute(path: str) -> str:
    """Return a path that does not depend on the current folder."""
    return path.rstrip("/") if addresses.is_address(path) else os.path.abspath(path)


def status(path: str) -> Status:
    """Return the status of a file of this machine or of a source; a folder or pipe has none. Raises OSError."""
    place = locate(path)
    if place:
        return place.status()
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    return Status(found.st_size, found.st_mtime_ns)


def is_folder(path: str) -> bool:
    place = locate(path)
    return bool(place.source.names(place.inner)) if place else os.path.isdir(path)


def is_file(path: str) -> bool:
    place = locate(path)
    return place.source.status(place.inner) is not None if place else os.path.isfile(path)


def exists(path: str) -> bool:
    return is_file(path) or is_folder(path) if locate(path) else os.path.exists(path)


@contextmanager
def local_path(path: str) -> Iterator[str]:
    """Give a file a path of this machine, for what reads paths alone; one of a source is read into memory.

    Raises:
        BadSample: it cannot be read from its source.
    """
    try:
        place = locate(path)
        content = place.read(0, place.status().size) if place else b""
    except OSError as error:
        raise BadSample(f"cannot be read ({error.strerror})") from error
    if place is None:
        yield path
        return
    with host.readable_path(content) as copy:
        yield copy


def _normal(path: str) -> str:
    """Return a path below a source without . and .., which may not lead out of it."""
    return posixpath.normpath(f"/{path}").lstrip("/")


def check_root(root: str) -> None:
    """Raise UserError for an address with a secret, and for files that are no folder of samples.

    Those are an archive that is compressed as a whole, and a folder of tables, which a pattern names.
    """
    addresses.check(root)
    if not addresses.is_address(root) and PACKED_TAR.search(root) and not os.path.isdir(root):
        raise UserError(f"data.root: {root} is compressed as a whole, so no file in it can be read alone; unpack it")
    for folder in (root, posixpath.join(root, "data")):
        found = dict[str, bool]()
        with suppress(OSError):  # which whoever reads it will name
            found = names(folder)
        table = next((name for name in found if name.endswith(TABLES)), None)
        if table and not any(found.values()):
            pattern = posixpath.join(folder, f"*{os.path.splitext(table)[1]}")
            raise UserError(f"{folder} holds tables such as {table}; name them with ", Option("data.root", pattern))
