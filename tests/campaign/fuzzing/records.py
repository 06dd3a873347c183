"""Mutations of formats that are a sequence of records: PNG, JPEG, MP4, AVI, RecordIO, protocol buffers.

Each format is a function that splits a file into records, and one that joins them with right lengths and checksums. A
record is a name and a payload, so that what follows is the same for all: records are deleted, repeated, renamed,
exchanged, or their payload is changed.
"""

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.campaign.fuzzing import mutations
from tests.campaign.fuzzing.mutations import Mutation

Records = list[tuple[bytes, bytes]]  # name and payload; without a name, bytes between the records


class Format(NamedTuple):
    """How records are split and joined, which of them hold records, and other names that they might have."""

    split: Callable[[bytes], Records]
    join: Callable[[Records], bytes]
    nested: Callable[[bytes, bytes], bool]
    names: Sequence[bytes]


def mutation(form: Format) -> Mutation:
    """Return the mutation of a format, which works on the bytes where these are not of the format."""

    def mutate(rng: random.Random, content: bytes) -> bytes:
        try:
            found = form.split(content)
        except (struct.error, IndexError, ValueError):
            found = []
        if not found:
            return rng.choice(mutations.BYTES)(rng, content)
        return form.join(_change(rng, found, form, mutate))

    return mutate


def _change(rng: random.Random, found: Records, form: Format, mutate: Mutation) -> Records:
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
            found[at] = (rng.choice(form.names) if form.names and name else name, payload)
        case 4:
            found[at] = (name, found[other][1])
        case 5:
            found.insert(at, (rng.choice(form.names) if form.names else name, rng.randbytes(rng.randrange(30))))
        case _:
            deeper = form.nested(name, payload) and rng.random() < 0.8
            found[at] = (name, mutate(rng, payload) if deeper else rng.choice(mutations.BYTES)(rng, payload))
    return found


def _never(name: bytes, payload: bytes) -> bool:
    return False


def _split_png(content: bytes) -> Records:
    found: Records = [(b"", content[:8])]
    at = 8
    while at + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        found.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def _join_png(found: Records) -> bytes:
    return b"".join(
        struct.pack(">I", len(payload)) + name + payload + struct.pack(">I", zlib.crc32(name + payload))
        if name
        else payload
        for name, payload in found
    )


PNG = Format(
    _split_png,
    _join_png,
    _never,
    (
        b"IHDR",
        b"PLTE",
        b"IDAT",
        b"IEND",
        b"tRNS",
        b"eXIf",
        b"zTXt",
        b"iTXt",
        b"acTL",
        b"fcTL",
        b"fdAT",
        b"iCCP",
        b"xxxx",
    ),
)


def _split_jpeg(content: bytes) -> Records:
    found: Records = [(b"", content[:2])]
    at = 2
    while at + 4 <= len(content) and content[at] == 0xFF:
        name = content[at : at + 2]
        (length,) = struct.unpack_from(">H", content, at + 2)
        found.append((name, content[at + 4 : at + 2 + length]))
        at += 2 + length
        if name == b"\xff\xda":
            break
    return [*found, (b"", content[at:])]


def _join_jpeg(found: Records) -> bytes:
    return b"".join(
        name + struct.pack(">H", (len(payload) + 2) & 0xFFFF) + payload if name else payload for name, payload in found
    )


JPEG = Format(
    _split_jpeg,
    _join_jpeg,
    _never,
    (
        *(
            bytes((0xFF, code))
            for code in (0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xC9, 0xDA, 0xDB, 0xDD, 0xE0, 0xE1, 0xE2, 0xEE)
        ),
    ),
)

BOXES = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"udta", b"dinf", b"moof", b"traf")


def _split_mp4(content: bytes) -> Records:
    found: Records = []
    at = 0
    while at + 8 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        if length < 8:
            break
        found.append((content[at + 4 : at + 8], content[at + 8 : at + length]))
        at += length
    return [*found, (b"", content[at:])] if found else []


def _join_mp4(found: Records) -> bytes:
    return b"".join(
        struct.pack(">I", len(payload) + 8) + name + payload if name else payload for name, payload in found
    )


MP4 = Format(
    _split_mp4,
    _join_mp4,
    lambda name, payload: name in BOXES,
    (
        *BOXES,
        b"mvhd",
        b"tkhd",
        b"mdhd",
        b"stsd",
        b"stts",
        b"stss",
        b"ctts",
        b"stsc",
        b"stsz",
        b"stco",
        b"elst",
        b"mdat",
    ),
)


def _split_riff(content: bytes) -> Records:
    found: Records = []
    at = 0
    while at + 8 <= len(content):
        (length,) = struct.unpack_from("<I", content, at + 4)
        found.append((content[at : at + 4], content[at + 8 : at + 8 + length]))
        at += 8 + length + length % 2
    return found


def _join_riff(found: Records) -> bytes:
    return b"".join(
        name + struct.pack("<I", len(payload)) + payload + bytes(len(payload) % 2) if name else payload
        for name, payload in found
    )


def _split_list(content: bytes) -> Records:
    """Split the payload of a RIFF or LIST chunk, which begins with its type; or a file of one."""
    if content[:4] in (b"RIFF",):
        return _split_riff(content)
    return [(b"", content[:4]), *_split_riff(content[4:])]


AVI = Format(
    _split_list,
    _join_riff,
    lambda name, payload: name in (b"RIFF", b"LIST"),
    (b"RIFF", b"LIST", b"avih", b"strh", b"strf", b"movi", b"00dc", b"idx1", b"JUNK", b"VP8 ", b"VP8X", b"ALPH"),
)


def _split_recordio(content: bytes) -> Records:
    found: Records = []
    at = 0
    while at + 8 <= len(content):
        _, word = struct.unpack_from("<II", content, at)
        length = word & (1 << 29) - 1
        found.append((content[at : at + 4] + bytes([word >> 29]), content[at + 8 : at + 8 + length]))
        at += 8 + length + -length % 4
    return found


def _join_recordio(found: Records) -> bytes:
    return b"".join(
        name[:4] + struct.pack("<I", name[4] << 29 | len(payload)) + payload + bytes(-len(payload) % 4)
        for name, payload in found
    )


RECORDIO = Format(
    _split_recordio,
    _join_recordio,
    _never,
    (*(struct.pack("<I", 0xCED7230A) + bytes([flag]) for flag in range(8)),),
)


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


def _split_protobuf(content: bytes) -> Records:
    found: Records = []
    at = 0
    while at < len(content):
        key, after = _read_varint(content, at)
        if key & 7 == 0:
            _, end = _read_varint(content, after)
            found.append((content[at:after], content[after:end]))
        elif key & 7 == 2:
            length, start = _read_varint(content, after)
            end = start + length
            if end > len(content):
                raise ValueError("it is cut")
            found.append((content[at:after], content[start:end]))
        else:
            raise ValueError("not a message")
        at = end
    return found


def _join_protobuf(found: Records) -> bytes:
    return b"".join(
        name + varint(len(payload)) + payload if name and name[0] & 7 == 2 else name + payload
        for name, payload in found
    )


def _is_message(name: bytes, payload: bytes) -> bool:
    return bool(name) and name[0] & 7 == 2


PROTOBUF = Format(
    _split_protobuf,
    _join_protobuf,
    _is_message,
    (b"\x08", b"\x0a", b"\x10", b"\x12", b"\x1a", b"\x0b", b"\x0d", b"\xf8\xff\xff\xff\x0f"),
)
