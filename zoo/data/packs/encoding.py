"""Encoding of clips and images for fast reading: short groups of frames in H.264, JPEG frames, smaller images.

Clips lose what cannot be seen in training: sound, time stamps, resolution above the shorter side. The number and the
order of their frames stay, because loaders sample by frame number.
"""

import io
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from zoo.data.errors import BadSample, reason
from zoo.data.extras import av, cv2
from zoo.data.formats import images
from zoo.data.host import x264_parameters
from zoo.data.packs import inspection
from zoo.data.transforms.pixels import resize

PRESET = "medium"  # of x264
DEFAULT_RATE = (25, 1)  # frames per second where a video states none


class EncodedClip(NamedTuple):
    """A clip in a new encoding: the video file, or one JPEG file per frame; the number of frames, and their size."""

    parts: list[bytes]
    frames: int
    width: int
    height: int


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
    frames = inspection.upright_frames(path)
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
    for frame in inspection.upright_frames(path):
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
