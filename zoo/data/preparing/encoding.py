"""Properties of samples, and their encoding for fast reading. Whatever cannot be read raises BadSample.

Clips become short groups of frames in H.264, or JPEG frames; images become smaller ones. Clips lose what cannot be
seen in training: sound, time stamps, resolution above the shorter side. The number and the order of their frames stay,
because loaders sample by frame number.
"""

import io
import os
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from zoo.data.errors import BadSample, parsing, reason
from zoo.data.extras import av, cv2
from zoo.data.formats import images
from zoo.data.formats.keyframes import UPRIGHT, decode_numbers, orientation, read_index, rgb_converter
from zoo.data.formats.video import NOT_DECODED, decode_all, open_container, video_stream
from zoo.data.host import x264_parameters
from zoo.data.transforms.pixels import resize

PRESET = "medium"  # of x264
DEFAULT_RATE = (25, 1)  # frames per second where a video states none


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


class EncodedClip(NamedTuple):
    """A clip in a new encoding: the video file, or one JPEG file per frame; the number of frames, and their size."""

    parts: list[bytes]
    frames: int
    width: int
    height: int


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


def scaled_size(width: int, height: int, short_side: int, multiple: int = 1) -> tuple[int, int]:
    """Return the size with the given shorter side, never enlarged, rounded to multiples."""
    scale = min(1.0, short_side / min(width, height))
    return (
        max(multiple, round(width * scale / multiple) * multiple),
        max(multiple, round(height * scale / multiple) * multiple),
    )


def h264_clip(path: str, rate: tuple[int, int], short_side: int, crf: int, gop: int) -> EncodedClip:
    """Encode a video file as H.264 in mp4 without B-frames, with a keyframe every `gop` frames. Raises BadSample.

    Args:
        rate: Frames per second as (numerator, denominator); (0, 1) if unknown.
        short_side: Of the frames in pixels; smaller clips keep their size, rounded to even numbers.
        crf: x264's constant rate factor.

    Returns:
        The clip; equal files give equal bytes on the same machine.
    """
    frames = upright_frames(path)
    frame = next(frames, None)
    if frame is None:
        raise BadSample("there is no frame in this video")
    file, count = io.BytesIO(), 0
    width, height = scaled_size(frame.width, frame.height, short_side, multiple=2)
    try:
        with av.open(file, "w", format="mp4") as container:
            stream = container.add_stream("libx264", rate=Fraction(*(rate if rate[0] else DEFAULT_RATE)))
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            stream.codec_context.gop_size = gop
            stream.codec_context.options = _h264_options(crf, gop)
            # The color matrix is copied, so that the new clip is converted to RGB as its source is.
            stream.codec_context.colorspace = frame.colorspace
            stream.codec_context.color_range = 1  # of yuv420p: limited
            stream.codec_context.open()
            while frame is not None:
                scaled = frame.reformat(width, height, "yuv420p")
                scaled.pts, scaled.time_base, scaled.pict_type = count, 1 / stream.codec_context.framerate, 0
                container.mux(stream.encode(scaled))
                count, frame = count + 1, next(frames, None)
            container.mux(stream.encode())
    except (av.error.FFmpegError, ValueError) as problem:
        raise BadSample(f"cannot be encoded ({reason(problem)})") from None
    return EncodedClip([file.getvalue()], count, width, height)


def jpeg_clip(path: str, short_side: int, quality: int) -> EncodedClip:
    """Encode each frame of a video file as JPEG. Raises BadSample.

    Args:
        short_side: Of the frames in pixels; smaller clips keep their size.
        quality: Of libjpeg, 0 to 100.
    """
    parts, size = [], None
    for frame in upright_frames(path):
        size = size or scaled_size(frame.width, frame.height, short_side)
        pixels = frame.reformat(*size, "bgr24").to_ndarray()
        parts.append(_encode_jpeg(pixels, quality))
    if size is None:
        raise BadSample("there is no frame in this video")
    return EncodedClip(parts, len(parts), *size)


def jpeg_image(content: bytes, short_side: int, quality: int) -> tuple[bytes, int, int] | None:
    """Resize an image, antialiased, and encode it as JPEG, upright. Raises BadSample, also where 8 bits are too few.

    Returns:
        The file with its width and height; None if its shorter side is not above `short_side`: it should be kept.
    """
    image = images.parse(content)
    if min(image.stored) <= short_side:
        return None
    images.check_depth(image)
    size = scaled_size(*image.stored, short_side)
    pixels = image.upright(resize(images.decode_stored(image), *size, antialias=True))
    encoded = _encode_jpeg(np.ascontiguousarray(pixels[:, :, ::-1]), quality)
    return encoded, pixels.shape[1], pixels.shape[0]


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


def _h264_options(crf: int, gop: int) -> dict[str, str]:
    options = {"crf": str(crf), "preset": PRESET, "tune": "fastdecode", "bf": "0", "sc_threshold": "0", "threads": "1"}
    parameters = [f"keyint={gop}", f"min-keyint={gop}", *x264_parameters()]
    return {**options, "x264-params": ":".join(parameters)}


def _encode_jpeg(pixels: np.ndarray, quality: int) -> bytes:
    """Encode BGR (H, W, 3)."""
    done, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise BadSample(f"an image of {pixels.shape[1]} x {pixels.shape[0]} pixels cannot be written as JPEG")
    return encoded.tobytes()
