"""Decoding of ordinary PNG files by OpenCV: the pixels of Pillow, sooner.

Ordinary files hold one image in 8-bit RGB, nothing that could change its colors or rotate it, and end as they should.
Pillow decodes the others, and decides whether they are damaged.
"""

import struct

import cv2
import numpy as np

from zoo.data.formats import opencv

SIGNATURE = b"\x89PNG\r\n\x1a\n"
FIRST_CHUNK, END = b"\0\0\0\x0dIHDR", b"\0\0\0\0IEND\xaeB`\x82"
CHUNK_HEADER = struct.Struct(">I4s")  # length and name; four bytes of checksum follow the content
CHECKSUM_BYTES = 4
HEADER = struct.Struct(">IIBB")  # width, height, bits per sample, color type
EIGHT_BITS, RGB = 8, 2
# Transparency, animation, orientation, and texts that may be compressed, which libpng decompresses to any length.
EXCLUDED_CHUNKS = (b"tRNS", b"acTL", b"eXIf", b"zTXt", b"iTXt")
TEXT_CHUNK, ORIENTATION_KEYWORDS = b"tEXt", (b"Raw profile type exif", b"XML:com.adobe.xmp")


def is_ordinary(encoded: bytes) -> bool:
    """Return whether a file is an ordinary PNG; reads the headers of its chunks alone."""
    if not (encoded.startswith(SIGNATURE + FIRST_CHUNK) and encoded.endswith(END)):
        return False
    at, last = len(SIGNATURE), len(encoded) - len(END)
    while at < last:
        length, name = CHUNK_HEADER.unpack_from(encoded, at)
        start = at + CHUNK_HEADER.size
        if start + length > last:
            return False
        if name == b"IHDR" and (length < HEADER.size or HEADER.unpack_from(encoded, start)[2:] != (EIGHT_BITS, RGB)):
            return False
        if name in EXCLUDED_CHUNKS:
            return False
        if name == TEXT_CHUNK and encoded.startswith(ORIENTATION_KEYWORDS, start):
            return False
        at = start + length + CHECKSUM_BYTES
    return at == last


def decode(encoded: bytes) -> np.ndarray | None:
    """Decode an ordinary PNG file: uint8 RGB (H, W, 3); None if it cannot be decoded."""
    return opencv.decode(encoded, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
