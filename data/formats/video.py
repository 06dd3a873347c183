"""Decoding of videos to uint8 RGB arrays (H, W, 3). Failures raise BadSample.

PyAV reads regular videos in mp4, mkv and webm from the keyframe before each frame (data/formats/keyframes.py). The rest
goes to decord where it is exact (H.264, VP8 and VP9, not rotated), and otherwise to PyAV from the first frame on:
decord seeks to wrong frames in HEVC, in MPEG-4 with B-frames, in avi files and where an edit list leaves out frames,
garbles rotated videos, and does not know AV1. Both give the same colors but for interlaced videos, more than 8 bits,
and an odd number of rows with chroma at half the height, by a few values; such videos stay with decord. A reader is
opened, used and dropped within one call: decord's must not be shared by threads and does not survive a fork.

decord and PyAV are imported when the first video is decoded: sets of images do without them, and a process that loads
MindSpore must load it before decord.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zoo.data import stages
from zoo.data.errors import BadSample
from zoo.data.formats import keyframes, mp4, regular
from zoo.data.parsing import parsing
from zoo.data.transforms.geometry import Size

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

FrameSampler = Callable[[int], np.ndarray]  # number of frames -> 0-based indices, of any shape

DECORD_CODECS = ("h264", "vp8", "vp9")
DECORD_CONTAINERS = ("mp4", "matroska", "webm")
PYAV_CODECS = ("hevc", "av1")
EQUAL_PIXEL_FORMATS = ("yuv420p", "yuvj420p", "yuv422p", "yuv444p", "gray")  # same RGB from decord and PyAV
# Formats of FFmpeg that may be opened. Others, such as concat, hls and dash, open further files or addresses.
FORMATS = (
    "mov,mp4,matroska,webm,avi,mpeg,mpegts,mpegvideo,h264,hevc,m4v,ivf,ogg,flv,asf,"
    "gif,jpeg_pipe,png_pipe,webp_pipe,bmp_pipe,tiff_pipe"  # to say of an image that it is one
)
SCRIPTS = (b"ffconcat", b"#EXTM3U", b"[playlist]", b"<", b"v=0")  # beginnings of concat, hls, pls, dash and sdp files
HEAD_SIZE, BLANKS = 64, b"\xef\xbb\xbf \t\r\n"
MAX_BUFFERED_BYTES = 64 << 20  # of a file whose packets are held in memory
NOT_DECODED = "cannot be decoded as video"


@stages.stage(stages.DECODE)
def read_frames(path: str, sample_frames: FrameSampler, min_frames: int = 1) -> list[np.ndarray]:
    """Decode frames of a video file.

    Args:
        path: the video file.
        sample_frames: called with the number of frames, returns the indices of the frames to decode.
        min_frames: number of frames that the video must have.

    Returns:
        uint8 RGB (H, W, 3), upright, for each of the flattened indices.

    Raises:
        BadSample: the file is missing, too short or cannot be decoded.
    """
    size = _check_file(path)
    sample = FrameIndices(sample_frames, min_frames)
    with parsing(NOT_DECODED, kind=BadSample):
        frames = _decode_from_keyframes(path, size, sample)
        if frames is not None:
            return frames
        with open_container(path) as container:
            stream = _video_stream(container, size)
            counts = _count_frames(container, stream, size)
            if not _decord_is_exact(container, stream, counts):
                return _decode_from_start(container, stream, sample, counts.shown)
            frame_size = _frame_size(stream)
    return _decode_with_decord(path, sample, frame_size)


class FrameIndices:
    """The flattened indices of the frames to decode, drawn once for a number of frames."""

    def __init__(self, sample_frames: FrameSampler, min_frames: int):
        self.sample_frames, self.min_frames = sample_frames, min_frames
        self._drawn: dict[int, list[int]] = {}

    def __call__(self, count: int) -> list[int]:
        """Return the indices for `count` frames. Raises BadSample if there are fewer than min_frames."""
        if count not in self._drawn:
            self._drawn[count] = sample_indices(self.sample_frames, count, self.min_frames)
        return self._drawn[count]


def sample_indices(sample_frames: FrameSampler, count: int, min_frames: int) -> list[int]:
    """Return the flattened indices for `count` frames. Raises BadSample if there are fewer than min_frames."""
    if count < min_frames:
        raise BadSample(f"too short: {count} frame(s), data.min_frames is {min_frames}")
    return [int(index) for index in sample_frames(count).ravel()]


def open_container(path: str, options: dict[str, str] | None = None) -> "InputContainer":
    """Open a media file with PyAV and options of FFmpeg; metadata that is not UTF-8 is ignored. Raises BadSample."""
    import av

    with open(path, "rb") as file:
        mp4.check_frame_counts(file, os.fstat(file.fileno()).st_size)
    options = {"format_whitelist": FORMATS, "protocol_whitelist": "file", **(options or {})}
    if int(av.__version__.split(".")[0]) >= 19:  # decodes metadata when they are read
        return av.open(path, options=options)
    return av.open(path, options=options, metadata_errors="ignore")


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


def _video_stream(container: "InputContainer", size: int) -> "VideoStream":
    """Return the video of a file of `size` bytes. Raises BadSample."""
    import av

    stream = container.streams.best("video")
    if not isinstance(stream, av.VideoStream):
        raise BadSample("there is no video in this file")
    stream.codec_context.thread_count = 1
    if stream.frames > size:  # decord would try to allocate an index of them, and abort the process
        raise BadSample(f"its header claims {stream.frames} frames in {size} bytes")
    regular.check_frame(stream.codec_context.width, stream.codec_context.height, size)
    stream.codec_context.options = {"max_pixels": str(regular.frame_pixels(size))}  # also of frames that come later
    return stream


def _decode_from_keyframes(path: str, size: int, sample: FrameIndices) -> list[np.ndarray] | None:
    """Decode what is needed and no more; None if the video is not regular, or damaged."""
    with open_container(path) as container:
        stream = _video_stream(container, size)
        if size > MAX_BUFFERED_BYTES or not _has_pyav_pixels(container, stream):
            return None
        try:
            index = keyframes.read_index(container, stream)
            if index is None:
                return None
            return keyframes.decode(stream, index, _affordable(sample(len(index.timestamps)), _frame_size(stream)))
        except BadSample:
            raise
        except Exception:  # it is damaged: what can be read of it is read from the first frame on
            return None


def _has_pyav_pixels(container: "InputContainer", stream: "VideoStream") -> bool:
    """Return whether PyAV is what decodes a video, or gives the same pixels as decord, which would."""
    context = stream.codec_context
    if not _container_names(container) & set(DECORD_CONTAINERS):
        return False
    even = context.height % 2 == 0 or "420" not in (context.pix_fmt or "")
    equal = context.pix_fmt in EQUAL_PIXEL_FORMATS and even
    return context.codec.canonical_name in PYAV_CODECS or (context.name in DECORD_CODECS and equal)


def _container_names(container: "InputContainer") -> set[str]:
    return set(container.format.name.split(","))


class FrameCounts(NamedTuple):
    """Numbers of frames that a player shows, and that an edit list leaves out; whether no two have the same time."""

    shown: int
    hidden: int
    are_distinct: bool


def _count_frames(container: "InputContainer", stream: "VideoStream", size: int) -> FrameCounts:
    """Read all packets of a video, and count its frames as its header does, but without those of an edit list."""
    total, hidden, are_distinct = _count_packets(container, stream)
    container.seek(0)
    if stream.frames > total:  # the file is truncated, or an edit list leaves out whole groups of pictures
        with open_container(container.name, {"ignore_editlist": "1"}) as whole:
            if _count_packets(whole, _video_stream(whole, size))[0] >= stream.frames:
                return FrameCounts(total - hidden, stream.frames - total + hidden, are_distinct)
    return FrameCounts((stream.frames or total) - hidden, hidden, are_distinct)


def _count_packets(container: "InputContainer", stream: "VideoStream") -> tuple[int, int, bool]:
    """Return the number of packets, how many of them are not shown, and whether all have times of their own."""
    hidden, times = 0, list[int | None]()
    for packet in container.demux(stream):
        if packet.size:
            times.append(packet.pts)
            hidden += packet.is_discard
    return len(times), hidden, None not in times and len(set(times)) == len(times)


def _decord_is_exact(container: "InputContainer", stream: "VideoStream", counts: FrameCounts) -> bool:
    """Return whether decord decodes a video correctly. May cost the decoding of one frame."""
    return (
        stream.codec_context.name in DECORD_CODECS
        and bool(_container_names(container) & set(DECORD_CONTAINERS))
        and not counts.hidden
        and counts.are_distinct  # it may look for a frame forever otherwise
        and not _is_rotated(container, stream)
    )


def _is_rotated(container: "InputContainer", stream: "VideoStream") -> bool:
    """Return whether the first frame is marked as rotated, as phones held upright mark it. Decodes one frame."""
    frame = next(container.decode(stream), None)
    container.seek(0)
    return frame is not None and frame.rotation != 0


def _frame_size(stream: "VideoStream") -> Size:
    return stream.codec_context.width, stream.codec_context.height


def _affordable(indices: list[int], frame_size: Size) -> list[int]:
    """Return indices of frames to decode. Raises BadSample if there would not be room for the frames."""
    regular.check_clip(*frame_size, len(set(indices)))
    return indices


def _decode_with_decord(path: str, sample: FrameIndices, frame_size: Size) -> list[np.ndarray]:
    import decord

    decord.logging.set_level(decord.logging.QUIET)  # its lines on stderr do not name the file
    with parsing(NOT_DECODED, kind=BadSample):
        reader = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
        return list(reader.get_batch(_affordable(sample(len(reader)), frame_size)).asnumpy())


def _decode_from_start(
    container: "InputContainer", stream: "VideoStream", sample: FrameIndices, count: int
) -> list[np.ndarray]:
    """Decode all of `count` frames up to the last one needed: exact for every codec, slow for long videos."""
    indices = _affordable(sample(count), _frame_size(stream))
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
