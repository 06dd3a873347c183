"""Digests of what files contain, for the checksum of a data set.

Of a large file, blocks are read that are spread evenly over it; digests are kept in the user's cache folder, by path,
size and time stamps, so that a million files cost a minute once and seconds afterwards. A digest does not depend on
path, time or machine. The same file has the same digest in a folder and as a record of a pack.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from zoo.data import durable, sources
from zoo.data.addresses import UNMARKED, RemoteError, Status, is_address
from zoo.data.errors import BadSample, UserError
from zoo.data.host import home

WHOLE_SIZE = 16384  # bytes; smaller files are read whole
BLOCK = 4096  # bytes
BASE_BLOCKS = 3  # of a larger file: the first, the middle and the last ...
BYTES_PER_BLOCK = 8 << 20  # ... and another one for so many bytes
READ_SIZE = 1 << 20  # bytes that are read at once
DIGEST_SIZE = 16  # bytes
THREADS = 16
TASK_SIZE = 256  # files
BATCH_TASKS = 64  # tasks that are listed at once
SETTLED = 2_000_000_000  # nanoseconds; a file that was changed later may change again with the same time stamp
WORTH_KEEPING = 1.0  # seconds; digests that took less are not kept
VERSION = b"1"  # of what a digest covers


class Content(NamedTuple):
    """A file, or a record of a pack (data/formats/recordio.py), which is read without its header.

    Attributes:
        offset: of the record in bytes; None for a whole file.
    """

    path: str
    offset: int | None = None


Read = Callable[[int, int], bytes]  # offset and number of bytes -> the bytes


def digests(contents: Iterable[Content], root: str, full: bool = False) -> np.ndarray:
    """Return the digests of files, in their order: uint64 (n, 2).

    A missing or damaged file has a digest of its own kind, which changes when it is repaired.

    Args:
        root: folder of the data set, to which the digests that are kept belong.
        full: whether all bytes are read.
    """
    path = _kept_path(root, full)
    kept, start = _load(path), time.monotonic()
    tables, keep, iterator = [np.zeros((0, 3), np.uint64)], [np.zeros(0, bool)], iter(contents)
    with ThreadPoolExecutor(THREADS) as pool:
        while tasks := [task for _ in range(BATCH_TASKS) if (task := list(islice(iterator, TASK_SIZE)))]:
            for table, settled in pool.map(partial(_digest_files, kept, full), tasks):
                tables.append(table)
                keep.append(settled)
    table = np.concatenate(tables)
    if time.monotonic() - start > WORTH_KEEPING:
        _save(path, table[np.concatenate(keep)])
    return table[:, 1:]


def digest_file(content: Content, full: bool = False) -> bytes:
    """Return the digest of one file or record: DIGEST_SIZE bytes over its length and its bytes, or blocks of them."""
    return _digest(content, full)[0]


def _digest(content: Content, full: bool) -> tuple[bytes, bool]:
    """Return a digest, and whether the file was read. Raises UserError where a server fails."""
    try:
        if (place := sources.locate(content.path)) and content.offset is None:
            return _hash(place.status().size, place.read, full), True
        if place:
            return _digest_encoded(content, full), True
        descriptor = os.open(content.path, os.O_RDONLY | os.O_NONBLOCK)  # which does not wait at a pipe
        try:
            if content.offset is None:
                length = os.fstat(descriptor).st_size
                return _hash(length, partial(_read_at, descriptor, 0), full), True
            return _digest_record(descriptor, content, full), True
        finally:
            os.close(descriptor)
    except (OSError, BadSample, UserError) as error:
        cause = error if isinstance(error, OSError) else error.__context__
        if isinstance(cause, RemoteError):  # a checksum of an outage would belong to no data
            again = "run the same command again when it can be read"
            raise UserError(f"{content.path}: no checksum, because {cause.strerror}; {again}") from None
        problem = f"cannot be read: {error.errno}" if isinstance(error, OSError) else "damaged"
        return _mark(problem), False


def digest_bytes(content: bytes) -> bytes:
    return _hash(len(content), lambda start, count: content[start : start + count], False)


def sampled_frames(count: int) -> list[int]:
    """Return the numbers of the frames that stand for a clip of so many frames: the first, the middle, the last."""
    return sorted({0, count // 2, max(count - 1, 0)})


def _kept_path(root: str, full: bool) -> str:
    name = hashlib.md5(os.fsencode(sources.absolute(root))).hexdigest()
    return home("digests", f"{name}-{'full' if full else 'sampled'}.npy")


def _load(path: str) -> np.ndarray:
    """Read a table of kept digests, uint64 (n, 3): sorted keys, digests; empty if it is missing or damaged."""
    try:
        table = np.load(path, allow_pickle=False)
        if table.dtype == np.uint64 and table.shape[1:] == (3,) and bool(np.all(table[:-1, 0] <= table[1:, 0])):
            return table
    except (OSError, ValueError, EOFError, AttributeError):
        pass
    return np.zeros((0, 3), np.uint64)


def _save(path: str, table: np.ndarray) -> None:
    """Keep digests for the next run, which only saves time: errors are ignored."""
    temporary = f"{path}.{os.getpid()}"
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "wb", opener=durable.fresh) as file:
            np.save(file, table[np.unique(table[:, 0], return_index=True)[1]])
        os.replace(temporary, path)


def _digest_files(kept: np.ndarray, full: bool, contents: list[Content]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and digests of some files, uint64 (n, 3), and which of them may be kept."""
    now, here, stats, keep = time.time_ns(), os.getcwd(), dict[str, Status | None](), []
    for path in {content.path for content in contents}:
        try:
            stats[path] = _status(path)
        except OSError:
            stats[path] = None
    table = np.zeros((len(contents), 3), np.uint64)
    table[:, 0] = [_key(content, stats[content.path], here) for content in contents]
    rows = np.searchsorted(kept[:, 0], table[:, 0])
    for index, (content, row) in enumerate(zip(contents, rows.tolist())):
        if row < len(kept) and kept[row, 0] == table[index, 0]:
            table[index] = kept[row]
            is_read = True
        else:
            digest, is_read = _digest(content, full)
            table[index, 1:] = np.frombuffer(digest, np.uint64)
        keep.append(is_read and _is_settled(stats[content.path], now))
    return table, np.array(keep, bool)


