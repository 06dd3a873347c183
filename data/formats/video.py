"""Encoded video and picture files to arrays: (L, H, W, 3) uint8 RGB. Whatever cannot be read raises BadSample.

decord reads what it reads exactly: H.264, VP8 and VP9 in mp4, mkv and webm, which is nearly all video there is. It
seeks to wrong frames in HEVC and MPEG-4 with B-frames and in avi files, garbles rotated ones, and knows no AV1; there,
PyAV decodes from the start. A reader is opened, used and dropped within one call: decord's must not be shared by
threads nor survive a fork.
"""

import os
import re
from collections.abc import Callable

import av
import cv2
import numpy as np

from data.errors import BadSample

cv2.setNumThreads(1)  # one sample per thread: the stream brings the parallelism

Pick = Callable[[int], np.ndarray]  # number of frames -> 0-based indices, of any shape

DECORD_CODECS, DECORD_CONTAINERS = ("h264", "vp8", "vp9"), ("mp4", "matroska", "webm")
# av raises its own errors and, on broken files, some of Python's.
FAILURES = (av.error.FFmpegError, OSError, ValueError, LookupError, AttributeError)


def video_frames(path: str, pick: Pick, min_frames: int = 1) -> np.ndarray:
    """The picked frames of a video file, in the order of pick(n).ravel()."""
    if not os.path.exists(path):
        raise BadSample("no such file")
    try:
        size = os.path.getsize(path)
        if size == 0:
            raise BadSample("the file is empty")
        with av.open(path, metadata_errors="ignore") as container:
            stream = container.streams.best("video")
            if stream is None:
                raise BadSample("there is no video in this file")
            stream.codec_context.thread_count = 1
            if stream.frames > size:  # decord would try to allocate an index of them, and abort the process
                raise BadSample(f"its header claims {stream.frames} frames in {size} bytes")
            containers = container.format.name.split(",")
            if (
                stream.codec_context.name not in DECORD_CODECS
                or not set(containers) & set(DECORD_CONTAINERS)
                or _rotated(container, stream)
            ):
                return _decode_all(container, stream, pick, min_frames)
    except FAILURES as error:
        raise BadSample(f"cannot be decoded as video ({_reason(error)})") from None
    return _decord(path, pick, min_frames)


def image_frames(folder: str, template: str, first: int, count: int, pick: Pick, min_frames: int = 1) -> np.ndarray:
    """The picked frames of a folder of numbered pictures.

    count is what the list claims; where a picture is missing, the pictures that exist are counted and picked from.
    """
    try:
        try:
            return _pictures(
                [os.path.join(folder, template.format(first + i)) for i in _picked(pick, count, min_frames)]
            )
        except FileNotFoundError:
            names = _numbered(folder, template)
            return _pictures([names[i] for i in _picked(pick, len(names), min_frames)])
    except OSError as error:
        raise BadSample(f"cannot be read ({error.strerror}: {error.filename})") from None


def _decord(path: str, pick: Pick, min_frames: int) -> np.ndarray:
    import decord  # here, not above: a process that loads MindSpore must load it before decord

    try:
        reader = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
        return reader.get_batch(_picked(pick, len(reader), min_frames)).asnumpy()
    except (RuntimeError, decord.DECORDError, IndexError, OSError) as error:
        raise BadSample(f"cannot be decoded as video ({_reason(error)})") from None


def _rotated(container, stream) -> bool:
    """Whether the first frame is marked to be turned, as a phone held upright does. Costs one frame."""
    frame = next(container.decode(stream), None)
    container.seek(0)
    return frame is not None and frame.rotation != 0


def _decode_all(container, stream, pick: Pick, min_frames: int) -> np.ndarray:
    """Decode from the start: exact for every codec, slow for long videos."""
    count = stream.frames or sum(packet.size > 0 for packet in container.demux(stream))
    indices = _picked(pick, count, min_frames)
    container.seek(0)
    last, wanted, frames = max(indices), set(indices), {}
    for number, frame in enumerate(container.decode(stream)):
        if number in wanted:
            frames[number] = np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90)  # counterclockwise
        if number == last:
            break
    missing = [i for i in indices if i not in frames]
    if missing:
        raise BadSample(f"its header claims {count} frames, but frame {missing[0]} cannot be decoded")
    return np.stack([frames[i] for i in indices])


def _picked(pick: Pick, count: int, min_frames: int) -> list[int]:
    if count < min_frames:
        raise BadSample(f"too short: {count} frame(s), data.min_frames is {min_frames}")
    return [int(i) for i in pick(count).ravel()]


def _pictures(paths: list[str]) -> np.ndarray:
    frames = []
    for path in paths:
        with open(path, "rb") as file:
            encoded = np.frombuffer(file.read(), np.uint8)
        frame = cv2.imdecode(encoded, cv2.IMREAD_COLOR) if encoded.size else None
        if frame is None:
            raise BadSample(f"{os.path.basename(path)} cannot be decoded as a picture")
        frames.append(frame[:, :, ::-1])
    if any(frame.shape != frames[0].shape for frame in frames):
        raise BadSample("its pictures differ in size")
    return np.stack(frames)


def _numbered(folder: str, template: str) -> list[str]:
    """Existing pictures in the order of their numbers."""
    before, after = re.split(r"\{[^}]*\}", template, maxsplit=1)
    pattern = re.compile(re.escape(before) + r"(\d+)" + re.escape(after) + "$")
    try:
        found = [(int(match.group(1)), match.string) for match in map(pattern.match, os.listdir(folder)) if match]
    except FileNotFoundError:
        raise BadSample("no such folder") from None
    return [os.path.join(folder, name) for _, name in sorted(found)]


def _reason(error: Exception) -> str:
    """The first line of a decoder's message, without its time stamps and source lines."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return re.sub(r"^(\[[\d:]+\] \S+?:\d+: )+", "", lines[0]).strip()[:160]
