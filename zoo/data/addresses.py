"""Files at addresses that fsspec opens, such as s3://bucket/photos/1.jpg; requests that fail are repeated.

What is known of a file, its size and mark, is asked for once in a run; reads that give another file are refused.
"""

import errno
import hashlib
import io
import os
import posixpath
import re
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, BinaryIO, NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote

from zoo.data import extras
from zoo.data.errors import UserError

Result = TypeVar("Result")

ADDRESS, HTTP, S3 = "://", ("http", "https"), ("s3", "s3a")
SCHEME = re.compile(r"[A-Za-z][\w+.-]*://")
URL = re.compile(r"([A-Za-z][\w+.-]*://)(?:[^\s/?#]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")
ATTEMPTS, PAUSE = 4, 0.5  # of a request, and seconds before the second one; each pause is twice the one before
TIMEOUT = 30.0  # seconds of a request
BLOCK = 5 << 20  # bytes of an open file that are read at once
MAX_KNOWN = 1 << 18  # files whose status, or when it was asked for, is remembered: 100 MB
RECHECK = 60.0  # seconds; a file whose reads say no mark is asked for it after the first of them, and then this often
MARKS = (  # what file systems call that which changes with a file; the first one counts
    *("ETag", "etag", "blob_id", "sha", "mtime", "Last-Modified", "LastModified", "last_modified"),
    *("modificationTime", "modified", "modify", "created"),
)
UNMARKED = -1  # the stamp of a file that has no mark: nothing that is kept of it lasts longer than the process
TRANSIENT = (408, 425, 429)  # answers of HTTP below 500 after which a request is repeated


class RemoteError(OSError):
    """A server does not answer, refuses, or gives another file than before. Where samples are read, one is bad."""


class Status(NamedTuple):
    """Size of a file in bytes, and a number that changes with its contents, as far as its source says."""

    size: int
    stamp: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """Return that of a file of this machine; one of the same size put in its place with its time has another."""
        return cls(found.st_size, max(found.st_mtime_ns, found.st_ctime_ns))


_known: dict[str, Status] = {}  # by address


class Known:
    """What a process knows of files: one that gets it by pickle knows the same, and refuses what has changed since."""

    def __reduce__(self) -> Any:
        return _learn, (dict(_known),)


