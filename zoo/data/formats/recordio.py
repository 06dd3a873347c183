"""RecordIO, the .rec and .idx files in which insightface stores face sets, read and written without MXNet.

A record is a frame: magic word, flag and length, payload, zeros up to a multiple of 4 bytes. Where the payload contains
the magic word at a multiple of 4, the writer splits it there and leaves the word out: such a record is several frames.
The payload is MXNet's image header, more labels if the header counts some, and the encoded image.
"""

import os
import re
import struct
import warnings
import weakref
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from zoo.data import sources, stages
from zoo.data.errors import BadSample, Option, UserError, parsing
from zoo.data.formats import regular

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
FRAME_HEADER = struct.Struct("<II")  # magic; flag in the upper 3 bits, length of the payload in the lower 29
ALIGNMENT = 4  # bytes
WHOLE, FIRST, MIDDLE, LAST = range(4)  # flags: part of the record that a frame holds
IMAGE_HEADER = struct.Struct("<IfQQ")  # number of further labels, label, id, second id
LABEL_LETTERS = {4: "f", 8: "d"}  # by bytes of a further label: its type for the module struct
IMAGE_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF")  # first bytes of JPEG, PNG and WebP
MAX_SPAN = 1 << 20  # bytes that are read at once for a record
MAX_RECORD = (1 << 29) - 1  # bytes; the length has 29 bits
MAX_QUOTED = 60  # bytes of a malformed line in a message


class ImageRecord(NamedTuple):
    labels: tuple[float, ...]  # at least one
    encoded: bytes  # the image file; empty in a record that only holds counts
    label_bytes: int  # bytes per label, 4 or 8


class RecordFile:
    """A .rec file, read by byte offset. It keeps no position, so threads and processes may share or copy it."""

    def __init__(self, path: str):
        self.path = path
        with parsing(
            f"{path}: cannot open this pack", "put it there or name another one with ", Option("data.train", "FILE")
        ):
            self._place = sources.locate(path)
            if self._place:
                self.size = self._place.status().size
                return
            self._file = regular.open_descriptor(path, limit=None)
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def __reduce__(self):
        return RecordFile, (self.path,)  # a process that gets a copy opens the file itself

    @stages.stage(stages.READ)
    def read(self, offset: int, span: int = 0, end: int | None = None) -> bytes:
        """Return the payload of a record, joined from its frames. Raises BadSample.

        Args:
            offset: of the record, in bytes.
            span: bytes to the next record, if known: a record that ends before is read at once.
            end: where the next record begins, which this one must not reach; None if unknown.
        """
        if FRAME_HEADER.size < span <= MAX_SPAN:
            content = self._read_at_most(offset, span)
            payload = _whole_record(content)
            if payload is not None:
                return payload
        return self._read_frames(offset, self.size if end is None else end)

    def _read_frames(self, offset: int, end: int) -> bytes:
        parts: list[bytes] = []
        while True:
            magic, word = FRAME_HEADER.unpack(self._read_bytes(offset, FRAME_HEADER.size))
            flag, length = word >> 29, word & (1 << 29) - 1
            if magic != MAGIC:
                raise BadSample(f"{self.path}: no record begins at byte {offset} (magic {magic:#010x}, not {MAGIC:#x})")
            if flag not in ((MIDDLE, LAST) if parts else (WHOLE, FIRST)):
                raise BadSample(f"{self.path}: the frame at byte {offset} is out of order (flag {flag})")
            if min(offset + FRAME_HEADER.size + length, self.size) > end:
                raise BadSample(f"{self.path}: the frame at byte {offset} ends beyond the beginning of another record")
            parts.append(self._read_bytes(offset + FRAME_HEADER.size, length))
            if flag in (WHOLE, LAST):
                return MAGIC_BYTES.join(parts)
            offset += FRAME_HEADER.size + length + -length % ALIGNMENT

    def _read_bytes(self, offset: int, count: int) -> bytes:
        content = self._read_at_most(offset, count)
        if len(content) < count:
            raise BadSample(f"{self.path}: the file ends within the frame at byte {offset} (it has {self.size} bytes)")
        return content

    def _read_at_most(self, offset: int, count: int) -> bytes:
        count = max(0, min(count, self.size - offset))
        try:
            return self._place.read(offset, count) if self._place else os.pread(self._file, count, offset)
        except OSError as error:
            raise BadSample(f"{self.path}: byte {offset} cannot be read ({error.strerror})") from error


def _whole_record(content: bytes) -> bytes | None:
    """Return the payload of a record of one frame at the start of some bytes; None if they do not hold all of it."""
    if len(content) < FRAME_HEADER.size:
        return None
    magic, length = FRAME_HEADER.unpack_from(content)  # the flag of a whole record is 0
    end = FRAME_HEADER.size + length
    return content[FRAME_HEADER.size : end] if magic == MAGIC and end <= len(content) else None


def unpack_image(payload: bytes) -> ImageRecord:
    """Split the payload of an image record into labels and image. Raises BadSample.

    Labels after the header are 32-bit floats, in some packs 64-bit ones: an image or the end must follow them, which
    tells the two apart.
    """
    if len(payload) < IMAGE_HEADER.size:
        raise BadSample(f"{len(payload)} bytes are too few for an image header")
    count, label, _, _ = IMAGE_HEADER.unpack_from(payload)
    rest = payload[IMAGE_HEADER.size :]
    if not count:
        return ImageRecord((label,), rest, 4)
    for label_bytes, letter in LABEL_LETTERS.items():
        end = count * label_bytes
        if end == len(rest) or (end < len(rest) and rest.startswith(IMAGE_SIGNATURES, end)):
            return ImageRecord(struct.unpack_from(f"<{count}{letter}", rest), rest[end:], label_bytes)
    raise BadSample(f"neither an image nor the end follows its {count} labels")


