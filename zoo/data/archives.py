"""Files within tar and zip archives, such as WebDataset's shards, read in place by an index.

The index of some archives is made once, and kept in the folder that runs share (zoo/data/host.py); all processes map
it. It belongs to the sizes and time stamps of the archives.
"""

import errno
import hashlib
import json
import os
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO, NamedTuple

import numpy as np

from zoo.data import durable, sources
from zoo.data.errors import UserError, parsing
from zoo.data.host import home
from zoo.data.sources import ADDRESS, Status

VERSION = 1  # of the index
THREADS = 16
STORED = -1  # in place of the bytes of a compressed file
LOCAL_HEADER = struct.Struct("<26xHH")  # of a file in a zip archive, whose name and extra field follow
READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1  # flag of a file in a zip archive


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
        offset: of its bytes in the archive.
        packed: bytes that it takes there, STORED if it is not compressed.
        checksum: CRC-32, -1 where the archive has none.
    """

    name: str
    offset: int
    size: int
    packed: int = STORED
    checksum: int = -1


class Archives:
    """Files of several archives as of one folder.

    Args:
        paths: of the archives.
        states: their sizes and stamps.
        names: paths of the files, sorted: bytes (n,).
        rows: int64 (n, 5): number of the archive, offset, size, packed and checksum, as in Member.
    """

    def __init__(self, paths: Sequence[str], states: Sequence[Status], names: np.ndarray, rows: np.ndarray):
        self.paths, self.states, self._names, self._rows = paths, states, names, rows

    def names(self, folder: str) -> dict[str, bool]:
        prefix = os.fsencode(f"{folder}/" if folder else "")
        at, found = self._place(prefix), dict[str, bool]()
        while at < len(self._names) and (path := bytes(self._names[at])).startswith(prefix):
            name, slash, _ = path[len(prefix) :].partition(b"/")
            found[os.fsdecode(name)] = bool(slash)
            at = self._place(prefix + name + b"0") if slash else at + 1  # 0 comes behind /
        return {name: found[name] for name in sorted(found)}

    def status(self, path: str) -> Status | None:
        row = self._row(path)
        return None if row is None else Status(row[2], self.states[row[0]].stamp)

    def read(self, path: str, offset: int, count: int) -> bytes:
        row = self._row(path)
        if row is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        archive, start, size, packed, checksum = row
        if packed == STORED and checksum < 0:
            return self._bytes(archive, start + offset, max(0, min(count, size - offset)))
        content = self._bytes(archive, start, size if packed == STORED else packed)
        if packed != STORED:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, size + 1)
        if len(content) != size or zlib.crc32(content) != checksum:
            raise OSError(errno.EIO, f"its checksum in {self.paths[archive]} is another one", path)
        return content[offset : offset + count]

    def _bytes(self, archive: int, start: int, count: int) -> bytes:
        path = self.paths[archive]
        if ADDRESS in path:
            content = sources.address(path).read(path, start, count)
        else:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                if os.fstat(descriptor).st_mtime_ns != self.states[archive].stamp:
                    raise OSError(errno.ESTALE, f"{path} has changed since the run began", path)
                content = os.pread(descriptor, count, start)
            finally:
                os.close(descriptor)
        if len(content) != count:
            raise OSError(errno.EIO, f"{path} ends within it", path)
        return content

    def _place(self, name: bytes) -> int:
        return int(np.searchsorted(self._names, name)) if len(self._names) else 0

    def _row(self, path: str) -> list[int] | None:
        name = os.fsencode(path)
        at = self._place(name)
        return self._rows[at].tolist() if at < len(self._names) and self._names[at] == name else None


_opened: dict[str, Archives] = {}  # by pattern


def open_archives(pattern: str) -> Archives | None:
    """Return the archives that a path or pattern names; None if it names a folder, or nothing that exists."""
    if pattern not in _opened:
        if ADDRESS not in pattern and os.path.isdir(pattern):
            return None
        paths = sources.matching(pattern)
        with ThreadPoolExecutor(THREADS) as pool:
            states = list(pool.map(_state, paths))
        missing = [path for path, state in zip(paths, states) if state is None]
        if missing and (len(missing) < len(paths) or len(paths) > 1):
            raise UserError(f"{pattern}: there is no {missing[0]}")
        if missing or not paths:
            return None
        _opened[pattern] = _open(paths, [state for state in states if state is not None])
    return _opened[pattern]


def _state(path: str) -> Status | None:
    if ADDRESS in path:
        return sources.address(path).status(path)
    with suppress(OSError):
        status = os.stat(path)
        return Status(status.st_size, status.st_mtime_ns)
    return None


def _open(paths: Sequence[str], states: Sequence[Status]) -> Archives:
    """Map the index of some archives, which is made if there is none for their states."""
    absolute = [path if ADDRESS in path else os.path.abspath(path) for path in paths]
    text = json.dumps([VERSION, *zip(absolute, states)])
    folder = home("archives", hashlib.md5(text.encode(errors="surrogateescape")).hexdigest())
    if not os.path.isdir(folder):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with open(f"{folder}.lock", "w") as lock:
            durable.lock(lock, wait=True)  # of several processes, one makes it
            if not os.path.isdir(folder):
                _write_index(paths, folder)
    names, rows = (np.load(os.path.join(folder, f"{name}.npy"), mmap_mode="r") for name in ("names", "rows"))
    return Archives(paths, states, names, rows)


def _write_index(paths: Sequence[str], folder: str) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(list_archive, paths))
    prefixes = _prefixes(paths, found)
    members: dict[str, tuple[int, Member]] = {}
    for number, (prefix, listed) in enumerate(zip(prefixes, found)):
        for member in listed:
            name = prefix + member.name
            other = members.get(name)
            if other is not None and other[0] != number:
                raise UserError(f"{paths[other[0]]} and {paths[number]} have a file of the same name, {name}")
            members[name] = number, member  # the last one of an archive, as tar unpacks them
    encoded = np.array([os.fsencode(name) for name in members] or [b""])[: len(members)]
    rows = np.array([(number, *member[1:]) for number, member in members.values()], np.int64).reshape(-1, 5)
    order = np.argsort(encoded, kind="stable")
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as temporary:
        made = os.path.join(temporary, "made")
        os.mkdir(made)
        np.save(os.path.join(made, "names.npy"), encoded[order])
        np.save(os.path.join(made, "rows.npy"), rows[order])
        os.rename(made, folder)


def _prefixes(paths: Sequence[str], found: Sequence[Sequence[Member]]) -> list[str]:
    """Return the folder that the files of each archive are shown in: its split, where its name states one.

    That of imagenet-train-0001.tar is train/, unless its files lie in one already.
    """
    from zoo.data.formats.splits import split_of  # which reads folders by this module

    prefixes = []
    for path, listed in zip(paths, found):
        split = split_of(os.path.basename(path)[:-4])
        is_there = any(split_of(member.name.partition("/")[0]) for member in listed if "/" in member.name)
        prefixes.append(f"{split}/" if split and not is_there else "")
    return prefixes


def list_archive(path: str) -> list[Member]:
    """Return the regular files of an archive. Raises UserError if it cannot be read."""
    remedy = "it should be a tar archive, not compressed, or a zip archive"
    with parsing(f"{path}: cannot be read", remedy), _open_archive(path) as file:
        listed = _zip_members(file) if path.endswith(".zip") else _tar_members(file)
        return [member._replace(name=_checked(path, member.name)) for member in listed]


def _open_archive(path: str) -> BinaryIO:
    return sources.address(path).open(path) if ADDRESS in path else open(path, "rb")


def _checked(path: str, name: str) -> str:
    name = name.removeprefix("./")
    if name.startswith("/") or "\\" in name or ".." in name.split("/"):
        raise UserError(f"{path}: the name {name} leads out of the archive; pack the files anew")
    return name


def _tar_members(file: BinaryIO) -> Iterator[Member]:
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            if member.isreg() and not member.issparse():
                yield Member(member.name, member.offset_data, member.size)
            archive.members = []  # type: ignore[attr-defined]  # which tarfile would keep


def _zip_members(file: BinaryIO) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            if info.compress_type not in READABLE or info.flag_bits & ENCRYPTED:
                raise ValueError(f"{info.filename} is encrypted, or compressed by another method than deflate")
            file.seek(info.header_offset)
            begin = info.header_offset + LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size)))
            packed = STORED if info.compress_type == zipfile.ZIP_STORED else info.compress_size
            yield Member(info.filename, begin, info.file_size, packed, info.CRC)
