"""Decoding of videos to uint8 RGB arrays (H, W, 3) by PyAV, or by decord where asked. Failures raise BadSample.

Of regular videos in mp4, mkv and webm, decoding begins at the keyframe before each frame (data/formats/keyframes.py);
of all others at the first frame, which is exact for every codec and slow for long videos. A file is opened, used and
closed within one call: decord's reader must not be shared by threads and does not survive a fork. Both libraries are
imported when the first video is decoded: sets of images do without them, and MindSpore must be loaded before decord.
"""

import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from zoo.data import stages
from zoo.data.errors import BadSample
from zoo.data.formats import keyframes, regular
from zoo.data.parsing import parsing

if TYPE_CHECKING:
    from av.container import InputContainer
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
    regular.check_frame(stream.codec_context.width, stream.codec_context.height, size)
    stream.codec_context.options = {"max_pixels": str(regular.frame_pixels(size))}  # also of frames that come later
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
    if keyframes.read_index(container, stream) is None:
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
        index = keyframes.read_index(container, stream)
        return None if index is None else keyframes.decode(stream, index, indices(len(index.timestamps)))
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
    convert = keyframes.rgb_converter()
    for index, frame in enumerate(container.decode(stream)):
        if index in needed:
            frames[index] = convert(frame)
        if index == last:
            break
    missing = [index for index in indices if index not in frames]
    if missing:
        raise BadSample(f"its header claims {count} frames, but frame {missing[0]} cannot be decoded")
    return [frames[index] for index in indices]
