"""Checks of image and video files, and their properties. Whatever cannot be read raises BadSample."""

import io
import os
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from zoo.data.errors import BadSample, parsing
from zoo.data.extras import av
from zoo.data.formats import images
from zoo.data.formats.keyframes import UPRIGHT, decode_numbers, orientation, read_index, rgb_converter
from zoo.data.formats.video import NOT_DECODED, decode_all, open_container, video_stream


class ImageProperties(NamedTuple):
    """Properties of an image file.

    Attributes:
        codec: Format in lower case, such as `jpeg`.
        width: As stored, whatever the EXIF orientation.
    """

    codec: str
    width: int
    height: int


class VideoProperties(NamedTuple):
    """Properties of a video file.

    Attributes:
        codec: FFmpeg's name, such as `h264`.
        width: Of the upright frames, that is with the display matrix applied.
        height: Of the upright frames.
        rate: Frames per second as (numerator, denominator), (0, 1) if unknown.
    """

    codec: str
    width: int
    height: int
    frames: int
    rate: tuple[int, int]


def image_properties(content: bytes) -> ImageProperties:
    """Decode an image completely. Raises BadSample."""
    if not content:
        raise BadSample("the file is empty")
    with images.open_image(io.BytesIO(content)) as image:
        image.load()
        codec = (image.format or "").lower()
    return ImageProperties(codec, *images.parse(content).stored)


def video_properties(path: str, full: bool = False) -> VideoProperties:
    """Count the frames of a video file and decode some of them. Raises BadSample.

    Args:
        full: Decode all frames of a regular video, too, instead of the first one, one in the middle and the last one.
    """
    if not os.path.getsize(path):
        raise BadSample("the file is empty")
    with parsing(NOT_DECODED, kind=BadSample):
        with open_container(path) as container:
            stream = video_stream(container)
            codec, rate = stream.codec_context.name, stream.average_rate or Fraction(0)
            index = None if full else read_index(container, stream)
            count = len(index.timestamps) if index else 0
            some = decode_numbers(stream, index, [0, count // 2, count - 1]) if index else None
        if some:
            height, width, _ = some[0].shape
        else:
            count, (width, height) = _decode(path)
        return VideoProperties(codec, width, height, count, (rate.numerator, rate.denominator))


def upright_frames(path: str) -> Iterator["av.VideoFrame"]:
    """Decode all frames of a video file; those with a display matrix become RGB. Raises BadSample."""
    with parsing(NOT_DECODED, kind=BadSample):
        for frame in decode_all(path):
            if orientation(frame) == UPRIGHT:
                yield frame
            else:
                yield av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb_converter()(frame)), format="rgb24")


def _decode(path: str) -> tuple[int, tuple[int, int]]:
    """Decode all frames; return their number, and the size of the first one, upright. Raises BadSample."""
    count, size = 0, (0, 0)
    for count, frame in enumerate(decode_all(path), 1):
        if frame.is_corrupt:
            raise BadSample("a frame is damaged")
        if count == 1:
            size = (frame.height, frame.width) if orientation(frame)[0] else (frame.width, frame.height)
    if not count:
        raise BadSample("no frame of this video can be decoded")
    return count, size
