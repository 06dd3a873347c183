"""Decoding of videos and folders of numbered images to uint8 RGB arrays (L, H, W, 3). Failures raise BadSample.

decord is used where it is exact: H.264, VP8 and VP9 in mp4, mkv and webm, which is nearly all video there is. It seeks
to wrong frames in HEVC, in MPEG-4 with B-frames and in avi files, garbles rotated videos, and does not know AV1. Those
are decoded by PyAV from the start. A reader is opened, used and dropped within one call: decord's must not be shared
by threads and does not survive a fork.

decord and PyAV are imported when the first video is decoded: sets of images do without them, and a process that loads
MindSpore must load it before decord.
"""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import cv2
import numpy as np

from data.errors import BadSample

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

cv2.setNumThreads(1)  # one sample per thread: the stream runs several

FrameSampler = Callable[[int], np.ndarray]  # number of frames -> 0-based indices, of any shape

DECORD_CODECS = ("h264", "vp8", "vp9")
DECORD_CONTAINERS = ("mp4", "matroska", "webm")
MAX_REASON_LENGTH = 160  # characters of a decoder's message


def video_frames(path: str, sample_frames: FrameSampler, min_frames: int = 1) -> np.ndarray:
    """Decode frames of a video file.

    Args:
        path: the video file.
        sample_frames: called with the number of frames, returns the indices of the frames to decode.
        min_frames: number of frames that the video must have.

    Returns:
        uint8 RGB (L, H, W, 3), upright, in the order of the flattened indices.

    Raises:
        BadSample: the file is missing, too short or cannot be decoded.
    """
    import av

    if not os.path.exists(path):
        raise BadSample("no such file")
    try:
        size = os.path.getsize(path)
        if size == 0:
            raise BadSample("the file is empty")
        with open_container(path) as container:
            stream = container.streams.best("video")
            if not isinstance(stream, av.VideoStream):
                raise BadSample("there is no video in this file")
            stream.codec_context.thread_count = 1
            if stream.frames > size:  # decord would try to allocate an index of them, and abort the process
                raise BadSample(f"its header claims {stream.frames} frames in {size} bytes")
            if not _decord_is_exact(container, stream):
                return _decode_from_start(container, stream, sample_frames, min_frames)
    except decode_errors() as error:
        raise BadSample(f"cannot be decoded as video ({_reason(error)})") from None
    return _decode_with_decord(path, sample_frames, min_frames)


def open_container(path: str) -> "InputContainer":
    """Open a media file with PyAV; metadata that is not UTF-8 is ignored."""
    import av

    if int(av.__version__.split(".")[0]) >= 19:  # decodes metadata when they are read
        return av.open(path)
    return av.open(path, metadata_errors="ignore")


def image_frames(
    folder: str, template: str, first: int, count: int, sample_frames: FrameSampler, min_frames: int = 1
) -> np.ndarray:
    """Decode frames of a folder of numbered images.

    Args:
        folder: the folder.
        template: format string of the file names, such as "img_{:05d}.jpg".
        first: number of the first image.
        count: number of images according to the list. If a sampled one is missing, the existing images are counted
            and sampled instead.
        sample_frames: called with the number of images, returns the 0-based indices of the images to decode.
        min_frames: number of images that the folder must have.

    Returns:
        uint8 RGB (L, H, W, 3), in the order of the flattened indices.

    Raises:
        BadSample: the folder is missing or too short, or an image cannot be decoded.
    """
    try:
        try:
            indices = _sample(sample_frames, count, min_frames)
            return _decode_images([os.path.join(folder, template.format(first + index)) for index in indices])
        except FileNotFoundError:
            paths = _numbered_images(folder, template)
            return _decode_images([paths[index] for index in _sample(sample_frames, len(paths), min_frames)])
    except OSError as error:
        raise BadSample(f"cannot be read ({error.strerror}: {error.filename})") from None


