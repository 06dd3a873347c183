"""Reading of files of samples: regular ones only, within a budget of bytes and of pixels."""

import os
import stat

from data.errors import BadSample

MAX_BYTES = 1 << 30  # of a file that is read whole; an image of MAX_PIXELS has less, even with 16 bits in four channels
MAX_PIXELS = 89_478_485  # Pillow's own limit against decompression bombs; the largest of ImageNet has 61 million
MAX_FRAME_PIXELS = 8192 * 4320  # of a video, whose clip is many frames: the largest format of cinemas
MAX_CLIP_BYTES = 2 << 30  # of the different decoded frames of a clip: 80 of 3840 x 2160 have less


def read(path: str) -> bytes:
    """Read a regular file into memory.

    Raises:
        BadSample: it is a folder, pipe, socket or device, or larger than MAX_BYTES.
        OSError: it cannot be opened or read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # which does not wait at a pipe
    try:
        check(os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def check(status: os.stat_result, limit: int | None = MAX_BYTES) -> None:
    """Raise BadSample unless a status is that of a regular file of up to `limit` bytes."""
    if not stat.S_ISREG(status.st_mode):
        raise BadSample("not a regular file, but a folder, a pipe, a socket or a device")
    if limit is not None and status.st_size > limit:
        raise BadSample(f"it has {status.st_size} bytes, the limit is {limit}")


def check_pixels(width: int, height: int, limit: int = MAX_PIXELS) -> None:
    """Raise BadSample if an image is claimed to have more than `limit` pixels."""
    if width * height > limit:
        raise BadSample(f"its header claims {width} x {height} pixels, the limit is {limit} in all")


def check_clip(width: int, height: int, frames: int) -> None:
    """Raise BadSample if the decoded frames of a clip would take more than MAX_CLIP_BYTES."""
    size, limit = 3 * width * height * frames, MAX_CLIP_BYTES
    if size > limit:
        raise BadSample(f"{frames} frames of {width} x {height} pixels have {size} bytes, the limit is {limit}")
