"""Writing of RecordIO records, as dmlc-core's RecordIOWriter and MXNet's im2rec lay them out.

data/formats/recordio.py describes the format and reads it.
"""

import struct
from collections.abc import Iterable

from zoo.data.errors import BadSample
from zoo.data.formats.recordio import (
    ALIGNMENT,
    FIRST,
    FRAME_HEADER,
    IMAGE_HEADER,
    LAST,
    MAGIC,
    MAGIC_BYTES,
    MIDDLE,
    WHOLE,
)

MAX_RECORD = (1 << 29) - 1  # bytes; the length has 29 bits


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
