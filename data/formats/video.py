"""Decoding of videos to uint8 RGB arrays (H, W, 3) by PyAV, or by decord where asked. Failures raise BadSample.

Of regular videos in mp4, mkv and webm, decoding begins at the keyframe before each frame, and no packet is decoded that
is not needed. A video is regular if every packet is a frame with a time stamp of its own, and the first is a keyframe.
Of all others, decoding begins at the first frame, which is exact for every codec and slow for long videos. Frames that
no player shows, because an edit list leaves them out, do not count; others may refer to them.

A file is opened, used and closed within one call: decord's reader must not be shared by threads and does not survive a
fork. Both libraries are imported when the first video is decoded: sets of images do without them, and MindSpore must be
loaded before decord.
"""

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from zoo.data import stages
from zoo.data.errors import BadSample
from zoo.data.formats import regular
from zoo.data.parsing import parsing

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

FrameSampler = Callable[[int], np.ndarray]  # number of frames -> 0-based indices, of any shape

SEEKABLE_CODECS = ("h264", "hevc", "av1", "vp8", "vp9")
SEEKABLE_CONTAINERS = {"mp4", "matroska", "webm"}
DECORD_CODECS = ("h264", "vp8", "vp9")  # it seeks to wrong frames in HEVC and MPEG-4, and does not know AV1
# Formats of FFmpeg that may be opened. Others, such as concat, hls and dash, open further files or addresses.
FORMATS = (
    "mov,mp4,matroska,webm,avi,mpeg,mpegts,mpegvideo,h264,hevc,m4v,ivf,ogg,flv,asf,"
    "gif,jpeg_pipe,png_pipe,webp_pipe,bmp_pipe,tiff_pipe"  # to say of an image that it is one
)
SCRIPTS = (b"ffconcat", b"#EXTM3U", b"[playlist]", b"<", b"v=0")  # beginnings of concat, hls, pls, dash and sdp files
HEAD_SIZE, BLANKS = 64, b"\xef\xbb\xbf \t\r\n"
MAX_BUFFERED_BYTES = 64 << 20  # of a file whose packets are held in memory
NOT_DECODED = "cannot be decoded as video"

# Boxes of MP4 files (ISO/IEC 14496-12) that hold others, and the fields of those that claim a number of frames.
CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"mvex", b"udta", b"edts", b"dinf")
BOX, LONG_SIZE = struct.Struct(">I4s"), struct.Struct(">Q")
LAYOUTS = {b"hdlr": struct.Struct(">8x4s"), b"stsz": struct.Struct(">4xII"), b"trun": struct.Struct(">4xI")}
TO_END, LONG = 0, 1  # sizes with a meaning
SOUND = b"soun"  # of which FFmpeg makes one entry per chunk
MAX_BOXES, FREE_FRAMES, BYTES_PER_FRAME = 1_000_000, 1_000_000, 4


@stages.stage(stages.DECODE)
def read_frames(path: str, sample_frames: FrameSampler, min_frames: int = 1, decoder: str = "pyav") -> list[np.ndarray]:
    """Decode frames of a video file.

    Args:
        path: the video file.
        sample_frames: called with the number of frames, returns the indices of the frames to decode.
        min_frames: number of frames that the video must have.
        decoder: "decord" reads the videos by it that it reads rightly, "pyav" none.

    Returns:
        uint8 RGB (H, W, 3), upright, for each of the flattened indices.

    Raises:
        BadSample: the file is missing, too short or cannot be decoded.
    """
    size = _check_file(path)
    drawn: dict[int, list[int]] = {}

    def indices(count: int) -> list[int]:
        """Draw the frames once for each number of frames."""
        if count not in drawn:
            drawn[count] = sample_indices(sample_frames, count, min_frames)
            regular.check_clip(stream.codec_context.width, stream.codec_context.height, len(set(drawn[count])))
        return drawn[count]

    with parsing(NOT_DECODED, kind=BadSample):
        if decoder == "decord":
            with open_container(path) as container:
                stream = video_stream(container)
                if _decord_is_exact(container, stream):
                    return _decode_with_decord(path, indices)
        with open_container(path) as container:
            stream = video_stream(container)
            frames = _decode_from_keyframes(container, stream, size, indices)
        if frames is not None:
            return frames
        with open_container(path) as container:
            stream = video_stream(container)
            count = _count_frames(container, stream)
            return _decode_from_start(container, stream, indices(count), count)