def decode_errors() -> tuple[type[Exception], ...]:
    """Return the errors that PyAV raises for damaged files: its own and some of Python's."""
    import av

    return av.error.FFmpegError, OSError, ValueError, LookupError, AttributeError


def _decord_is_exact(container: "InputContainer", stream: "VideoStream") -> bool:
    """Return whether decord decodes a video correctly. May cost the decoding of one frame."""
    return (
        stream.codec_context.name in DECORD_CODECS
        and bool(set(container.format.name.split(",")) & set(DECORD_CONTAINERS))
        and not _is_rotated(container, stream)
    )


def _is_rotated(container: "InputContainer", stream: "VideoStream") -> bool:
    """Return whether the first frame is marked as rotated, as phones held upright mark it. Decodes one frame."""
    frame = next(container.decode(stream), None)
    container.seek(0)
    return frame is not None and frame.rotation != 0


def _decode_with_decord(path: str, sample_frames: FrameSampler, min_frames: int) -> np.ndarray:
    import decord

    try:
        reader = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
        return reader.get_batch(_sample(sample_frames, len(reader), min_frames)).asnumpy()
    except (RuntimeError, decord.DECORDError, IndexError, OSError) as error:
        raise BadSample(f"cannot be decoded as video ({_reason(error)})") from None


def _decode_from_start(
    container: "InputContainer", stream: "VideoStream", sample_frames: FrameSampler, min_frames: int
) -> np.ndarray:
    """Decode all frames up to the last one needed: exact for every codec, slow for long videos."""
    count = stream.frames or sum(packet.size > 0 for packet in container.demux(stream))
    indices = _sample(sample_frames, count, min_frames)
    container.seek(0)
    last, needed, frames = max(indices), set(indices), {}
    for index, frame in enumerate(container.decode(stream)):
        if index in needed:
            frames[index] = np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90)  # counterclockwise
        if index == last:
            break
    missing = [index for index in indices if index not in frames]
    if missing:
        raise BadSample(f"its header claims {count} frames, but frame {missing[0]} cannot be decoded")
    return np.stack([frames[index] for index in indices])


def _sample(sample_frames: FrameSampler, count: int, min_frames: int) -> list[int]:
    """Return the flattened indices for `count` frames. Raises BadSample if there are fewer than min_frames."""
    if count < min_frames:
        raise BadSample(f"too short: {count} frame(s), data.min_frames is {min_frames}")
    return [int(index) for index in sample_frames(count).ravel()]


def _decode_images(paths: list[str]) -> np.ndarray:
    frames = []
    for path in paths:
        with open(path, "rb") as file:
            encoded = np.frombuffer(file.read(), np.uint8)
        frame = cv2.imdecode(encoded, cv2.IMREAD_COLOR) if encoded.size else None
        if frame is None:
            raise BadSample(f"{os.path.basename(path)} cannot be decoded as an image")
        frames.append(frame[:, :, ::-1])
    if any(frame.shape != frames[0].shape for frame in frames):
        raise BadSample("its images differ in size")
    return np.stack(frames)


def _numbered_images(folder: str, template: str) -> list[str]:
    """Return the paths of the existing images of a template, in the order of their numbers."""
    prefix, suffix = re.split(r"\{[^}]*\}", template, maxsplit=1)
    pattern = re.compile(re.escape(prefix) + r"(\d+)" + re.escape(suffix) + "$")
    try:
        matches = [match for match in map(pattern.match, os.listdir(folder)) if match]
    except FileNotFoundError:
        raise BadSample("no such folder") from None
    return [os.path.join(folder, name) for _, name in sorted((int(match[1]), match.string) for match in matches)]


def _reason(error: Exception) -> str:
    """Return the first line of a decoder's message, without its time stamps and source locations."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return re.sub(r"^(\[[\d:]+\] \S+?:\d+: )+", "", lines[0]).strip()[:MAX_REASON_LENGTH]
