"""Mutations of bytes, of text, and of formats that are a sequence of records with lengths and checksums."""

import random
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

Mutation = Callable[[random.Random, bytes], bytes]

MAX_SIZE = 1 << 18  # bytes of an input, beyond which nothing is added to it
INTEGERS = (0, 1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 65536, (1 << 24) - 1, (1 << 31) - 1, 1 << 31,
            (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
FORMATS = ("<B", ">H", "<H", ">I", "<I", ">Q", "<Q")
NUMBERS = (b"0", b"-1", b"-0.0", b"1e999", b"NaN", b"Infinity", b"1e-320", b"4294967296", b"9223372036854775808",
           b"300000000", b"18446744073709551615", b"9" * 400, b"1" * 5000, "\u0664".encode(), b"0x10",
           b"1_0")  # fmt: skip
DIGITS = re.compile(rb"-?\d+(?:\.\d+)?")
TEXTS = (b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b" ", b"\t", b"..", b"/", b"../../x",
         b"/etc/passwd", b"{}", b"%s%n", b"\xe2\x80\xae", b"\xed\xa0\x80", b"a" * 3000, b"/dev/zero", b"\\", b'"',
         b"'", b"#", b":", b",", b"[", b"]", b"{", b"}")  # fmt: skip


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """Flip, set, cut, repeat, move or add bytes."""
    at, (start, end) = place(rng, content), span(rng, content)
    part, rest = content[start:end], content[:start] + content[end:]
    match rng.randrange(11):
        case 0 | 1:
            changed = bytearray(content)
            for _ in range(rng.choice((1, 1, 2, 4, 16)) if content else 0):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 2:
            value, count = rng.choice((0, 1, 127, 128, 255, rng.randrange(256))), rng.choice((1, 1, 2, 4, 8))
            return content[:at] + bytes([value]) * count + content[at + count :]
        case 3 | 4:
            return set_integer(rng, content)
        case 5:
            return content[:at]
        case 6:
            return rest
        case 7:
            return content[:end] + part * rng.choice((1, 1, 2, 50)) + content[end:]
        case 8:
            at = place(rng, rest)
            return rest[:at] + part + rest[at:]
        case 9:
            more = rng.choice((bytes(8), b"\xff" * 8, rng.randbytes(rng.randrange(1, 40))))
            return content[:at] + more + content[at:]
        case _:
            return content + rng.choice((b"\0", bytes(100), rng.randbytes(20), content[:100]))


def set_integer(rng: random.Random, content: bytes) -> bytes:
    """Set a field of 1 to 8 bytes to an extreme."""
    layout = rng.choice(FORMATS)
    size = struct.calcsize(layout)
    number = rng.choice((*INTEGERS, len(content), len(content) - 1, rng.getrandbits(64))) & (1 << 8 * size) - 1
    at = place(rng, content)
    if rng.random() < 0.5:  # most formats align their fields
        at -= at % min(size, 4)
    return content[:at] + struct.pack(layout, number) + content[at + size :]


def mutate_text(rng: random.Random, content: bytes) -> bytes:
    """Replace a number, insert text, or delete, repeat, swap or cut lines."""
    draw = rng.randrange(6)
    numbers = list(DIGITS.finditer(content))
    if draw < 2 and numbers:
        found = rng.choice(numbers)
        return content[: found.start()] + rng.choice(NUMBERS) + content[found.end() :]
    if draw < 4:
        at = place(rng, content)
        return content[:at] + rng.choice(TEXTS) + content[at:]
    lines = content.splitlines(keepends=True) or [b""]
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines[at:at] = [lines[at]] * rng.choice((1, 2, 100))
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    return b"".join(lines)


def splice(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """Return the beginning of one file and the end of another."""
    return content[: place(rng, content)] + other[place(rng, other) :]


def place(rng: random.Random, content: bytes) -> int:
    """Draw a position, often near the beginning, where headers are."""
    if len(content) > 64 and rng.random() < 0.4:
        return rng.randrange(64)
    return rng.randrange(len(content) + 1)


def span(rng: random.Random, content: bytes) -> tuple[int, int]:
    """Draw a part of a file, mostly a short one."""
    start = place(rng, content)
    return start, min(len(content), start + rng.choice((1, 2, 4, 8, 16, 64, 1 + rng.randrange(len(content) + 1))))


Records = list[tuple[bytes, bytes]]  # name and payload; without a name, bytes between the records


class Chunks(NamedTuple):
    """A format of records with a name, a length and a payload.

    Attributes:
        names: that a record may have.
        length: layout of the length, as struct has it.
        head: bytes before the first record, and before the first one within another.
        counted: bytes that the length counts beside the payload.
        is_first: whether the length comes before the name.
        align: to which the payload is filled.
        has_crc: whether a CRC-32 follows.
        bits: of the length; what is above them belongs to the name.
        last: name of the record after which there are none.
        nested: names of records that hold records.
    """

    names: Sequence[bytes]
    length: str
    head: tuple[int, int] = (0, 0)
    counted: int = 0
    is_first: bool = False
    align: int = 1
    has_crc: bool = False
    bits: int = 32
    last: bytes | None = None
    nested: Sequence[bytes] = ()

    def split(self, content: bytes, is_inner: bool) -> Records:
        """Split a file, or the payload of a record. Raises struct.error or ValueError for other formats."""
        at, size = self.head[is_inner], len(self.names[0]) - (self.bits < 32)
        found: Records = [(b"", content[:at])] if at else []
        width = struct.calcsize(self.length)
        while at + size + width <= len(content):
            name_at, length_at = (at + width, at) if self.is_first else (at, at + size)
            (word,) = struct.unpack_from(self.length, content, length_at)
            length = (word & (1 << self.bits) - 1) - self.counted
            if length < 0:
                raise ValueError("not a record")
            name = content[name_at : name_at + size] + (bytes([word >> self.bits]) if self.bits < 32 else b"")
            at += size + width
            found.append((name, content[at : at + length]))
            at += length + -length % self.align + 4 * self.has_crc
            if name == self.last:
                break
        return [*found, (b"", content[at:])]

    def join(self, found: Records) -> bytes:
        return b"".join(self._pack(name, payload) if name else payload for name, payload in found)

    def _pack(self, name: bytes, payload: bytes) -> bytes:
        word = len(payload) + self.counted
        if self.bits < 32:
            name, word = name[:-1], name[-1] << self.bits | word
        length = struct.pack(self.length, word & (1 << 8 * struct.calcsize(self.length)) - 1)
        crc = struct.pack(">I", zlib.crc32(name + payload)) if self.has_crc else b""
        head = length + name if self.is_first else name + length
        return head + payload + bytes(-len(payload) % self.align) + crc

    def is_nested(self, name: bytes) -> bool:
        return name in self.nested


class Messages(NamedTuple):
    """Protocol buffers; the name of a field is its key."""

    names: Sequence[bytes]

    def split(self, content: bytes, is_inner: bool) -> Records:
        found: Records = []
        at = 0
        while at < len(content):
            key, start = _read_varint(content, at)
            name = content[at:start]
            if key & 7 == 0:
                _, end = _read_varint(content, start)
            elif key & 7 == 2:
                length, start = _read_varint(content, start)
                end = start + length
            else:
                raise ValueError("not a message")
            if end > len(content):
                raise ValueError("it is cut")
            found.append((name, content[start:end]))
            at = end
        return found

    def join(self, found: Records) -> bytes:
        return b"".join(
            name + (varint(len(payload)) if self.is_nested(name) else b"") + payload for name, payload in found
        )

    def is_nested(self, name: bytes) -> bool:
        return bool(name) and name[0] & 7 == 2


def varint(value: int) -> bytes:
    """Return a number of a protocol buffer."""
    head = b""
    while value > 127:
        head, value = head + bytes([value & 127 | 128]), value >> 7
    return head + bytes([value])


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at


BOXES = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"udta", b"dinf", b"moof", b"traf")
PNG = Chunks((b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"eXIf", b"zTXt", b"iTXt", b"acTL", b"fcTL", b"fdAT",
              b"iCCP", b"xxxx"), ">I", (8, 0), is_first=True, has_crc=True)  # fmt: skip
JPEG = Chunks([b"\xff" + bytes([code]) for code in b"\xc0\xc1\xc2\xc3\xc4\xc9\xda\xdb\xdd\xe0\xe1\xe2\xee"],
              ">H", (2, 0), counted=2, last=b"\xff\xda")  # fmt: skip
MP4 = Chunks((*BOXES, b"mvhd", b"tkhd", b"mdhd", b"stsd", b"stts", b"stss", b"ctts", b"stsc", b"stsz", b"stco",
              b"elst", b"mdat"), ">I", counted=8, is_first=True, nested=BOXES)  # fmt: skip
RIFF = Chunks((b"RIFF", b"LIST", b"avih", b"strh", b"strf", b"movi", b"00dc", b"idx1", b"JUNK", b"VP8 ", b"VP8X",
               b"ALPH"), "<I", (0, 4), align=2, nested=(b"RIFF", b"LIST"))  # fmt: skip
RECORDIO = Chunks([struct.pack("<IB", 0xCED7230A, flag) for flag in range(8)], "<I", align=4, bits=29)
PROTOBUF = Messages((b"\x08", b"\x0a", b"\x10", b"\x12", b"\x1a", b"\x0b", b"\x0d", b"\xf8\xff\xff\xff\x0f"))


def mutation(form: Chunks | Messages, is_inner: bool = False) -> Mutation:
    """Return the mutation of a format, which works on the bytes where these are not of the format."""

    def mutate(rng: random.Random, content: bytes) -> bytes:
        try:
            found = form.split(content, is_inner)
        except (struct.error, IndexError, ValueError):
            found = []
        return form.join(_change(rng, found, form)) if found else mutate_bytes(rng, content)

    return mutate


def _change(rng: random.Random, found: Records, form: Chunks | Messages) -> Records:
    """Delete, repeat, exchange or rename a record, or change its payload."""
    at, other = rng.randrange(len(found)), rng.randrange(len(found))
    name, payload = found[at]
    match rng.randrange(10):
        case 0:
            del found[at]
        case 1:
            found[at:at] = [found[at]] * rng.choice((1, 1, 3, 60))
        case 2:
            found[at], found[other] = found[other], found[at]
        case 3:
            found[at] = (rng.choice(form.names) if name else name, payload)
        case 4:
            found[at] = (name, found[other][1])
        case 5:
            found.insert(at, (rng.choice(form.names), rng.randbytes(rng.randrange(30))))
        case _:
            is_deeper = form.is_nested(name) and rng.random() < 0.8
            found[at] = (name, (mutation(form, True) if is_deeper else mutate_bytes)(rng, payload))
    return found
