"""How many frames an MP4 or QuickTime file claims to have, before FFmpeg makes an index of them.

A table of frames that all have one size is a few bytes long, however many there are (ISO/IEC 14496-12, stsz and trun).
"""

import struct
from typing import Any, BinaryIO

from zoo.data.errors import BadSample

CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"mvex", b"udta", b"edts", b"dinf")
BOX, LONG_SIZE = struct.Struct(">I4s"), struct.Struct(">Q")
LAYOUTS = {b"hdlr": struct.Struct(">8x4s"), b"stsz": struct.Struct(">4xII"), b"trun": struct.Struct(">4xI")}
TO_END, LONG = 0, 1  # sizes with a meaning
SOUND = b"soun"  # of which FFmpeg makes one entry per chunk
MAX_BOXES = 1_000_000
FREE_FRAMES, BYTES_PER_FRAME = 1_000_000, 4


def check_frame_counts(file: BinaryIO, size: int) -> None:
    """Raise BadSample if a track claims more frames than a file of `size` bytes may have; other files pass.

    Args:
        file: open for reading, and seekable.
        size: of it, in bytes.
    """
    limit, handler, at = max(FREE_FRAMES, size // BYTES_PER_FRAME), b"", 0
    for _ in range(MAX_BOXES):
        file.seek(at)
        head = file.read(BOX.size)
        if len(head) < BOX.size:
            return
        length, name = BOX.unpack(head)
        start = at + BOX.size
        if length == LONG:
            (length,), start = _unpack(LONG_SIZE, file), start + LONG_SIZE.size
        fields = _unpack(LAYOUTS[name], file) if name in LAYOUTS else (0,)
        if name == b"hdlr":
            (handler,) = fields
        elif fields[-1] > limit and all(fields) and (name == b"trun" or handler != SOUND):
            raise BadSample(f"its header claims {fields[-1]} frames in {size} bytes")
        if name in CONTAINERS:
            at = start
        elif length == TO_END or at + length < start:
            return
        else:
            at += length
    raise BadSample(f"it has more than {MAX_BOXES} boxes")


def _unpack(layout: struct.Struct, file: BinaryIO) -> tuple[Any, ...]:
    """Return the fields that come next in a file; zeros, which end the search, where the file ends."""
    return layout.unpack(file.read(layout.size).ljust(layout.size, b"\0"))