def _learn(known: Mapping[str, Status]) -> Known:
    _known.update(known)
    return Known()


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
        self._checked: dict[str, float] = {}

    def names(self, folder: str) -> dict[str, bool]:
        """Return the names in a folder, sorted, and whether each is a folder; none if there is no such folder."""
        try:
            listed = self._request("ls", folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        own = self.files._strip_protocol(self._encoded(folder)).rstrip("/")  # a file, or the mark of a folder
        entries = [(entry["name"].rstrip("/"), entry["type"] == "directory") for entry in listed]
        found = {posixpath.basename(name): is_folder for name, is_folder in entries if name != own}
        if self.protocol in HTTP:  # links of an index page, also to the page in another order
            found = {_decoded(name): is_folder for name, is_folder in found.items() if not name.startswith("?")}
        return {name: found[name] for name in sorted(found) if name}

    def status(self, path: str) -> Status | None:
        """Return the status of a file, which is asked for once; None if there is no such file."""
        if path not in _known:
            status = self._ask(path)
            if status is None or len(_known) >= MAX_KNOWN:
                return status
            _known[path] = status
        return _known[path]

    def read(self, path: str, offset: int, count: int, status: Status | None = None) -> bytes:
        """Return up to `count` bytes of a file. Raises OSError, also if its status is another one by now.

        Args:
            status: None for that of the method `status`.
        """
        expected = status or self.status(path)
        if expected is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        count = min(count, expected.size - offset)
        return repeat(lambda: self._range(path, offset, count, expected), path) if count > 0 else b""

    def matching(self, pattern: str) -> list[str]:
        """Return the addresses that a pattern with * stands for, sorted."""
        head, star, tail = pattern.partition("*")
        if not star:
            return [pattern] if self.status(pattern) else []
        folder, _, begin = head.rpartition("/")
        name, slash, below = f"{begin}*{tail}".partition("/")
        wanted = re.compile(".*".join(map(re.escape, name.split("*"))))
        found = [f"{folder}/{each}" for each in self.names(folder) if wanted.fullmatch(each)]
        return [each for path in found for each in self.matching(f"{path}/{below}")] if slash else found

    def open(self, path: str) -> BinaryIO:
        """Open a file that may be read anywhere."""
        return io.BufferedReader(_Reader(self, path), BLOCK)

    def _ask(self, path: str) -> Status | None:
        try:
            info = self._request("info", path)
        except FileNotFoundError:
            return None
        if info["type"] != "file" or info.get("size") is None:
            return None
        if (stamp := _stamp(info)) == UNMARKED:
            _warn_unmarked(shown(path.partition(ADDRESS)[2].partition("/")[0]))
        return Status(int(info["size"]), stamp)

    def _range(self, path: str, offset: int, count: int, expected: Status) -> bytes:
        """Return bytes of a file whose status is the expected one. Raises OSError."""
        where, now = self._encoded(path), dict[str, Any]()
        if self.protocol in (*HTTP, *S3):
            call = _http_range if self.protocol in HTTP else _s3_range
            content, now = self._call(partial(call, self.files), where, offset, offset + count)
        else:
            content = self._call("cat_file", where, start=offset, end=offset + count)
            if time.monotonic() - self._checked.get(path, -RECHECK) >= RECHECK:
                self.files.invalidate_cache(where)
                now = self._call("info", where)
                if len(self._checked) >= MAX_KNOWN:
                    self._checked.clear()
                self._checked[path] = time.monotonic()
        is_other = bool(now) and expected.stamp not in (UNMARKED, _stamp(now))
        if is_other or now.get("size") not in (None, expected.size):
            self._checked.pop(path, None)
            raise RemoteError(errno.ESTALE, "it has changed since the run began", path)
        if len(content) != count:
            raise OSError(errno.EIO, f"it gives {len(content)} bytes of {count}", path)
        return content

    def _encoded(self, path: str) -> str:
        """Return the path that the file system takes: of HTTP quoted, but for what is already."""
        if self.protocol not in HTTP:
            return path
        return quote(re.sub("%(?![0-9A-Fa-f]{2})", "%25", path), safe=":/[]*%")

    def _request(self, method: str, path: str, **options: Any) -> Any:
        where = self._encoded(path)
        call = partial(_http_info, self.files) if self.protocol in HTTP and method == "info" else method
        return repeat(lambda: self._call(call, where, **options), path)

    def _call(self, method: str | Callable[..., Any], *words: Any, **options: Any) -> Any:
        """Call a method of the file system or a coroutine, which may take TIMEOUT seconds."""
        if not self.files.async_impl:
            return getattr(self.files, str(method))(*words, **options)
        from fsspec.asyn import sync

        call = getattr(self.files, f"_{method}") if isinstance(method, str) else method
        return sync(self.files.loop, call, *words, timeout=TIMEOUT, **options)


class _Reader(io.RawIOBase):
    """A file at an address, read in ranges."""

    def __init__(self, remote: Remote, path: str):
        status = remote.status(path)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._read, self._size, self._at = partial(remote.read, path, status=status), status.size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        content = self._read(self._at, len(buffer))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _stamp(info: Mapping[str, Any]) -> int:
    """Return a number of the first mark of a file."""
    mark = next((str(info[key]) for key in MARKS if info.get(key)), "").removeprefix("W/")
    return int.from_bytes(hashlib.blake2b(mark.encode(), digest_size=7).digest()) if mark else UNMARKED


@cache
def _warn_unmarked(host: str) -> None:
    warnings.warn(
        f"{host} states no ETag, time or other mark of its files, so every process makes their index anew, digests "
        "and data.cache keep nothing of them, and one that changes is noticed by its size alone",
        stacklevel=1,
    )


def _http(files: Any, method: str, url: str, **headers: str) -> Any:
    """Return the request for a file as it is, not compressed, with what fsspec is configured to send."""
    sent = {**files.kwargs.get("headers", {}), "Accept-Encoding": "identity", **headers}
    options = {**files.kwargs, "headers": sent, "allow_redirects": True}
    return files._session.request(method, files.encode_url(url), **options)


def _found(answer: Any, url: str) -> tuple[dict[str, Any], str]:
    """Return the size and the marks of a file by an answer, and the range that it has, such as 0-9. Raises OSError."""
    if answer.status in (404, 410):
        raise FileNotFoundError(errno.ENOENT, "no such file", url)
    if answer.status >= 400 and answer.status != 416:  # of the first byte of an empty file
        refuses = answer.status < 500 and answer.status not in TRANSIENT
        raise (RemoteError if refuses else OSError)(
            errno.EIO, f"the server answers {answer.status} {answer.reason}", url
        )
    is_plain = answer.headers.get("Content-Encoding", "identity") == "identity"
    part, slash, total = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    total = total if slash else answer.headers.get("Content-Length", "")
    size = int(total) if total.isdecimal() and is_plain else None
    marks = {key: answer.headers[key] for key in ("ETag", "Last-Modified") if key in answer.headers}
    return {"type": "file", "size": size, **marks}, part


async def _http_info(files: Any, url: str) -> dict[str, Any]:
    """Return the size and the marks of a file, by a request of its first byte where there is no HEAD."""
    await files.set_session()
    async with _http(files, "HEAD", url) as answer:
        if answer.ok or answer.status in (404, 410):
            info, _ = _found(answer, url)
            if info["size"] is not None:
                return info
    async with _http(files, "GET", url, Range="bytes=0-0") as answer:
        return _found(answer, url)[0]


async def _http_range(files: Any, url: str, start: int, end: int) -> tuple[bytes, dict[str, Any]]:
    """Return bytes of a file, and its size and marks by the same answer."""
    await files.set_session()
    async with _http(files, "GET", url, Range=f"bytes={start}-{end - 1}") as answer:
        info, part = _found(answer, url)
        if answer.status != 206 and (start or info["size"] != end):
            raise RemoteError(errno.EIO, "the server gives whole files alone, no ranges of them", url)
        if answer.status == 206 and part != f"{start}-{end - 1}":
            raise OSError(errno.EIO, f"it gives the bytes {part or 'of no range'} for {start}-{end - 1}", url)
        return await answer.read(), info


async def _s3_range(files: Any, path: str, start: int, end: int) -> tuple[bytes, dict[str, Any]]:
    bucket, key, version = files.split_path(path)
    options = {"VersionId": version} if version else {}
    answer = await files._call_s3("get_object", Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}", **options)
    try:
        size = int(answer["ContentRange"].rpartition("/")[2])
        return await answer["Body"].read(), {**answer, "size": size}
    finally:
        answer["Body"].close()


def _decoded(name: str) -> str:
    """Return a name of an index page, in which % stays quoted where it would be taken for that of a quoted sign."""
    return re.sub("%(?=[0-9A-Fa-f]{2})", "%25", unquote(name))


def open_file(path: str) -> BinaryIO:
    """Open a file of this machine or at an address, which may be read anywhere."""
    return remote(path).open(path) if is_address(path) else open(path, "rb")


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
    """Return what a request returns; where the network fails, it is repeated after a pause.

    Raises:
        RemoteError: it fails for good. FileNotFoundError and NotADirectoryError pass as they are.
    """
    for attempt in range(ATTEMPTS):
        try:
            return request()
        except (RemoteError, FileNotFoundError, NotADirectoryError, NotImplementedError, UserError):
            raise
        except Exception as error:  # packages of file systems have kinds of their own
            what = shown(f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}".removesuffix(": "))
            if isinstance(error, PermissionError):
                raise RemoteError(errno.EACCES, f"the server refuses: {what}", shown(path)) from None
            if attempt == ATTEMPTS - 1:
                reason = f"{ATTEMPTS} requests failed, the last with {what}"
                raise RemoteError(errno.EIO, reason, shown(path)) from None
        time.sleep(PAUSE * 2**attempt)
    raise AssertionError


def shown(text: str) -> str:
    """Return a text whose addresses have no user, password, query and fragment, which may hold a key."""
    return URL.sub(r"\1\2", text)


def has_secret(path: str) -> bool:
    """Return whether an address, or one in a chain with ::, has a password, a query or the like of a signature."""
    for part in path.split("::"):
        protocol, mark, rest = part.partition(ADDRESS)
        user = rest.partition("/")[0].rpartition("@")[0]
        if mark and (":" in user or "?" in rest or ("#" in rest and protocol in HTTP)):
            return True
    return False


def check(path: str, key: str = "data.root") -> None:
    """Raise UserError for an address with a secret, which recipes and logs would show. key: that gives it."""
    if has_secret(path):
        raise UserError(
            f"{key}: an address with a password or a signature would be written to logs; give them to fsspec, by its "
            "configuration or by variables of the environment"
        )
