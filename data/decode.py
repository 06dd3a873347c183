"""Encoded video and picture files to arrays: (L, H, W, 3) uint8 RGB. Whatever cannot be read raises BadSample.

A reader is opened, used and dropped within one call: decord's must not be shared by threads nor survive a fork.
"""
import os
import re
from typing import Callable, List

# decord retries a stream that ends early 10240 times by default; a truncated file must fail in milliseconds.
os.environ.setdefault("DECORD_EOF_RETRY_MAX", "128")

import cv2  # noqa: E402
import numpy as np  # noqa: E402

from data.errors import BadSample  # noqa: E402

cv2.setNumThreads(1)  # one sample per thread: the stream brings the parallelism

Pick = Callable[[int], np.ndarray]  # number of frames -> 0-based indices, of any shape


def video_frames(path: str, pick: Pick, min_frames: int = 1) -> np.ndarray:
    """The picked frames of a video file, in the order of pick(n).ravel()."""
    import decord  # here, not above: a process that loads MindSpore must load it before decord

    try:
        if os.path.getsize(path) == 0:
            raise BadSample("the file is empty")
        reader = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
        indices = _picked(pick, len(reader), min_frames)
        return reader.get_batch(indices).asnumpy()
    except FileNotFoundError:
        raise BadSample("no such file") from None
    except (RuntimeError, decord.DECORDError, IndexError, OSError) as error:
        if _codec(path) == "av1":  # the one common codec that decord 0.6 was built without
            return _av_frames(path, pick, min_frames)
        raise BadSample(f"cannot be decoded as video ({_reason(error)})") from None


def picture_frames(folder: str, template: str, first: int, count: int, pick: Pick, min_frames: int = 1) -> np.ndarray:
    """The picked frames of a folder of numbered pictures.

    count is what the list claims; where a picture is missing, the pictures that exist are counted and picked from.
    """
    try:
        return _pictures([os.path.join(folder, template.format(first + int(i)))
                          for i in _picked(pick, count, min_frames)])
    except FileNotFoundError:
        names = _numbered(folder, template)
        return _pictures([names[int(i)] for i in _picked(pick, len(names), min_frames)])


def _picked(pick: Pick, count: int, min_frames: int) -> List[int]:
    if count < min_frames:
        raise BadSample(f"too short: {count} frame(s), data.min_frames is {min_frames}")
    return [int(i) for i in pick(count).ravel()]


def _pictures(paths: List[str]) -> np.ndarray:
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


def _numbered(folder: str, template: str) -> List[str]:
    """Existing pictures in the order of their numbers."""
    before, after = re.split(r"\{[^}]*\}", template, maxsplit=1)
    pattern = re.compile(re.escape(before) + r"(\d+)" + re.escape(after) + "$")
    try:
        found = [(int(match.group(1)), match.string) for match in map(pattern.match, os.listdir(folder)) if match]
    except OSError:
        raise BadSample("no such folder") from None
    return [os.path.join(folder, name) for _, name in sorted(found)]


def _codec(path: str) -> str:
    import av

    try:
        with av.open(path) as container:
            return {"libdav1d": "av1"}.get(container.streams.video[0].codec.name, container.streams.video[0].codec.name)
    except (av.error.FFmpegError, IndexError, OSError):
        return ""


def _av_frames(path: str, pick: Pick, min_frames: int) -> np.ndarray:
    """As video_frames, by PyAV: decodes from the start, so it is exact but slow on long videos."""
    import av

    try:
        with av.open(path) as container:
            stream = container.streams.video[0]
            count = stream.frames or sum(1 for _ in container.decode(stream))
            indices = _picked(pick, count, min_frames)
            container.seek(0)
            last, wanted, frames = max(indices), set(indices), {}
            for number, frame in enumerate(container.decode(stream)):
                if number in wanted:
                    frames[number] = frame.to_ndarray(format="rgb24")
                if number == last:
                    break
            return np.stack([frames[i] for i in indices])
    except (av.error.FFmpegError, KeyError) as error:
        raise BadSample(f"cannot be decoded as video ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """The first line of a decoder's message, without its time stamps and source lines."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return re.sub(r"^(\[[\d:]+\] \S+?:\d+: )+", "", lines[0]).strip()[:160]
