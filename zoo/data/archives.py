"""Files within tar and zip archives, such as WebDataset's shards, read in place by an index.

The index of some archives is made once, and kept in the folder that runs share (zoo/data/host.py); all processes map
it. It belongs to the sizes and time stamps of the archives, and is made again if its files are damaged.
"""

import errno
import glob
import hashlib
import json
import os
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import numpy as np

from zoo.data import addresses, durable, tables
from zoo.data.addresses import Status
from zoo.data.errors import UserError, parsing
from zoo.data.formats import archive_members
from zoo.data.formats.archive_members import STORED, Member
from zoo.data.formats.file_names import split_of
from zoo.data.host import home

VERSION = 4  # of the index
MAX_ARCHIVES = 100_000  # that one pattern names
ARRAYS = ("names.npy", "rows.npy", "kept.npy")  # files of the index
THREADS = 16
LOCAL_HEADER = struct.Struct("<26xHH")  # of a file in a zip archive: sizes of its name and extra field, which follow
NAME_SIZE = 1024  # bytes of these two that are read with a file


class Archives:
    """Files of several archives as of one folder.

    Args:
        paths: of the archives.
        states: their sizes and stamps.
        names: paths of the files, sorted: bytes (n,).
        rows: int64 (n, 6): number of the archive, offset, size, packed and checksum, as in Member, and where the
            content begins in `kept`, -1 for none.
        kept: contents of small files, one behind the other, uint8.
    """

    def __init__(
        self, paths: Sequence[str], states: Sequence[Status], names: np.ndarray, rows: np.ndarray, kept: np.ndarray
    ):
        self.paths, self.states, self._names, self._rows, self._kept = paths, states, names, rows, kept

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
        archive, start, size, packed, checksum, place = row
        count = max(0, min(count, size - offset))
        if place >= 0:
            return self._kept[place + offset : place + offset + count].tobytes()
        if checksum < 0:
            return self._bytes(archive, start + offset, count)
        if packed == STORED and count < size:  # such as a record of a pack, which has no checksum of its own
            return self._zipped(archive, start, offset, count)
        content = self._zipped(archive, start, 0, size if packed == STORED else packed)
        if packed != STORED:
            content = _unpacked(content, size)
        if len(content) != size or zlib.crc32(content) != checksum:
            raise OSError(errno.EBADMSG, f"its checksum in {self.paths[archive]} is another one", path)
        return content[offset : offset + count]

    def _zipped(self, archive: int, start: int, offset: int, count: int) -> bytes:
        """Return bytes from behind the header of a file in a zip archive, fewer at the end of a damaged one."""
        left = max(0, self.states[archive].size - start)
        content = self._bytes(archive, start, min(LOCAL_HEADER.size + NAME_SIZE + (0 if offset else count), left))
        begin = LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack(content[: LOCAL_HEADER.size].ljust(LOCAL_HEADER.size)))
        begin += offset
        if begin + count > len(content):
            return self._bytes(archive, start + begin, max(0, min(count, left - begin)))
        return content[begin : begin + count]

    def _bytes(self, archive: int, start: int, count: int) -> bytes:
        path = self.paths[archive]
        if addresses.is_address(path):
            content = addresses.remote(path).read(path, start, count, self.states[archive])
        else:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                if Status.of(os.fstat(descriptor)).stamp != self.states[archive].stamp:
                    raise OSError(errno.ESTALE, f"{path} has changed since the run began", path)
                content = os.pread(descriptor, count, start)
            finally:
                os.close(descriptor)
        if len(content) != count:
            raise OSError(errno.EIO, f"{path} gives {len(content)} bytes of {count}", path)
        return content

    def _place(self, name: bytes) -> int:
        return int(np.searchsorted(self._names, name)) if len(self._names) else 0

    def _row(self, path: str) -> list[int] | None:
        name = os.fsencode(path)
        at = self._place(name)
        return self._rows[at].tolist() if at < len(self._names) and self._names[at] == name else None