def sample_indices(sample_frames: FrameSampler, count: int, min_frames: int) -> list[int]:
    """Return the flattened indices for `count` frames. Raises BadSample if there are fewer than min_frames."""
    if count < min_frames:
        raise BadSample(f"too short: {count} frame(s), data.min_frames is {min_frames}")
    return [int(index) for index in sample_frames(count).ravel()]


def open_container(path: str, options: dict[str, str] | None = None) -> "InputContainer":
    """Open a media file with PyAV and options of FFmpeg; metadata that is not UTF-8 is ignored. Raises BadSample."""
    import av

    with open(path, "rb") as file:
        check_frame_counts(file, os.fstat(file.fileno()).st_size)
    options = {"format_whitelist": FORMATS, "protocol_whitelist": "file", **(options or {})}
    if int(av.__version__.split(".")[0]) >= 19:  # decodes metadata when they are read
        return av.open(path, options=options)
    return av.open(path, options=options, metadata_errors="ignore")


def video_stream(container: "InputContainer") -> "VideoStream":
    """Return the video of a container, to be decoded by one thread. Raises BadSample."""
    import av
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
        elif length == TO_END or at + length < start:
            return
        else:
            at += length
    raise BadSample(f"it has more than {MAX_BOXES} boxes")


def _unpack(layout: struct.Struct, file: BinaryIO) -> tuple[Any, ...]:
    """Return the fields that come next in a file; zeros, which end the search, where the file ends."""
    return layout.unpack(file.read(layout.size).ljust(layout.size, b"\0"))


def _check_file(path: str) -> int:
    """Return the size of a video file in bytes. Raises BadSample if it is empty, no regular file, or names others."""
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
    return size


def _decord_is_exact(container: "InputContainer", stream: "VideoStream") -> bool:
    """Return whether decord gives the right frames: those of a regular video that is not rotated. Decodes one frame."""
    if not _is_seekable(container) or stream.codec_context.name not in DECORD_CODECS:
        return False
    if read_index(container, stream) is None:
        return False
    container.seek(0)
    frame = next(container.decode(stream), None)
    return frame is not None and frame.rotation == 0


def _decode_with_decord(path: str, indices: Callable[[int], list[int]]) -> list[np.ndarray]:
    import decord

    decord.logging.set_level(decord.logging.QUIET)  # its lines on stderr do not name the file
    reader = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
    return list(reader.get_batch(indices(len(reader))).asnumpy())


def _is_seekable(container: "InputContainer") -> bool:
    return bool(SEEKABLE_CONTAINERS & set(container.format.name.split(",")))


def _decode_from_keyframes(
    container: "InputContainer", stream: "VideoStream", size: int, indices: Callable[[int], list[int]]
) -> list[np.ndarray] | None:
    """Decode what is needed and no more; None if the video is not regular, or damaged."""
    has_codec = stream.codec_context.codec.canonical_name in SEEKABLE_CODECS
    if size > MAX_BUFFERED_BYTES or not has_codec or not _is_seekable(container):
        return None
    try:
        index = read_index(container, stream)
        return None if index is None else decode_numbers(stream, index, indices(len(index.timestamps)))
    except BadSample:
        raise
    except Exception:  # it is damaged: what can be read of it is read from the first frame on
        return None


def _count_frames(container: "InputContainer", stream: "VideoStream") -> int:
    """Read all packets of a video, and count its frames as its header does, but without those of an edit list."""
    total, hidden = _count_packets(container, stream)
    container.seek(0)
    if stream.frames > total:  # the file is truncated, or an edit list leaves out whole groups of pictures
        with open_container(container.name, {"ignore_editlist": "1"}) as whole:
            if _count_packets(whole, video_stream(whole))[0] >= stream.frames:
                return total - hidden
    return (stream.frames or total) - hidden


def _count_packets(container: "InputContainer", stream: "VideoStream") -> tuple[int, int]:
    """Return the number of packets, and how many of them are not shown."""
    packets = [packet.is_discard for packet in container.demux(stream) if packet.size]
    return len(packets), sum(packets)


def _decode_from_start(
    container: "InputContainer", stream: "VideoStream", indices: list[int], count: int
) -> list[np.ndarray]:
    """Decode all of `count` frames up to the last one needed."""
    last, needed, frames = max(indices), set(indices), {}
    convert = rgb_converter()
    for index, frame in enumerate(container.decode(stream)):
        if index in needed:
            frames[index] = convert(frame)
        if index == last:
            break
    missing = [index for index in indices if index not in frames]
    if missing:
        raise BadSample(f"its header claims {count} frames, but frame {missing[0]} cannot be decoded")
    return [frames[index] for index in indices]


