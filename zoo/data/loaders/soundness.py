"""Files that DALI would fail on, found before it gets them.

Where DALI 2.4 cannot read the segments of one image, it goes on decoding others of the batch into memory that it has
freed, which may end the process. So the segments of JPEG files and the checksums of PNG files are checked before.
Damage in the pixels of a JPEG file is none of that: its decoder goes on with what it has.
"""

import re
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

from zoo.data.dataset import Pending, PlannedSample
from zoo.data.loaders.packed import Failure

JPEG, PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
SOF = (0xC0, 0xC1, 0xC2)
PROGRESSIVE = 0xC2
DHT = 0xC4
EOI = 0xD9
SOS = 0xDA
DQT = 0xDB
DRI = 0xDD
MARKER = re.compile(rb"\xff+([^\x00\xff])")
END_OF_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # 00 and restart markers belong to the pixels
CODE_BITS = 16  # of the longest Huffman code


def check(samples: Sequence[PlannedSample]) -> None:
    """Raise Failure if DALI might not be able to decode one of the files of samples."""
    for sample in samples:
        for value in sample.values():
            for file in value.files if isinstance(value, Pending) else ():
                problem = find_problem(file)
                if problem:
                    raise Failure(problem)


def find_problem(file: bytes) -> str | None:
    """Return why DALI might fail on a JPEG or PNG file with an intact header, None if it should not."""
    try:
        if file.startswith(JPEG):
            return _Jpeg(file).find_problem()
        return _find_png_problem(file)
    except (struct.error, IndexError):
        return "the file ends within a segment"


class _Jpeg:
    """The segments of a JPEG file, one after the other."""

    def __init__(self, file: bytes):
        self.file, self.at = file, len(JPEG)
        self.huffman: set[int] = set()  # tables: class in the upper 4 bits, number in the lower ones
        self.quantization: set[int] = set()
        self.components: dict[int, int] = {}  # id -> quantization table
        self.progressive = self.has_scan = False

    def find_problem(self) -> str | None:
        while True:
            found = MARKER.match(self.file, self.at)
            if not found:
                return "a segment is damaged"
            marker = found[1][0]
            if marker == EOI:
                return None if self.has_scan else "there are no pixels"
            (length,) = struct.unpack_from(">H", self.file, found.end())
            content = self.file[found.end() + 2 : found.end() + length]
            self.at = found.end() + length
            if length < 2 or self.at > len(self.file) - 2:  # where the marker of the end is
                return "the file ends within a segment"
            problem = self._read(marker, content)
            if problem:
                return problem
            if marker == SOS:
                self.has_scan = True
                if not self.progressive and content[0] == len(self.components):
                    return None  # all pixels are in this scan
                following = END_OF_SCAN.search(self.file, self.at)
                if not following:
                    return "the file ends within the pixels"
                self.at = following.start()

    def _read(self, marker: int, content: bytes) -> str | None:
        if marker == DHT:
            tables = _huffman_tables(content)
            self.huffman |= tables or set()
            return None if tables else "a Huffman table is damaged"
        if marker == DQT:
            tables = _quantization_tables(content)
            self.quantization |= tables or set()
            return None if tables else "a quantization table is damaged"
        if marker == DRI:
            return None if len(content) == 2 else "the restart interval is damaged"
        if marker in SOF:
            self.progressive = marker == PROGRESSIVE
            return self._read_frame(content)
        return self._read_scan(content) if marker == SOS else None

    def _read_frame(self, content: bytes) -> str | None:
        count = content[5]
        if self.components or len(content) != 6 + 3 * count:
            return "the frame is damaged"
        for number, sampling, table in zip(content[6::3], content[7::3], content[8::3]):
            if not (1 <= sampling >> 4 <= 4 and 1 <= sampling & 0xF <= 4):
                return "the frame is damaged"
            self.components[number] = table
        return None if len(self.components) == count else "the frame is damaged"

    def _read_scan(self, content: bytes) -> str | None:
        count = content[0]
        if not 1 <= count <= 4 or len(content) != 4 + 2 * count:
            return "a scan is damaged"
        begin, end = content[-3], content[-2]
        for number, tables in zip(content[1:-3:2], content[2:-3:2]):
            if number not in self.components:
                return "a scan is damaged"
            if self.components[number] not in self.quantization:
                return "a quantization table is missing"
            needed = {tables >> 4} if begin == 0 else set()
            needed |= {0x10 | tables & 0xF} if end > 0 else set()
            if content[-1] >> 4 and begin == 0:
                needed = set()  # refined coefficients are stored without a table
            if needed - self.huffman:
                return "a Huffman table is missing"
        if begin > end or end > 63 or (not self.progressive and (begin, end) != (0, 63)):
            return "a scan is damaged"
        return None


@lru_cache(maxsize=256)  # most files have the same tables
def _huffman_tables(content: bytes) -> frozenset[int] | None:
    """Return which tables a segment defines, None if one is damaged."""
    tables = set()
    while content:
        counts = content[1 : 1 + CODE_BITS]
        codes = sum(count << CODE_BITS - bits for bits, count in enumerate(counts, 1))
        end = 1 + CODE_BITS + sum(counts)
        if len(content) < end or codes > 1 << CODE_BITS or sum(counts) > 256 or content[0] & 0xEC:
            return None
        tables.add(content[0])
        content = content[end:]
    return frozenset(tables) or None


@lru_cache(maxsize=256)
def _quantization_tables(content: bytes) -> frozenset[int] | None:
    """Return which tables a segment defines, None if one is damaged."""
    tables = set()
    while content:
        size = 1 + (128 if content[0] >> 4 else 64)
        if len(content) < size or content[0] & 0xEC:
            return None
        tables.add(content[0] & 0xF)
        content = content[size:]
    return frozenset(tables) or None


def _find_png_problem(file: bytes) -> str | None:
    at, rest = len(PNG), memoryview(file)
    while at < len(file):
        length, name = struct.unpack_from(">I4s", file, at)
        end = at + 8 + length
        (checksum,) = struct.unpack_from(">I", file, end)
        if zlib.crc32(rest[at + 4 : end]) != checksum:
            return f"the checksum of {name.decode('latin-1')!r} is wrong"
        if name == b"IEND":
            return None
        at = end + 4
    return "the file has no end"