def _status(path: str) -> Status:
    place = sources.locate(path)
    return place.status() if place else Status.of(os.stat(path))


def _key(content: Content, status: Status | None, here: str) -> int:
    """Return a number that changes when a file does, as far as its path, size and time stamps tell."""
    path, offset = content
    known = f"{status.size} {status.stamp}" if status else ""
    text = f"{'' if path[:1] == '/' or is_address(path) else here}\0{path}\0{offset}\0{known}"
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def _is_settled(status: Status | None, now: int) -> bool:
    """Return whether a file will have another stamp when it changes."""
    return status is not None and status.stamp != UNMARKED and now - status.stamp > SETTLED


def _digest_record(descriptor: int, content: Content, full: bool) -> bytes:
    """Return the digest of a record, which equals that of a file with the same bytes."""
    from zoo.data.formats.recordio import FRAME_HEADER, IMAGE_HEADER, MAGIC

    offset = content.offset or 0
    head = os.pread(descriptor, FRAME_HEADER.size + IMAGE_HEADER.size, offset)
    if len(head) == FRAME_HEADER.size + IMAGE_HEADER.size:
        magic, word = FRAME_HEADER.unpack_from(head)
        labels = IMAGE_HEADER.unpack_from(head, FRAME_HEADER.size)[0]
        if magic == MAGIC and word >> 29 == 0 and not labels:  # one frame, and the file follows the header
            return _hash(word - IMAGE_HEADER.size, partial(_read_at, descriptor, offset + len(head)), full)
    return _digest_encoded(content, full)


def _digest_encoded(content: Content, full: bool) -> bytes:
    from zoo.data.formats.recordio import RecordFile, unpack_image

    encoded = unpack_image(RecordFile(content.path).read(content.offset or 0)).encoded
    return _hash(len(encoded), lambda start, count: encoded[start : start + count], full)


def _hash(length: int, read: Read, full: bool) -> bytes:
    digest = hashlib.blake2b(length.to_bytes(8, "little", signed=True), digest_size=DIGEST_SIZE)
    if full or length <= WHOLE_SIZE:
        for start in range(0, length, READ_SIZE):
            digest.update(read(start, min(READ_SIZE, length - start)))
    else:
        count = BASE_BLOCKS + length // BYTES_PER_BLOCK
        for number in range(count):
            digest.update(read((length - BLOCK) * number // (count - 1), BLOCK))
    return digest.digest()


def _read_at(descriptor: int, start: int, offset: int, count: int) -> bytes:
    return os.pread(descriptor, count, start + offset)


def _mark(problem: str) -> bytes:
    return hashlib.blake2b(problem.encode(), digest_size=DIGEST_SIZE, person=b"problem").digest()
