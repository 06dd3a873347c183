"""Decoding of videos to uint8 RGB arrays (H, W, 3) by PyAV, or by decord where asked. Failures raise BadSample.

Of regular videos (keyframes.py) in mp4, mkv and webm, decoding begins at the keyframe before each frame, and no packet
is decoded that is not needed. Of all others, decoding begins at the first frame, and frames count that come out of the
decoder, whatever the header says: this is exact for every codec, and slow for long videos. Frames that no player shows,
because an edit list leaves them out, do not count; others may refer to them.

Frames are turned and mirrored as the display matrix tells. Those of another size than the first are resized to it.

A file is opened, used and closed within one call: decord's reader must not be shared by threads and does not survive a
fork. Both libraries are imported when the first video is decoded: sets of images do without them, and MindSpore must be
loaded before decord.
"""

import math
import os
import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from zoo.data import stages
from zoo.data.errors import BadSample, parsing
from zoo.data.extras import av
from zoo.data.formats import regular
from zoo.data.formats.keyframes import (
    OLD_X264,
    PacketIndex,
    decode_numbers,
    read_index,
    rgb_converter,
)
from zoo.data.formats.lists import Span

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

FrameSampler = Callable[[int], np.ndarray]  # number of frames -> 0-based indices, of any shape
DrawIndices = Callable[[int, int], list[int]]  # first frame of a part and the one behind its last -> those to decode

# It seeks to wrong frames in HEVC and MPEG-4, and colors, sizes and transparency of VP8 and VP9 are not FFmpeg's.
DECORD_READS = ("h264", "yuv420p")
# Formats of FFmpeg that may be opened. Others, such as concat, hls and dash, open further files or addresses.
FORMATS = (
    "mov,mp4,matroska,webm,avi,mpeg,mpegts,mpegvideo,h264,hevc,m4v,ivf,ogg,flv,asf,"
    "gif,jpeg_pipe,png_pipe,webp_pipe,bmp_pipe,tiff_pipe"  # to say of an image that it is one
)
SCRIPTS = (b"ffconcat", b"#EXTM3U", b"[playlist]", b"<", b"v=0")  # beginnings of concat, hls, pls, dash and sdp files
HEAD_SIZE, BLANKS = 64, b"\xef\xbb\xbf \t\r\n"
NOT_DECODED = "cannot be decoded as video"

# Boxes of MP4 files (ISO/IEC 14496-12) that hold others, and the fields of those that claim a number of frames.
CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"mvex", b"udta", b"edts", b"dinf")
BOX, LONG_SIZE = struct.Struct(">I4s"), struct.Struct(">Q")
LAYOUTS = {b"hdlr": struct.Struct(">8x4s"), b"stsz": struct.Struct(">4xII"), b"trun": struct.Struct(">4xI")}
LONG = 1  # size with a meaning
SOUND = b"soun"  # of which FFmpeg makes one entry per chunk
ROUNDING = 1e-3  # seconds by which time stamps of frames, and the limits of a part, may be rounded
_parts: dict[tuple[object, ...], tuple[int, int]] = {}  # of files whose packets are no frames, or have other times
MAX_BOXES, FREE_FRAMES, BYTES_PER_FRAME = 1_000_000, 1_000_000, 4


@stages.stage(stages.DECODE)
def read_frames(
    path: str, sample_frames: FrameSampler, min_frames: int = 1, decoder: str = "pyav", span: Span | None = None
) -> list[np.ndarray]:
    """Decode frames of a video file. Raises BadSample.

    Args:
        sample_frames: called with the number of frames, returns the indices of the frames to decode.
        decoder: "decord" reads the videos by it that it reads rightly, "pyav" none.
        span: part of the video that is taken for the whole.

    Returns:
        uint8 RGB (H, W, 3), upright, for each of the flattened indices.
    """
    _check_file(path)
    with parsing(NOT_DECODED, kind=BadSample):
        with open_container(path) as container:
            stream = video_stream(container)
            size = stream.codec_context.width, stream.codec_context.height
            stream.codec_context.options |= {"err_detect": "explode"}  # what is damaged is decoded from the start

            @cache
            def indices(first: int, end: int) -> list[int]:
                """Draw the frames once for each part that the video may have."""
                numbers = [first + index for index in sample_indices(sample_frames, end - first, min_frames)]
                regular.check_clip(*size, len(set(numbers)))
                return numbers

            frames = _decode_from_keyframes(container, stream, span, indices, decoder)
        return _decode_from_start(path, span, indices) if frames is None else frames