def spans(offsets: np.ndarray, size: int) -> np.ndarray:
    """Return the bytes from each record to the next one in a file of `size` bytes, or to its end: int64 (n,)."""
    starts = np.unique(offsets)
    return np.append(starts[1:], size)[np.searchsorted(starts, offsets)] - offsets


def read_index(path: str, pack: RecordFile) -> tuple[np.ndarray, np.ndarray]:
    """Read and check the index of a pack.

    Returns:
        Keys and byte offsets of the records, int64 (n,), in ascending order of the keys.
    """
    beside = "it must lie beside the .rec, with the same name"
    with parsing(f"{path}: cannot read the index of the pack", beside), sources.local_path(path) as readable:
        regular.check(os.stat(readable), limit=None)
        numbers = _read_numbers(path, readable)
    if not numbers.size or numbers.size % 2:
        raise UserError(f"{path}: {numbers.size} numbers, but a line holds two, `key<TAB>byte`; copy the file again")
    keys, offsets = numbers.reshape(-1, 2).T
    order = np.argsort(keys, kind="stable")
    keys, offsets = keys[order], offsets[order]
    max_offset = pack.size - FRAME_HEADER.size
    for invalid, problem in (
        (keys < 0, "is negative"),
        (np.append(False, keys[1:] == keys[:-1]), "is given twice"),
        ((offsets < 0) | (offsets > max_offset), f"lies outside {pack.path}, which has {pack.size} bytes"),
        (_repeated(offsets), "lies where that of another key does"),
        (offsets % ALIGNMENT != 0, f"does not lie at a multiple of {ALIGNMENT}"),
    ):
        if invalid.any():
            row = int(invalid.argmax())
            raise UserError(
                f"{path}: key {keys[row]} at byte {offsets[row]} {problem}; one of the two files is cut or "
                "belongs to another pack, copy both again"
            )
    try:
        pack.read(int(offsets.max()))  # a truncated file lacks its last record
    except BadSample as error:
        raise UserError(
            f"{error}; the pack is cut or damaged, or {path} belongs to another one: copy both again"
        ) from None
    return keys, offsets


def _repeated(numbers: np.ndarray) -> np.ndarray:
    """Return which numbers have occurred before: bool (n,)."""
    repeated = np.ones(len(numbers), bool)
    repeated[np.unique(numbers, return_index=True)[1]] = False
    return repeated


def _read_numbers(path: str, readable: str) -> np.ndarray:
    """Read a text file of integers: int64 (n,). readable: path of its contents on this machine."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy stops with a warning at text that is not a number
            return np.fromfile(readable, np.int64, sep=" ")
    except (DeprecationWarning, ValueError):
        number, line = _first_malformed_line(readable)
        raise UserError(
            f"{path}:{number}: expected `key<TAB>byte`, got {line[:MAX_QUOTED].decode(errors='replace')!r}; "
            "copy the file again"
        ) from None


def _first_malformed_line(path: str) -> tuple[int, bytes]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not re.fullmatch(rb"\s*(\d+\s+\d+\s*)?", line):
                return number, line
    return 0, b""


def image_payload(label: int, number: int, content: bytes) -> bytes:
    """Prefix an encoded image or video with MXNet's image header, whose single label is a 32-bit float."""
    return IMAGE_HEADER.pack(0, label, number, 0) + content


def labels_payload(*labels: float) -> bytes:
    """Return an image record without an image, which holds several labels instead."""
    return IMAGE_HEADER.pack(len(labels), 0, 0, 0) + struct.pack(f"<{len(labels)}f", *labels)


def record(payload: bytes) -> bytes:
    """Return a payload as a record, split where it contains the magic word at a multiple of 4 bytes.

    Raises:
        BadSample: The payload is longer than a record may be.
    """
    if len(payload) > MAX_RECORD:
        raise BadSample(f"{len(payload)} bytes are more than a RecordIO record holds ({MAX_RECORD})")
    parts, start = [], 0
    for cut in _aligned_magic_words(payload):
        parts.append(payload[start:cut])
        start = cut + len(MAGIC_BYTES)
    parts.append(payload[start:])
    flags = [WHOLE] if len(parts) == 1 else [FIRST] + [MIDDLE] * (len(parts) - 2) + [LAST]
    return b"".join(
        FRAME_HEADER.pack(MAGIC, flag << 29 | len(part)) + part + bytes(-len(part) % ALIGNMENT)
        for flag, part in zip(flags, parts)
    )


def index_lines(keys: Iterable[int], offsets: Iterable[int]) -> str:
    """Return the text of an .idx file."""
    return "".join(f"{key}\t{offset}\n" for key, offset in zip(keys, offsets))


def _aligned_magic_words(payload: bytes) -> list[int]:
    positions, position = [], payload.find(MAGIC_BYTES)
    while position >= 0:
        aligned = position % ALIGNMENT == 0
        if aligned:
            positions.append(position)
        position = payload.find(MAGIC_BYTES, position + (len(MAGIC_BYTES) if aligned else 1))
    return positions
