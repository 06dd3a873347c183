"""RecordIO, the .rec and .idx files that insightface keeps face sets in: read without MXNet.

A record is a frame (magic word, kind and length, payload, zeros up to a multiple of 4 bytes). Where the payload holds
the magic word at a multiple of 4, the writer cuts it there and leaves the word out: such a record is several frames.
The payload is MXNet's image header, more labels if its flag counts some, and the encoded picture.
"""

import os
import re
import struct
import warnings
import weakref
from typing import NamedTuple

import numpy as np

from data.errors import BadSample, UserError

MAGIC = 0xCED7230A
WORD = struct.pack("<I", MAGIC)
FRAME = struct.Struct("<II")  # magic; kind in the upper 3 bits, length of the payload in the lower 29
WHOLE, FIRST, MIDDLE, LAST = range(4)
HEADER = struct.Struct("<IfQQ")  # flag, label, id, second id
PICTURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF")  # how JPEG, PNG and WebP begin


class Content(NamedTuple):
    """What an image record holds. width: bytes of a label, 4 or 8."""

    labels: np.ndarray  # float64 (n,), n >= 1
    body: bytes  # the encoded picture; empty in a record that only counts
    width: int


class RecordFile:
    """Records by their byte offset. Reading keeps no position: threads and processes may share or copy it.

    Raises UserError for a file that cannot be opened.
    """

    def __init__(self, path: str):
        self.path = path
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise UserError(
                f"{path}: cannot open this pack ({error.strerror}); put it there or name another one with "
                "-o data.train=FILE"
            ) from None
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def __reduce__(self):
        return RecordFile, (self.path,)  # a process that gets a copy opens the file itself

    def read(self, offset: int) -> bytes:
        """The payload of the record at this byte, its parts put together. Raises BadSample."""
        parts, place = [], offset
        while True:
            magic, word = FRAME.unpack(self._bytes(place, FRAME.size))
            kind, length = word >> 29, word & (1 << 29) - 1
            if magic != MAGIC:
                raise BadSample(f"{self.path}: no record begins at byte {place} (magic {magic:#010x}, not {MAGIC:#x})")
            if kind not in ((MIDDLE, LAST) if parts else (WHOLE, FIRST)):
                raise BadSample(f"{self.path}: a frame of kind {kind} at byte {place} is out of order")
            parts.append(self._bytes(place + FRAME.size, length))
            if kind in (WHOLE, LAST):
                return WORD.join(parts)
            place += FRAME.size + length + -length % 4

    def _bytes(self, place: int, count: int) -> bytes:
        try:
            found = os.pread(self._file, count, place)
        except OSError as error:
            raise BadSample(f"{self.path}: byte {place} cannot be read ({error.strerror})") from None
        if len(found) < count:
            raise BadSample(f"{self.path}: the file ends within the frame at byte {place} (it has {self.size} bytes)")
        return found


def unpack(payload: bytes) -> Content:
    """Labels and picture of an image record. Raises BadSample.

    Labels behind the header are 32-bit floats, in some packs 64-bit ones: what follows them tells, since it must be a
    picture or the end.
    """
    if len(payload) < HEADER.size:
        raise BadSample(f"{len(payload)} bytes are too few for an image header")
    flag, label, _, _ = HEADER.unpack_from(payload)
    rest = payload[HEADER.size :]
    if not flag:
        return Content(np.array([label]), rest, 4)
    for width in (4, 8):
        body = rest[flag * width :]
        if flag * width == len(rest) or body.startswith(PICTURES):
            return Content(np.frombuffer(rest, f"<f{width}", flag).astype(np.float64), body, width)
    raise BadSample(f"neither a picture nor the end follows its {flag} labels")


def read_index(path: str, pack: RecordFile) -> tuple[np.ndarray, np.ndarray]:
    """Keys and byte offsets of the records, int64 (n,), by rising key. Raises UserError naming file, key and byte."""
    numbers = _numbers(path)
    if not numbers.size or numbers.size % 2:
        raise UserError(f"{path}: {numbers.size} numbers, but a line holds two, `key<TAB>byte`; copy the file again")
    keys, offsets = numbers.reshape(-1, 2).T
    order = np.argsort(keys, kind="stable")
    keys, offsets = keys[order], offsets[order]
    for wrong, what in (
        (keys < 0, "is negative"),
        (np.append(False, keys[1:] == keys[:-1]), "is given twice"),
        ((offsets < 0) | (offsets > pack.size - FRAME.size), f"lies outside {pack.path}, which has {pack.size} bytes"),
        (offsets % 4 != 0, "lies at no multiple of 4"),
    ):
        if wrong.any():
            at = int(wrong.argmax())
            raise UserError(
                f"{path}: key {keys[at]} at byte {offsets[at]} {what}; one of the two files is cut or "
                "belongs to another pack, copy both again"
            )
    try:
        pack.read(int(offsets.max()))  # the last one: what is missing at the end of a file shows here
    except BadSample as error:
        raise UserError(
            f"{error}; the pack is cut or damaged, or {path} belongs to another one: copy both again"
        ) from None
    return keys, offsets


def _numbers(path: str) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy stops at what is no number, with a warning
            return np.fromfile(path, np.int64, sep=" ")
    except OSError as error:
        raise UserError(
            f"{path}: cannot read the index of the pack ({error.strerror}); it must lie beside the .rec, "
            "with the same name"
        ) from None
    except (DeprecationWarning, ValueError):
        with open(path, "rb") as file:
            number, line = next(
                (
                    (number, line)
                    for number, line in enumerate(file, 1)
                    if not re.fullmatch(rb"\s*(\d+\s+\d+\s*)?", line)
                ),
                (0, b""),
            )
        raise UserError(
            f"{path}:{number}: expected `key<TAB>byte`, got {line[:60].decode(errors='replace')!r}; copy the file again"
        ) from None
