"""Checks of image and video files, and their properties. Whatever cannot be read raises BadSample."""

import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zoo.data.errors import BadSample
from zoo.data.formats import images
from zoo.data.formats.video import NOT_DECODED, open_container, video_stream
from zoo.data.parsing import parsing

if TYPE_CHECKING:
    import av
    from av.container import InputContainer
    from av.video.stream import VideoStream

ZERO_TAIL = 64  # bytes of zeros at the end of a JPEG file without an end marker: space that was never written
START_OF_SCAN, END_OF_IMAGE = b"\xff\xda", b"\xff\xd9"


class ImageProperties(NamedTuple):
    """Properties of an image file.

    Attributes:
        codec: Format in lower case, such as `jpeg`.
        width: As stored, whatever the EXIF orientation.
        height: As stored.
    """

    codec: str
    width: int
    height: int


class VideoProperties(NamedTuple):
    """Properties of a video file.

    Attributes:
        codec: FFmpeg's name, such as `h264`.
        width: Of the upright frames, that is with the rotation metadata applied.
        height: Of the upright frames.
        frames: Number of frames that are shown.
        rate: Frames per second as (numerator, denominator), (0, 1) if unknown.
    """

    codec: str
    width: int
    height: int
    frames: int
    rate: tuple[int, int]


class _Packets(NamedTuple):
    total: int  # including those that are decoded but not shown
    shown: int
    key_times: list[int | None]  # time stamps of the packets that decoding can start at


def image_properties(content: bytes) -> ImageProperties:
    """Decode an image completely.

    Raises:
        BadSample: It cannot be decoded, or its end was never written.
    """
    if not content:
        raise BadSample("the file is empty")
    with images.open_image(io.BytesIO(content)) as image:
        image.load()
        codec = (image.format or "").lower()
    # Decoders take the zeros for pixels.
    unfinished = content.rfind(END_OF_IMAGE) < content.rfind(START_OF_SCAN)
    if codec == "jpeg" and unfinished and not any(content[-ZERO_TAIL:]):
        raise BadSample("the end of the file holds zeros only, as after an interrupted copy")
    return ImageProperties(codec, *images.parse(content).stored)


def video_properties(path: str, full: bool = False) -> VideoProperties:
    """Count the frames of a video file and decode some of them.

    Args:
        full: Decode all frames instead of the first one, one in the middle and all from the last keyframe on.

    Raises:
        BadSample: It cannot be decoded, or holds fewer frames than its header claims.
    """
    if not os.path.getsize(path):
        raise BadSample("the file is empty")
    with parsing(NOT_DECODED, kind=BadSample), open_container(path) as container:
        stream = video_stream(container)
        packets = _read_packets(container, stream)
        _check_count(path, stream, packets)
        first = _decode(container, stream, packets, full)
        width, height = (first.height, first.width) if first.rotation % 180 else (first.width, first.height)
        rate = stream.average_rate
        return VideoProperties(
            stream.codec_context.name,
            width,
            height,
            packets.shown,
            (rate.numerator, rate.denominator) if rate else (0, 1),
        )


def upright_frames(path: str) -> Iterator["av.VideoFrame"]:
    """Decode all frames of a video file; those with rotation metadata become RGB.

    Raises:
        BadSample: A frame cannot be decoded.
    """
    import av

    with parsing(NOT_DECODED, kind=BadSample), open_container(path) as container:
        for frame in container.decode(video_stream(container)):
            if not frame.rotation:
                yield frame
                continue
            pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
            upright = np.ascontiguousarray(np.rot90(pixels, frame.rotation // 90))  # counterclockwise
            yield av.VideoFrame.from_ndarray(upright, format="rgb24")


def _read_packets(container: "InputContainer", stream: "VideoStream") -> _Packets:
    count, hidden, key_times = 0, 0, []
    for packet in container.demux(stream):
        if not packet.size:  # the demuxer ends with an empty packet
            continue
        if packet.is_corrupt:
            raise BadSample(f"frame {count} is cut off: the file is truncated or damaged")
        count += 1
        hidden += packet.is_discard
        if packet.is_keyframe:
            key_times.append(packet.pts)
    if not count:
        raise BadSample("there is no frame in this video")
    return _Packets(count, count - hidden, key_times)


def _check_count(path: str, stream: "VideoStream", packets: _Packets) -> None:
    """Compare the number of frames with the header, which counts those outside of an edit list, too."""

    if packets.total >= stream.frames:
        return
    try:
        with open_container(path, {"ignore_editlist": "1"}) as container:
            count = _read_packets(container, video_stream(container)).total
    except UnicodeDecodeError:  # of metadata, which say nothing about the frames
        return
    if count < stream.frames:
        raise BadSample(f"its header claims {stream.frames} frames, but the file holds {count}: it is truncated")


def _decode(container: "InputContainer", stream: "VideoStream", packets: _Packets, full: bool) -> "av.VideoFrame":
    """Decode frames and return the first one. Raises BadSample."""
    times = packets.key_times
    if full or None in times or len(times) < 2:
        container.seek(0)
        return _decode_to_end(container, stream, packets.shown)
    container.seek(0)
    first = _next_frame(container, stream)
    container.seek(times[len(times) // 2] or 0, stream=stream)
    _next_frame(container, stream)
    container.seek(times[-1] or 0, stream=stream)
    _decode_to_end(container, stream, None)
    return first


def _next_frame(container: "InputContainer", stream: "VideoStream") -> "av.VideoFrame":
    for frame in container.decode(stream):
        return _intact(frame)
    raise BadSample("no frame of this video can be decoded")


def _decode_to_end(container: "InputContainer", stream: "VideoStream", expected: int | None) -> "av.VideoFrame":
    first, count = None, 0
    for frame in container.decode(stream):
        first = first or _intact(frame)
        _intact(frame)
        count += 1
    if first is None:
        raise BadSample("no frame of this video can be decoded")
    if expected is not None and count < expected:
        raise BadSample(f"it holds {expected} frames, but only {count} can be decoded")
    return first


def _intact(frame: "av.VideoFrame") -> "av.VideoFrame":
    if frame.is_corrupt:
        raise BadSample("a frame is damaged")
    return frame