def _unpacked(content: bytes, size: int) -> bytes:
    """Return at most size + 1 bytes of what was compressed; none if it is damaged."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, size + 1)
    except zlib.error:
        return b""


_opened: dict[str, Archives] = {}  # by pattern


def open_archives(pattern: str) -> Archives | None:
    """Return the archives that a path or pattern names; None if it names a folder, or nothing that exists."""
    if pattern not in _opened:
        if not addresses.is_address(pattern) and os.path.isdir(pattern):
            return None
        paths = matching(pattern)
        with ThreadPoolExecutor(THREADS) as pool:
            states = list(pool.map(_state, paths))
        missing = [path for path, state in zip(paths, states) if state is None]
        if missing and (len(missing) < len(paths) or len(paths) > 1):
            raise UserError(f"{pattern}: there is no {missing[0]}")
        if missing or not paths:
            return None
        _opened[pattern] = _open(paths, [state for state in states if state is not None])
    return _opened[pattern]


def matching(pattern: str) -> list[str]:
    """Return the files that a pattern with braces and * stands for, in its order."""
    found = []
    for path in expand(pattern):
        if "*" not in path:
            found.append(path)
        elif addresses.is_address(path):
            found += addresses.remote(path).matching(path)
        else:
            found += sorted(glob.glob(re.sub(r"[\[?]", r"[\g<0>]", path)) or glob.glob(path))
    return found


def _state(path: str) -> Status | None:
    if addresses.is_address(path):
        return addresses.remote(path).status(path)
    with suppress(OSError):
        return Status.of(os.stat(path))
    return None


def _open(paths: Sequence[str], states: Sequence[Status]) -> Archives:
    """Map the index of some archives, which is made if there is none for their states; tables are unpacked before."""
    absolute = [path if addresses.is_address(path) else os.path.abspath(path) for path in paths]
    if any(state.stamp == addresses.UNMARKED for state in states):
        if table := next((path for path in absolute if path.endswith(tables.TABLES)), None):
            raise UserError(f"{table}: is unpacked once, but its server states no ETag or time of it; download it")
        return Archives(absolute, states, *index(absolute))
    text = json.dumps([VERSION, *zip(absolute, states)])
    folder = home("archives", hashlib.md5(text.encode(errors="surrogateescape")).hexdigest())
    loaded = _load_index(folder)
    if loaded is None:
        try:
            os.makedirs(home("archives"), exist_ok=True)
            with open(home("archives", "lock"), "w") as lock:
                durable.lock(lock, wait=True)  # of several processes, one makes it
                loaded = _load_index(folder)
                if loaded is None:
                    shutil.rmtree(folder, ignore_errors=True)  # a damaged one
                    sizes = [state.size for state in states]
                    loaded = _write_index(folder, tables.unpack(absolute, sizes, f"{folder}-unpacked"))
        except OSError as error:
            remedy = "make room, or set ZOO_HOME to another folder"
            raise UserError(f"{folder} cannot be written: {error.strerror}; {remedy}") from None
    read, *arrays = loaded
    if read != absolute:  # tables have been unpacked
        paths, found = read, list(map(_state, read))
        states = [state for state in found if state is not None]
        if len(states) < len(found):
            raise UserError(f"{read[found.index(None)]} is gone; remove {folder}, too, so that it is made again")
    return Archives(paths, states, *arrays)


def index(paths: Sequence[str]) -> tuple[np.ndarray, ...]:
    """Return names, rows and kept contents of Archives for the files of some archives."""
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
    rows = np.full((len(members), 6), -1, np.int64)
    kept = bytearray(b"\0")  # an empty file cannot be mapped
    for row, (number, member) in zip(rows, members.values()):
        row[:5] = number, *member[1:5]
        if member.content:
            row[5] = len(kept)
            kept += member.content
    order = np.argsort(encoded, kind="stable")
    return encoded[order], rows[order], np.frombuffer(kept, np.uint8)


Index = tuple[list[str], *tuple[np.ndarray, ...]]  # paths, and the arrays of Archives


def _load_index(folder: str) -> Index | None:
    """Map the index in a folder; None if there is none, or its files are not those that were written."""
    with suppress(OSError, ValueError, TypeError):
        with open(os.path.join(folder, "paths.json"), "rb") as file:
            paths, digest = json.load(file)
        if digest == _digest(folder, paths):
            return _map_index(folder, paths)
    return None


def _map_index(folder: str, paths: list[str]) -> Index:
    return paths, *(np.load(os.path.join(folder, name), mmap_mode="r") for name in ARRAYS)


def _digest(folder: str, paths: Sequence[str]) -> str:
    digest = hashlib.blake2b(json.dumps(paths).encode())
    for name in ARRAYS:
        with open(os.path.join(folder, name), "rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def _write_index(folder: str, paths: list[str]) -> Index:
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as temporary:
        made = os.path.join(temporary, "made")
        os.mkdir(made)
        for name, array in zip(ARRAYS, index(paths)):
            np.save(os.path.join(made, name), array)
        with open(os.path.join(made, "paths.json"), "w") as file:
            json.dump([paths, _digest(made, paths)], file)
        os.rename(made, folder)
    return _map_index(folder, paths)


def _prefixes(paths: Sequence[str], found: Sequence[Sequence[Member]]) -> list[str]:
    """Return the folder that the files of each archive are shown in: its split, where its name states one.

    That of imagenet-train-0001.tar is train/, unless its files lie in one already. Raises UserError for a folder that
    may be a class of this name: without folders in it, beside others in the archives of the split.
    """
    splits = [split_of(os.path.basename(path)[:-4]) for path in paths]
    tops = [{member.name.partition("/")[0] for member in listed if "/" in member.name} for listed in found]
    named = [{top for top in each if split_of(top)} for each in tops]
    others = {split: top for split, each, own in zip(splits, tops, named) for top in each - own}
    for path, split, listed, own in zip(paths, splits, found, named):
        nested = {top for top, _, rest in (member.name.partition("/") for member in listed) if "/" in rest}
        if split and split in others and (flat := own - nested):
            raise UserError(
                f"{path}: is its folder {min(flat)}/ a split, or a class such as {others[split]}? Pack classes in a "
                f"folder {split}/, or else leave {split} out of the archive's name"
            )
    return [f"{split}/" if split and not own else "" for split, own in zip(splits, named)]


def list_archive(path: str) -> list[Member]:
    """Return the regular files of an archive. Raises UserError if it cannot be read."""
    remedy = "it should be a tar archive, not compressed, or a zip archive"
    with parsing(f"{path}: cannot be read", remedy), addresses.open_file(path) as file:
        return archive_members.list_zip(file) if path.lower().endswith(".zip") else archive_members.list_tar(file)


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
