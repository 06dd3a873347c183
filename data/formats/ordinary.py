"""Decoding of ordinary JPEG and PNG files by OpenCV: the pixels of Pillow, sooner.

Ordinary JPEG files hold 8-bit color or gray images; ordinary PNG files one image in 8-bit RGB, and nothing that could
change its colors or rotate it. Both end as they should. Pillow decodes the others, and decides whether they are
damaged: some versions of OpenCV return a gray rest for a truncated file.
"""

import struct
from typing import NamedTuple

import cv2
import numpy as np

RGB: int = getattr(cv2, "IMREAD_COLOR_RGB", 0)  # of OpenCV 4.11 and later; older ones decode to BGR alone
FLAGS = {  # by the number that both sides of a JPEG image are divided by
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}

JPEG_START, JPEG_END, JPEG_SCAN = b"\xff\xd8", b"\xff\xd9", b"\xff\xda"
# Markers that begin a frame of Huffman-coded 8-bit samples, baseline, extended or progressive.
PROGRESSIVE_MARKER = 0xFFC2
FRAME_MARKERS = frozenset((0xFFC0, 0xFFC1, PROGRESSIVE_MARKER))
# Markers of other frames, and of a scan without a frame.
EXCLUDED_MARKERS = frozenset((0xFFC3, 0xFFC5, 0xFFC6, 0xFFC7, 0xFFC9, 0xFFCA, 0xFFCB, 0xFFCD, 0xFFCE, 0xFFCF, 0xFFDA))
METADATA_MARKER = 0xFFE1  # EXIF and XMP, both of which may give an orientation
MIN_MARKER = 0xFF00
SEGMENT = struct.Struct(">HH")  # marker, and length without it
FRAME = struct.Struct(">BHHB")  # bits per sample, height, width, components
MAX_SEGMENTS = 256  # before the frame

PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", b"\0\0\0\0IEND\xaeB`\x82"
PNG_SIGNATURE_BYTES, PNG_CHECKSUM_BYTES = 8, 4
PNG_CHUNK = struct.Struct(">I4s")  # length and name; content and checksum follow
PNG_HEADER, EIGHT_BIT_RGB = struct.Struct(">IIBB"), (8, 2)  # width, height, bits per sample, color type
# Transparency, animation, orientation, and texts that may be compressed, which libpng decompresses to any length.
PNG_EXCLUDED = (b"tRNS", b"acTL", b"eXIf", b"zTXt", b"iTXt")
PNG_TEXT, ORIENTATION_KEYWORDS = b"tEXt", (b"Raw profile type exif", b"XML:com.adobe.xmp")


class Header(NamedTuple):
    """Size of an ordinary JPEG image as stored, in pixels, whether its metadata may rotate it, and its coding."""

    width: int
    height: int
    may_be_rotated: bool
    is_progressive: bool


def decode(encoded: bytes, scale: int = 1, upright: bool = False) -> np.ndarray | None:
    """Decode an ordinary image file.

    Args:
        encoded: the file.
        scale: 1, 2, 4 or 8, by which both sides of a JPEG image are divided and rounded up.
        upright: rotate it as its EXIF orientation says.

    Returns:
        uint8 RGB (H, W, 3); None if it cannot be decoded.
    """
    if not encoded:
        return None
    flags, content = FLAGS[scale] | (0 if upright else cv2.IMREAD_IGNORE_ORIENTATION), np.frombuffer(encoded, np.uint8)
    if RGB:
        return cv2.imdecode(content, flags & ~cv2.IMREAD_COLOR | RGB)  # OpenCV 5 refuses both
    pixels = cv2.imdecode(content, flags)
    return None if pixels is None else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)


def jpeg_header(encoded: bytes) -> Header | None:
    """Read the header of an ordinary JPEG file; None if it is none."""
    if not (encoded.startswith(JPEG_START) and encoded.endswith(JPEG_END)):
        return None
    at, may_be_rotated = len(JPEG_START), False
    for _ in range(MAX_SEGMENTS):
        if at + SEGMENT.size > len(encoded):
            return None
        marker, length = SEGMENT.unpack_from(encoded, at)
        if marker in FRAME_MARKERS:
            at += SEGMENT.size
            if length < FRAME.size + 2 or at + FRAME.size > len(encoded):
                return None
            precision, height, width, components = FRAME.unpack_from(encoded, at)
            if precision != 8 or components not in (1, 3) or not width or not height:
                return None
            return Header(width, height, may_be_rotated, marker == PROGRESSIVE_MARKER)
        if marker < MIN_MARKER or marker in EXCLUDED_MARKERS or length < 2:
            return None
        may_be_rotated |= marker == METADATA_MARKER
        at += 2 + length
    return None


def is_png(encoded: bytes) -> bool:
    """Return whether a file is an ordinary PNG; reads the headers of its chunks alone."""
    if not (encoded.startswith(PNG_START) and encoded.endswith(PNG_END)):
        return False
    at, last = PNG_SIGNATURE_BYTES, len(encoded) - len(PNG_END)
    while at < last:
        length, name = PNG_CHUNK.unpack_from(encoded, at)
        start = at + PNG_CHUNK.size
        if start + length > last or name in PNG_EXCLUDED:
            return False
        if name == b"IHDR" and (
            length < PNG_HEADER.size or PNG_HEADER.unpack_from(encoded, start)[2:] != EIGHT_BIT_RGB
        ):
            return False
        if name == PNG_TEXT and encoded.startswith(ORIENTATION_KEYWORDS, start):
            return False
        at = start + length + PNG_CHECKSUM_BYTES
    return at == last