def compare_frames(
    path: str, sample_frames: FrameSampler, min_frames: int = 1, decoder: str = "pyav", span: Span | None = None
) -> int:
    """Read frames as `read_frames` does, and compare them with those of a decoding from the first frame on.

    Returns:
        The number of frames of the whole video that are damaged.

    Raises:
        BadSample: they cannot be read, or differ.
    """
    sample = cache(sample_frames)
    frames = read_frames(path, sample, min_frames, decoder, span)
    with parsing(NOT_DECODED, kind=BadSample):
        exact = _decode_from_start(
            path, span, lambda first, end: [first + at for at in sample_indices(sample, end - first, min_frames)]
        )
        if not all(map(np.array_equal, frames, exact)):
            raise BadSample("decoding from a keyframe gives other frames than decoding from the first frame on")
        return sum(frame.is_corrupt for frame in decode_all(path))


def sample_indices(sample_frames: FrameSampler, count: int, min_frames: int) -> list[int]:
    """Return the flattened indices for `count` frames. Raises BadSample if there are fewer than min_frames."""
    if count < min_frames:
        raise BadSample(f"too short: {count} frame(s), data.min_frames is {min_frames}")
    return [int(index) for index in sample_frames(count).ravel()]


def bounds(span: Span | None, rate: float, times: np.ndarray) -> tuple[int, int]:
    """Return the first frame of a part of a video, None for all of it, and the one behind its last.

    Args:
        rate: mean of the frames per second, by which seconds are counted unless a frame is half a frame off.
        times: of the frames in seconds, on any clock; NaN where it is not known.

    Raises:
        BadSample: the part begins behind the last frame, or it is not known where it begins.
    """
    count = len(times)
    if span is None:
        return 0, count
    limits, ordered, end = np.array([span.start, span.end]), np.sort(times), f"it has {count} frames"
    if span.unit == "s":
        # Of constant rate, too, where times are unknown, or where those of decoding stand for them, as in AVI files.
        if rate and not (np.abs((ordered - ordered[:1]) * rate - np.arange(count)) >= 0.5).any():
            limits, last = limits * rate, (count - 1) / rate
        elif (np.diff(times) >= 0).all():
            limits, last = np.searchsorted(times - times[:1], limits - ROUNDING), times[-1] - times[0]
        else:
            raise BadSample(f"its frames have no times to find {span} by; give start_frame and end_frame")
        end = f"its last frame is at {last:.6g} s"
    first, behind = (min(math.ceil(round(limit, 3)), count) for limit in limits.tolist())
    if first == count:
        raise BadSample(f"the part {span} lies behind the end of the video: {end}")
    return first, behind


def open_container(path: str) -> "InputContainer":
    """Open a media file with PyAV; metadata that is not UTF-8 is ignored. Raises BadSample."""
    with open(path, "rb") as file:
        check_frame_counts(file, os.fstat(file.fileno()).st_size)
    options = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
    is_late = int(av.__version__.split(".")[0]) >= 19  # decodes metadata when they are read
    keywords: Any = {} if is_late else {"metadata_errors": "ignore"}
    try:
        return av.open(path, options=options, **keywords)
    except av.ArgumentError:
        raise BadSample("FFmpeg takes it for a format that is not read here") from None


def video_stream(container: "InputContainer") -> "VideoStream":
    """Return the video of a container, to be decoded by one thread. Raises BadSample."""
    from av.stream import Disposition

    name = container.format.name
    if name.endswith("_pipe") or name == "image2":
        raise BadSample("it is an image, not a video")
    stream = container.streams.best("video")
    if not isinstance(stream, av.VideoStream) or stream.disposition & Disposition.attached_pic:
        raise BadSample("there is no video in this file")
    size = os.path.getsize(container.name)
    if stream.frames > size:
        raise BadSample(f"its header claims {stream.frames} frames in {size} bytes")
    stream.codec_context.thread_count = 1
    limit = regular.frame_pixels(size)
    regular.check_pixels(stream.codec_context.width, stream.codec_context.height, limit)
    stream.codec_context.options = {"max_pixels": str(limit)}  # also of frames that come later
    return stream


