"""Files of a data set wherever they lie: in folders, in tar and zip archives, and at addresses that fsspec opens.

A path goes on behind an archive or an address as behind a folder: shards/{00..99}.tar/train/cat/1.jpg,
s3://bucket/photos/train/cat/1.jpg. The functions of this module are those of `os` for all such paths. Names are
sorted, and what is read is a function of the path, so the order of samples is the same on every rank.
"""

import errno
import glob
import hashlib
import os
import posixpath
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from zoo.data import extras, host
from zoo.data.errors import UserError

Result = TypeVar("Result")

ARCHIVE = re.compile(r"(.+?\.(?:tar|zip))(?:/(.*))?", re.DOTALL)
PACKED_TAR = re.compile(r"\.(?:tgz|tar\.\w+)(?:/|$)")
ADDRESS = "://"
MAX_ARCHIVES = 100_000  # that one pattern names
ATTEMPTS, PAUSE = 4, 0.5  # of a request, and seconds before the second one; each pause is twice the one before
TIMEOUT = 60.0  # seconds of a request


class Status(NamedTuple):
    """Size of a file in bytes, and a number that changes with its contents, as far as the source says."""

    size: int
    stamp: int


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
    is_address = ADDRESS in path
    if not is_address and ".tar" not in path and ".zip" not in path:
        return None
    match = ARCHIVE.fullmatch(path)
    if match:
        from zoo.data import archives  # which sets of plain files do without

        opened = archives.open_archives(match[1])
        if opened is not None:
            return Place(opened, _normal(match[2] or ""), path)
    return Place(address(path), path.rstrip("/"), path) if is_address else None


def names(folder: str) -> dict[str, bool]:
    """Return the names in a folder of a source, sorted, and whether each is a folder; none if there is no such one."""
    place = locate(folder)
    return place.source.names(place.inner) if place else {}


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
    """Give a file a path of this machine, for what reads paths alone; one of a source is read into memory."""
    place = locate(path)
    if place is None:
        yield path
        return
    with host.readable_path(place.read(0, place.status().size)) as copy:
        yield copy


def _normal(path: str) -> str:
    """Return a path below a source without . and .., which may not lead out of it."""
    normal = posixpath.normpath(f"/{path}").lstrip("/")
    return "" if normal == "." else normal


def expand(pattern: str) -> list[str]:
    """Return the paths that a pattern with braces stands for, as in a shell: {00..11}, {train,val}; also nested."""
    begin = pattern.find("{")
    depth, commas = 0, []
    for place in range(begin, len(pattern)) if begin >= 0 else ():
        depth += {"{": 1, "}": -1}.get(pattern[place], 0)
        if pattern[place] == "," and depth == 1:
            commas.append(place)
        if depth == 0:
            cuts = [begin, *commas, place]
            parts = [pattern[first + 1 : last] for first, last in pairwise(cuts)]
            bodies = [each for part in parts for each in expand(part)] if commas else _range(parts[0])
            found = [pattern[:begin] + body + rest for body in bodies for rest in expand(pattern[place + 1 :])]
            if len(found) > MAX_ARCHIVES:
                raise UserError(f"{pattern}: names more than {MAX_ARCHIVES} archives")
            return found
    return [pattern]


def _range(body: str) -> list[str]:
    """Return the numbers of FIRST..LAST, with as many digits as FIRST has."""
    first, _, last = body.partition("..")
    if not (first.isdecimal() and last.isdecimal() and len(last) < 9):
        return ["{" + each + "}" for each in expand(body)]
    if int(last) - int(first) >= MAX_ARCHIVES:
        raise UserError(f"{{{body}}}: names more than {MAX_ARCHIVES} archives")
    return [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]


def matching(pattern: str) -> list[str]:
    """Return the files that a pattern with braces and * stands for, in its order."""
    found = []
    for path in expand(pattern):
        if "*" not in path:
            found.append(path)
        elif ADDRESS in path:
            found += address(path).matching(path)
        else:
            found += sorted(glob.glob(path))
    return found


class Remote:
    """Files that fsspec opens by their address.

    Args:
        protocol: such as s3, gs, https or hf. fsspec has the credentials.
    """

    def __init__(self, protocol: str):
        with extras.named():
            import fsspec
        try:
            self.files: Any = fsspec.filesystem(protocol)
        except (ImportError, ValueError) as error:
            raise UserError(f"data.root: addresses of {protocol} cannot be read: {error}") from None

    def names(self, folder: str) -> dict[str, bool]:
        try:
            listed = repeat(lambda: self.files.ls(folder, detail=True), folder)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = {posixpath.basename(entry["name"].rstrip("/")): entry["type"] == "directory" for entry in listed}
        return {name: found[name] for name in sorted(found) if name and not name.startswith("?")}

    def status(self, path: str) -> Status | None:
        try:
            info = repeat(lambda: self.files.info(path), path)
        except FileNotFoundError:
            return None
        if info["type"] != "file" or info.get("size") is None:
            return None
        marks = [str(info.get(key)) for key in ("ETag", "etag", "mtime", "LastModified", "created")]
        digest = hashlib.blake2b("\0".join(marks).encode(), digest_size=7).digest()
        return Status(int(info["size"]), int.from_bytes(digest, "little"))

    def read(self, path: str, offset: int, count: int) -> bytes:
        return repeat(lambda: self._range(path, offset, offset + count), path)

    def _range(self, path: str, start: int, end: int) -> Any:
        if not self.files.async_impl:
            return self.files.cat_file(path, start=start, end=end)
        from fsspec.asyn import sync

        return sync(self.files.loop, self.files._cat_file, path, start=start, end=end, timeout=TIMEOUT)

    def matching(self, pattern: str) -> list[str]:
        return sorted(self.files.unstrip_protocol(path) for path in repeat(lambda: self.files.glob(pattern), pattern))

    def open(self, path: str) -> BinaryIO:
        return repeat(lambda: self.files.open(path, "rb"), path)


def address(path: str) -> Remote:
    """Return what opens an address."""
    return _remote(path.partition(ADDRESS)[0])


@cache
def _remote(protocol: str) -> Remote:
    return Remote(protocol)


def repeat(request: Callable[[], Result], path: str) -> Result:
    """Return what a request does, which is repeated after a pause where the network fails. Raises OSError."""
    for attempt in range(ATTEMPTS):
        try:
            return request()
        except (FileNotFoundError, NotADirectoryError, PermissionError, NotImplementedError):
            raise
        except Exception as error:  # of many packages, each with its own kinds
            if attempt == ATTEMPTS - 1:
                what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                raise OSError(errno.EIO, f"{ATTEMPTS} requests failed, the last with {what}", path) from None
        time.sleep(PAUSE * 2**attempt)
    raise AssertionError


def check_root(root: str) -> None:
    """Raise UserError for an address that would put a secret into recipes and logs, or an archive without an index."""
    if ADDRESS in root and ("@" in root.partition(ADDRESS)[2].partition("/")[0] or "?" in root):
        protocol = root.partition(ADDRESS)[0]
        raise UserError(
            f"data.root: an address of {protocol} with a password or a signature would be written to logs; give them "
            "to fsspec, by its configuration or by variables of the environment"
        )
    if PACKED_TAR.search(root) and not os.path.isdir(root):
        raise UserError(
            f"data.root: {root} is compressed as a whole, so that no file in it can be read alone; unpack it"
        )
