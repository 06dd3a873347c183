"""Mutations of bytes, without knowledge of a format, and of text; a file per format has those that know it."""

import random
import re
import struct
from collections.abc import Callable, Sequence

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


def flip_bits(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_bytes(rng: random.Random, content: bytes) -> bytes:
    at, count = place(rng, content), rng.choice((1, 1, 2, 4, 8))
    return content[:at] + bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))]) * count + content[at + count :]


def set_integer(rng: random.Random, content: bytes) -> bytes:
    """Set a field of 1 to 8 bytes to an extreme."""
    layout = rng.choice(FORMATS)
    size = struct.calcsize(layout)
    number = rng.choice((*INTEGERS, len(content), len(content) - 1, rng.getrandbits(64))) & (1 << 8 * size) - 1
    at = place(rng, content)
    if rng.random() < 0.5:  # most formats align their fields
        at -= at % min(size, 4)
    return content[:at] + struct.pack(layout, number) + content[at + size :]


def truncate(rng: random.Random, content: bytes) -> bytes:
    return content[: place(rng, content)]


def delete(rng: random.Random, content: bytes) -> bytes:
    start, end = span(rng, content)
    return content[:start] + content[end:]


def duplicate(rng: random.Random, content: bytes) -> bytes:
    start, end = span(rng, content)
    return content[:end] + content[start:end] * rng.choice((1, 1, 2, 50)) + content[end:]


def move(rng: random.Random, content: bytes) -> bytes:
    start, end = span(rng, content)
    rest = content[:start] + content[end:]
    at = place(rng, rest)
    return rest[:at] + content[start:end] + rest[at:]


def insert(rng: random.Random, content: bytes) -> bytes:
    at = place(rng, content)
    return content[:at] + rng.choice((bytes(8), b"\xff" * 8, rng.randbytes(rng.randrange(1, 40)))) + content[at:]


def append(rng: random.Random, content: bytes) -> bytes:
    return content + rng.choice((b"\0", bytes(100), rng.randbytes(20), content[:100]))


def set_number(rng: random.Random, content: bytes) -> bytes:
    """Replace a number in text."""
    found = list(DIGITS.finditer(content))
    if not found:
        return set_integer(rng, content)
    match = rng.choice(found)
    return content[: match.start()] + rng.choice(NUMBERS) + content[match.end() :]


def insert_text(rng: random.Random, content: bytes) -> bytes:
    at = place(rng, content)
    return content[:at] + rng.choice(TEXTS) + content[at:]


def change_line(rng: random.Random, content: bytes) -> bytes:
    """Delete, repeat, swap or cut lines."""
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


BYTES: Sequence[Mutation] = (
    flip_bits,
    flip_bits,
    set_bytes,
    set_integer,
    set_integer,
    truncate,
    delete,
    duplicate,
    move,
    insert,
    append,
)
TEXT: Sequence[Mutation] = (set_number, set_number, insert_text, insert_text, change_line, change_line)


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