def check_frame_counts(file: BinaryIO, size: int) -> None:
    """Raise BadSample if a track of an MP4 file claims more frames than `size` bytes may hold; other files pass.

    A table of frames that all have one size is a few bytes long, however many there are; FFmpeg makes an index of them.
    """
    limit, handler, at = max(FREE_FRAMES, size // BYTES_PER_FRAME), b"", 0
    for _ in range(MAX_BOXES):
        file.seek(at)
        head = file.read(BOX.size)
        if len(head) < BOX.size:
            return
        length, name = BOX.unpack(head)
        start = at + BOX.size
        if length == LONG:
            (length,), start = _unpack(LONG_SIZE, file), start + LONG_SIZE.size
        fields = _unpack(LAYOUTS[name], file) if name in LAYOUTS else (0,)
        if name == b"hdlr":
            (handler,) = fields
        elif fields[-1] > limit and all(fields) and (name == b"trun" or handler != SOUND):
            raise BadSample(f"its header claims {fields[-1]} frames in {size} bytes")
        if name in CONTAINERS:
            at = start
        elif not start <= at + length <= size:  # also one of TO_END; a raw stream of H.264 has no boxes
            return
        else:
            at += length
    raise BadSample(f"it has more than {MAX_BOXES} boxes")


def _unpack(layout: struct.Struct, file: BinaryIO) -> tuple[Any, ...]:
    """Return the fields that come next in a file; zeros, which end the search, where the file ends."""
    return layout.unpack(file.read(layout.size).ljust(layout.size, b"\0"))


def _check_file(path: str) -> None:
    """Raise BadSample if a file is empty, no regular file, or names others."""
    with parsing("cannot be read", kind=BadSample):
        try:
            with regular.open_file(path, limit=None) as file:
                size, head = os.fstat(file.fileno()).st_size, file.read(HEAD_SIZE).lstrip(BLANKS)
        except FileNotFoundError:
            raise BadSample("no such file") from None
    if not size:
        raise BadSample("the file is empty")
    if head.startswith(SCRIPTS):
        raise BadSample("a text that names other files, not a video")


def decode_all(path: str) -> Iterator["VideoFrame"]:
    """Decode a video from its first frame on. Raises BadSample if the file is truncated, and errors of PyAV."""
    with open_container(path) as container:
        stream = video_stream(container)
        ends = (entry.pos + entry.size for entry in stream.index_entries) if "mp4" in container.format.name else ()
        if max(ends, default=0) > os.path.getsize(path):
            raise BadSample("it is truncated: its header tells of frames behind its end")
        yield from container.decode(stream)


def _decode_from_keyframes(
    container: "InputContainer", stream: "VideoStream", span: Span | None, indices: DrawIndices, decoder: str
) -> list[np.ndarray] | None:
    """Decode what is needed and no more; None if the video is not regular, or damaged."""
    try:
        index = read_index(container, stream)
        if index is None:
            return None
        part = 0, len(index.timestamps)
        if span is not None:
            times = np.array(index.timestamps) * float(stream.time_base or 0)
            part = bounds(span, float(stream.average_rate or 0), times)
        numbers = indices(*part)
        frames = _decode_with_decord(container.name, stream, index, numbers) if decoder == "decord" else None
        return frames or decode_numbers(stream, index, numbers)
    except BadSample:
        raise
    except Exception:  # it is damaged: what can be read of it is read from the first frame on
        return None


def _decode_with_decord(
    path: str, stream: "VideoStream", index: PacketIndex, numbers: list[int]
) -> list[np.ndarray] | None:
    """Decode frames of a regular video by decord; None where it gives others, or another first frame.

    It does not give the decoder the first packet, which holds the version of x264, and loses count at keyframes that
    later frames look behind.
    """
    context = stream.codec_context
    has_hidden = len(index.timestamps) < len(index.packets)  # which it counts
    # It trusts the header, where all frames may be keyframes.
    are_known = sum(entry.is_keyframe for entry in stream.index_entries) <= len(index.keyframes)
    is_plain = (context.name, context.pix_fmt) == DECORD_READS and not OLD_X264.search(index.packets[0])
    if has_hidden or not (is_plain and are_known and index.is_closed):
        return None
    import decord

    decord.logging.set_level(decord.logging.QUIET)  # its lines on stderr do not name the file
    first, *frames = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1).get_batch([0, *numbers]).asnumpy()
    return frames if np.array_equal([first], decode_numbers(stream, index, [0]) or ()) else None


def _decode_from_start(path: str, span: Span | None, indices: DrawIndices) -> list[np.ndarray]:
    """Decode a video from its first frame on, and sample the frames that come out of the decoder."""
    with open_container(path) as container:
        stream = video_stream(container)
        rate, unit = float(stream.average_rate or 0), float(stream.time_base or 0)
        packets = (packet for packet in container.demux(stream) if packet.size > 0 and not packet.is_discard)
        stamps = [packet.dts if packet.pts is None else packet.pts for packet in packets]
    part = bounds(span, rate, np.sort(np.array(stamps, float)) * unit)
    indices(*part)  # draws the same random numbers, whether the frames are known or not
    file = os.stat(path)
    identity = file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, span
    part = _parts.get(identity, part)
    while True:
        needed, frames, times = set(indices(*part)), {}, list[float | None]()
        convert = rgb_converter()
        for number, frame in enumerate(decode_all(path)):
            times.append(frame.time)
            if not number or number in needed:
                frames[number] = convert(frame)
        if (found := bounds(span, rate, np.array(times, float))) == part:
            return [frames[number] for number in indices(*part)]
        part = _parts[identity] = found
