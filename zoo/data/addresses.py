"""Files at addresses that fsspec opens, such as s3://bucket/photos/1.jpg; requests that fail are repeated."""

import errno
import hashlib
import posixpath
import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from zoo.data import extras
from zoo.data.errors import UserError

Result = TypeVar("Result")

ADDRESS, HTTP = "://", ("http", "https")
SCHEME = re.compile(r"[A-Za-z][\w+.-]*://")
ATTEMPTS, PAUSE = 4, 0.5  # of a request, and seconds before the second one; each pause is twice the one before
TIMEOUT = 30.0  # seconds of a request
MARKS = ("ETag", "etag", "mtime", "LastModified", "created")  # what file systems call that which changes with a file


class Status(NamedTuple):
    """Size of a file in bytes, and a number that changes with its contents, as far as its source says."""

    size: int
    stamp: int


class Remote:
    """Files of one protocol, by their whole address. fsspec has the credentials.

    Args:
        protocol: such as s3, gs, https or hf.
    """

    def __init__(self, protocol: str):
        self.protocol = protocol
        with extras.named():
            import fsspec
        try:
            self.files: Any = fsspec.filesystem(protocol, **({"encoded": True} if protocol in HTTP else {}))
        except (ImportError, ValueError) as error:
            raise UserError(f"data.root: addresses of {protocol} cannot be read: {error}") from None

    def names(self, folder: str) -> dict[str, bool]:
        """Return the names in a folder, sorted, and whether each is a folder; none if there is no such folder."""
        try:
            listed = self._request("ls", folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = {posixpath.basename(entry["name"].rstrip("/")): entry["type"] == "directory" for entry in listed}
        if self.protocol in HTTP:  # links of an index page, also to the page in another order
            found = {unquote(name): is_folder for name, is_folder in found.items() if not name.startswith("?")}
        return {name: found[name] for name in sorted(found) if name}

    def status(self, path: str) -> Status | None:
        try:
            info = self._request("info", path)
        except FileNotFoundError:
            return None
        if info["type"] != "file" or info.get("size") is None:
            return None
        marks = "\0".join(str(info.get(key)) for key in MARKS)
        return Status(int(info["size"]), int.from_bytes(hashlib.blake2b(marks.encode(), digest_size=7).digest()))

    def read(self, path: str, offset: int, count: int) -> bytes:
        content: bytes = self._request("cat_file", path, start=offset, end=offset + count)
        if len(content) > count:
            raise OSError(errno.EIO, "the server gives whole files alone, no ranges of them", path)
        return content

    def matching(self, pattern: str) -> list[str]:
        """Return the addresses that a pattern with * stands for, sorted."""
        return sorted(self.files.unstrip_protocol(path) for path in self._request("glob", pattern))

    def open(self, path: str) -> BinaryIO:
        """Open a file that may be read anywhere."""
        return repeat(lambda: self.files.open(self._encoded(path), "rb"), path)

    def _encoded(self, path: str) -> str:
        return quote(path, safe=":/[]*") if self.protocol in HTTP else path

    def _request(self, method: str, path: str, **options: Any) -> Any:
        """Call a method of the file system, of one with coroutines for at most TIMEOUT seconds each time."""
        path = self._encoded(path)
        if not self.files.async_impl:
            return repeat(lambda: getattr(self.files, method)(path, **options), path)
        from fsspec.asyn import sync

        call = getattr(self.files, f"_{method}")
        return repeat(lambda: sync(self.files.loop, call, path, timeout=TIMEOUT, **options), path)


def open_file(path: str) -> BinaryIO:
    """Open a file of this machine or at an address, which may be read anywhere."""
    return remote(path).open(path) if is_address(path) else open(path, "rb")


def read_whole(read: Callable[[str], Result], path: str) -> Result:
    """Return what a function makes of a file that it opens; of one at an address, it is repeated as a request is."""
    return repeat(lambda: read(path), path) if is_address(path) else read(path)


def is_address(path: str) -> bool:
    """Return whether a path begins as an address; a list may name one behind a folder, which is no file."""
    return SCHEME.match(path) is not None


def remote(address: str) -> Remote:
    """Return what opens an address."""
    return _remote(address.partition(ADDRESS)[0])


@cache
def _remote(protocol: str) -> Remote:
    return Remote(protocol)


def repeat(request: Callable[[], Result], path: str) -> Result:
    """Return what a request returns; where the network fails, it is repeated after a pause. Raises OSError."""
    for attempt in range(ATTEMPTS):
        try:
            return request()
        except (FileNotFoundError, NotADirectoryError, PermissionError, NotImplementedError, UserError):
            raise
        except Exception as error:  # packages of file systems have kinds of their own
            if attempt == ATTEMPTS - 1:
                what = f"{type(error).__name__}: {error}".removesuffix(": ")
                raise OSError(errno.EIO, f"{ATTEMPTS} requests failed, the last with {what}", path) from None
        time.sleep(PAUSE * 2**attempt)
    raise AssertionError


def check(root: str) -> None:
    """Raise UserError for an address with a secret, which recipes and logs would show."""
    protocol, _, rest = root.partition(ADDRESS)
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise UserError(
            f"data.root: an address of {protocol} with a password or a signature would be written to logs; give them "
            "to fsspec, by its configuration or by variables of the environment"
        )
