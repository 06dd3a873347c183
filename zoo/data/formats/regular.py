"""Reading of files of samples: regular ones only, within a budget of bytes and of pixels."""

import io
import json
import math
import os
import stat
from typing import Any, BinaryIO, NamedTuple

from zoo.data import sources
from zoo.data.errors import BadSample

MAX_BYTES = 1 << 30  # of a file that is read whole; an image of MAX_PIXELS has less, even with 16 bits in four channels
MAX_PIXELS = 89_478_485  # Pillow's own limit against decompression bombs; the largest of ImageNet has 61 million
MAX_SIDE = (1 << 16) - 1  # pixels; decoders need memory for every row, however short
MAX_FRAME_PIXELS = 8192 * 4320  # of a video, whose clip is many frames: the largest format of cinemas
MAX_CLIP_BYTES = 2 << 30  # of the different decoded frames of a clip: 80 of 3840 x 2160 have less
FREE_BYTES, EXPANSION = 256 << 20, 20  # memory for a file: the greater of the first, and so many times its size
FREE_FRAME_PIXELS, FRAME_PIXELS_PER_BYTE = 1920 * 1088, 16  # of a video: larger frames need a larger file


def size(path: str) -> int:
    """Return the bytes of a file, -1 if it is missing."""
    try:
        place = sources.locate(path)
        return place.status().size if place else os.stat(path).st_size
    except OSError:
        return -1


def read(path: str, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file into memory.

    Raises:
        BadSample: it is a folder, pipe, socket or device, or larger than `limit` bytes.
        OSError, ValueError: it cannot be opened or read.
    """
    with open_file(path, limit) as file:
        return file.read()


def open_file(path: str, limit: int | None = MAX_BYTES) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        BadSample: it is a folder, pipe, socket or device, or larger than `limit` bytes.
        OSError, ValueError: it cannot be opened.
    """
    place = sources.locate(path)
    if place is None:
        return open(open_descriptor(path, limit), "rb")
    size = place.status().size
    _check_size(size, limit)
    return io.BytesIO(place.read(0, size))


def open_descriptor(path: str, limit: int | None = MAX_BYTES) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # which does not wait at a pipe
    try:
        check(os.fstat(descriptor), limit)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check(status: os.stat_result, limit: int | None = MAX_BYTES) -> None:
    """Raise BadSample unless a status is that of a regular file of up to `limit` bytes."""
    if not stat.S_ISREG(status.st_mode):
        raise BadSample("not a regular file, but a folder, a pipe, a socket or a device")
    _check_size(status.st_size, limit)


def _check_size(size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise BadSample(f"it has {size} bytes, the limit is {limit}")


def check_pixels(width: int, height: int, limit: int = MAX_PIXELS) -> None:
    """Raise BadSample if an image is claimed to have more than `limit` pixels, or a side above MAX_SIDE."""
    if width * height > limit:
        raise BadSample(f"its header claims {width} x {height} pixels, the limit is {limit} in all")
    if max(width, height) > MAX_SIDE:
        raise BadSample(f"its header claims {width} x {height} pixels, the limit of a side is {MAX_SIDE}")


class Share(NamedTuple):
    """Pixels that an image may ask for: those of any file, and beyond them so many per byte of the file.

    A decoder that takes b bytes per pixel at its peak stays within 256 MiB with 2^28 / b pixels.
    """

    free: int
    per_byte: int


ORDINARY = Share((1 << 28) // 9, 8)  # decoded by OpenCV, perhaps from the coefficients of a progressive file, resized
MASK = Share((1 << 28) // 6, 4)  # indices or gray levels, decoded by Pillow and mapped to classes
BY_PILLOW = Share((1 << 28) // 12, 1)  # decoded and converted to RGB
IN_FRAMES = Share((1 << 28) // 24, 1)  # of formats whose decoder keeps several frames of 32-bit pixels


def check_share(width: int, height: int, size: int, share: Share) -> None:
    """Raise BadSample if an image is claimed to have more pixels than a file of `size` bytes may ask for."""
    check_pixels(width, height, min(MAX_PIXELS, max(share.free, share.per_byte * size)))


def frame_pixels(size: int) -> int:
    """Return the number of pixels that the frames of a video file of `size` bytes may have."""
    return min(MAX_FRAME_PIXELS, max(FREE_FRAME_PIXELS, FRAME_PIXELS_PER_BYTE * size))


def check_clip(width: int, height: int, frames: int) -> None:
    """Raise BadSample if the decoded frames of a clip would take more than MAX_CLIP_BYTES."""
    size, limit = 3 * width * height * frames, MAX_CLIP_BYTES
    if size > limit:
        raise BadSample(f"{frames} frames of {width} x {height} pixels have {size} bytes, the limit is {limit}")


# Estimate of the memory that values take, from the characters that separate them.
BYTES_PER_CHARACTER, BYTES_PER_ITEM, BYTES_PER_OBJECT = 4, 64, 256
JSON_FREE_BYTES, JSON_EXPANSION = (
    128 << 20,
    16,
)  # limit of the estimate: the greater of the first, and so many times the size


def parse_json(text: str, finite: bool = False, expansion: int = JSON_EXPANSION) -> Any:
    """Return the value of a JSON text.

    Args:
        text: in JSON, also with the numbers NaN, Infinity and -Infinity of Python.
        expansion: limit of the estimated memory, in sizes of the text.

    Raises:
        ValueError: the text is not JSON, exceeds the budget, or has a number that is refused.
    """
    items = text.count(",") + text.count("[")
    size = len(text) * BYTES_PER_CHARACTER + items * BYTES_PER_ITEM + text.count("{") * BYTES_PER_OBJECT
    if size > max(JSON_FREE_BYTES, expansion * len(text)):
        raise ValueError("it would take more memory than a file of its size should")
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite) if finite else json.loads(text)
    except RecursionError:
        raise ValueError("too many levels of lists and objects") from None


def load_json(path: str) -> Any:
    """Return the value of a JSON file in UTF-8.

    Raises:
        ValueError, OSError, BadSample: the file cannot be read, is no regular one, or not JSON within the budget.
    """
    return parse_json(read(path).decode("utf-8-sig"))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value