class PacketIndex(NamedTuple):
    """The packets of a regular video."""

    packets: list["Packet"]  # in the order in which they are decoded
    timestamps: list[int]  # of the frames that are shown, in the order in which they are
    keyframes: list[int]  # positions in `packets`


def read_index(container: "InputContainer", stream: "VideoStream") -> PacketIndex | None:
    """Read all packets of a video, still encoded; None if it is not regular. Raises errors of PyAV."""
    packets: list[Packet] = []
    timestamps: set[int] = set()
    hidden: set[int] = set()
    keyframes: list[int] = []
    for packet in container.demux(stream):
        if not packet.size:  # the end
            continue
        if packet.pts is None or packet.is_corrupt:
            return None
        if packet.is_discard:
            hidden.add(packet.pts)
        if packet.is_keyframe:
            keyframes.append(len(packets))
        packets.append(packet)
        timestamps.add(packet.pts)
    is_regular = (
        len(timestamps) == len(packets) and stream.frames in (0, len(packets)) and bool(keyframes) and not keyframes[0]
    )
    return PacketIndex(packets, sorted(timestamps - hidden), keyframes) if is_regular else None


def decode_numbers(stream: "VideoStream", index: PacketIndex, numbers: Sequence[int]) -> list[np.ndarray] | None:
    """Decode frames by number.

    Args:
        stream: the video; its decoder has not been used.
        index: its packets.
        numbers: of the frames, from 0, in the order in which they are shown; they may repeat.

    Returns:
        uint8 RGB (H, W, 3) for each number, upright; None if one of them does not come out of the decoder.

    Raises:
        Errors of PyAV.
    """
    wanted = sorted({index.timestamps[number] for number in numbers})
    starts = _starts(index, wanted)
    groups = [
        (start, {timestamp for timestamp, first in zip(wanted, starts) if first == start})
        for start in sorted(set(starts))
    ]
    frames: dict[int, np.ndarray] = {}
    convert = rgb_converter()
    # Where pictures are refreshed stripe by stripe, those after a keyframe are incomplete, and the decoder drops them.
    for start, group in [*groups, (0, set(wanted))]:
        if group <= frames.keys():
            continue
        for frame in _decode_packets(stream, index.packets[start:], group):
            if frame.pts in group:
                frames[frame.pts] = convert(frame)
        stream.codec_context.flush_buffers()  # it has been told that the video ends
    if len(frames) < len(wanted):
        return None
    return [frames[index.timestamps[number]] for number in numbers]


def rgb_converter() -> Callable[["VideoFrame"], np.ndarray]:
    """Return a function that converts frames of a video to uint8 RGB (H, W, 3), rotated as their metadata tell.

    It is for one thread. Its converter serves all frames; `VideoFrame.to_ndarray` would set one up for each.
    """
    from av.video.reformatter import VideoReformatter

    converter = VideoReformatter()

    def convert(frame: "VideoFrame") -> np.ndarray:
        pixels = converter.reformat(frame, format="rgb24").to_ndarray()
        return np.rot90(pixels, frame.rotation // 90)  # counterclockwise

    return convert


def _starts(index: PacketIndex, wanted: Sequence[int]) -> list[int]:
    """Return, for each time stamp, the position of the last keyframe that is not shown later.

    Frames that are shown before a keyframe and stored after it (of an open GOP) refer to the keyframe before.
    """
    shown = [index.packets[position].pts or 0 for position in index.keyframes]
    return [
        max((position for position, pts in zip(index.keyframes, shown) if pts <= timestamp), default=0)
        for timestamp in wanted
    ]


def _decode_packets(stream: "VideoStream", packets: Sequence["Packet"], wanted: set[int]) -> Iterable["VideoFrame"]:
    """Decode packets until all wanted time stamps have been given to the decoder, and all that it holds back."""
    context, missing = stream.codec_context, len(wanted)
    # H.264 marks the frames that no other frame refers to; other codecs do so per layer, which is not the same.
    skips = context.name == "h264"
    for packet in packets:
        needed = packet.pts in wanted
        if skips:
            context.skip_frame = "DEFAULT" if needed else "NONREF"
        yield from context.decode(packet)
        missing -= needed
        if not missing:
            break
    yield from context.decode(None)
