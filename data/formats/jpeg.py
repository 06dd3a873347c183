"""Decoding of ordinary JPEG files by OpenCV's libjpeg-turbo: the pixels of Pillow, sooner.

Ordinary files hold 8-bit color or gray images and end as they should. Pillow decodes the others, and decides whether
they are damaged: some versions of OpenCV return a gray rest for a truncated file.
"""

import struct
from typing import NamedTuple

import cv2
import numpy as np

from data.formats import opencv

START, END = b"\xff\xd8", b"\xff\xd9"
# Markers that begin a frame of Huffman-coded 8-bit samples, baseline, extended or progressive.
FRAME_MARKERS = (0xC0, 0xC1, 0xC2)
OTHER_FRAME_MARKERS = (0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)
SCAN_MARKER, METADATA_MARKER = 0xDA, 0xE1  # the latter holds EXIF and XMP, both of which may give an orientation
MAX_SEGMENTS = 256  # before the frame
FLAGS = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


class Header(NamedTuple):
    """Size of an ordinary JPEG image as stored, in pixels, and whether its metadata may rotate it."""

    width: int
    height: int
    may_be_rotated: bool


def read_header(encoded: bytes) -> Header | None:
    """Read the header of an ordinary JPEG file; None if it is none."""
    if not (encoded.startswith(START) and encoded.endswith(END)):
        return None
    at, may_be_rotated = len(START), False
    for _ in range(MAX_SEGMENTS):
        if at + 4 > len(encoded) or encoded[at] != 0xFF:
            return None
        marker = encoded[at + 1]
        (length,) = struct.unpack_from(">H", encoded, at + 2)
        if marker in FRAME_MARKERS:
            return _frame_header(encoded[at + 4 : at + 2 + length], may_be_rotated)
        if marker in OTHER_FRAME_MARKERS or marker == SCAN_MARKER or length < 2:
            return None
        may_be_rotated |= marker == METADATA_MARKER
        at += 2 + length
    return None


def decode(encoded: bytes, scale: int = 1) -> np.ndarray | None:
    """Decode an ordinary JPEG file as stored, whatever its EXIF orientation.

    Args:
        encoded: the file.
        scale: 1, 2, 4 or 8, by which both sides are divided and rounded up.

    Returns:
        uint8 RGB (H, W, 3); None if it cannot be decoded.
    """
    return opencv.decode(encoded, FLAGS[scale] | cv2.IMREAD_IGNORE_ORIENTATION)


def _frame_header(segment: bytes, may_be_rotated: bool) -> Header | None:
    if len(segment) < 6:
        return None
    precision, height, width, components = struct.unpack_from(">BHHB", segment)
    if precision != 8 or components not in (1, 3) or not width or not height:
        return None
    return Header(width, height, may_be_rotated)
