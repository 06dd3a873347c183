"""Decoding of ordinary JPEG files by OpenCV's libjpeg-turbo: the pixels of Pillow, sooner.

Ordinary files hold 8-bit color or gray images and end as they should. Pillow decodes the others, and decides whether
they are damaged: some versions of OpenCV return a gray rest for a truncated file.
"""

import struct
from typing import NamedTuple

import cv2
import numpy as np

from zoo.data.formats import opencv

START, END, SCAN = b"\xff\xd8", b"\xff\xd9", b"\xff\xda"
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
FLAGS = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


class Header(NamedTuple):
    """Size of an ordinary JPEG image as stored, in pixels, whether its metadata may rotate it, and its coding."""

    width: int
    height: int
    may_be_rotated: bool
    is_progressive: bool


def read_header(encoded: bytes) -> Header | None:
    """Read the header of an ordinary JPEG file; None if it is none."""
    if not (encoded.startswith(START) and encoded.endswith(END)):
        return None
    at, may_be_rotated = len(START), False
    end = len(encoded) - SEGMENT.size
    for _ in range(MAX_SEGMENTS):
        if at > end:
            return None
        marker, length = SEGMENT.unpack_from(encoded, at)
        if marker in FRAME_MARKERS:
            return _frame_header(encoded, at + SEGMENT.size, length, may_be_rotated, marker == PROGRESSIVE_MARKER)
        if marker < MIN_MARKER or marker in EXCLUDED_MARKERS or length < 2:
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


def _frame_header(encoded: bytes, at: int, length: int, may_be_rotated: bool, is_progressive: bool) -> Header | None:
    if length < FRAME.size + 2 or at + FRAME.size > len(encoded):
        return None
    precision, height, width, components = FRAME.unpack_from(encoded, at)
    if precision != 8 or components not in (1, 3) or not width or not height:
        return None
    return Header(width, height, may_be_rotated, is_progressive)
