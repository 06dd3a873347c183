"""Small encoded clips whose frames show their own number, for the tests of everything that decodes video."""

import os
import struct
from fractions import Fraction

import av
import numpy as np

from zoo.data.formats import video

BITS = 8  # frame numbers 0..255
ENCODER_OPTIONS = {"libx265": {"x265-params": "log-level=none"}, "libsvtav1": {"preset": "12"}}


def numbered(count, width=96, height=64):
    """Frames (count, height, width, 3): bars along the longer side, bar b bright where bit b of the number is 1."""
    along = np.arange(max(width, height)) * BITS // max(width, height)
    frames = []
    for number in range(count):
        line = np.where(number >> along & 1, 200, 60).astype(np.uint8)
        plane = np.tile(line, (height, 1)) if width >= height else np.tile(line[:, None], (1, width))
        frames.append(np.repeat(plane[:, :, None], 3, axis=2))
    return np.stack(frames)


def textured(count, height=64, width=96):
    """Frames of a drifting texture, so that the codec needs motion and residuals."""
    texture = np.random.default_rng(0).integers(0, 256, (height // 8 + count, width // 8 + count, 3), dtype=np.uint8)
    large = np.kron(texture, np.ones((8, 8, 1), np.uint8))
    return np.stack([large[2 * at : 2 * at + height, 3 * at : 3 * at + width] for at in range(count)])


def read_numbers(frames):
    """Return the numbers that decoded frames show."""
    numbers = []
    for frame in frames:
        profile = frame.mean((0, 2)) if frame.shape[1] >= frame.shape[0] else frame.mean((1, 2))
        centers = (np.arange(BITS) * 2 + 1) * len(profile) // (2 * BITS)
        numbers.append(int(sum(1 << bit for bit, center in enumerate(centers) if profile[center] > 130)))
    return numbers


def encode(path, frames, codec="libx264", rate=25, pix_fmt="yuv420p", gop=12, container_options=None, **options):
    """Write frames (L, H, W, 3) RGB with any codec, and return the path as a string."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        with av.open(str(path), "w", options=container_options or {}) as container:
            stream = container.add_stream(codec, rate=Fraction(rate))
            stream.width, stream.height, stream.pix_fmt = frames.shape[2], frames.shape[1], pix_fmt
            stream.codec_context.gop_size = gop
            stream.options = {**ENCODER_OPTIONS.get(codec, {}), **options}
            for frame in frames:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
            container.mux(stream.encode())
    finally:  # SVT-AV1 gives the calling thread a real-time priority, which every later process would inherit
        os.sched_setscheduler(0, policy, priority)
    return str(path)


def encode_rotated(path, count, degrees):
    """Write landscape frames marked as rotated, as phones store upright video; return them, (count, 48, 96, 3).

    The white quarter at the top left shows the rotation.
    """
    frames = np.zeros((count, 48, 96, 3), np.uint8)
    frames[:, :24, :48] = 255
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=12)
        stream.width, stream.height, stream.pix_fmt = 96, 48, "yuv420p"
        stream.set_display_rotation(degrees)
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return frames


def with_edit_list(source, target, first, count):
    """Copy an mp4 file of a constant rate with an edit list that shows `count` frames from `first` on."""
    with av.open(source) as container:
        stream = container.streams.video[0]
        frame = int(1 / (stream.average_rate * stream.time_base))  # in units of the track
        milliseconds = int(1000 * count / stream.average_rate)
    with open(source, "rb") as file:
        content = bytearray(file.read())
    entry = content.index(b"elst") + len(b"elst") + 8  # version and flags, number of entries
    _, start = struct.unpack_from(">Ii", content, entry)
    struct.pack_into(">Ii", content, entry, milliseconds, start + first * frame)
    with open(target, "wb") as file:
        file.write(content)
    return str(target)


def encode_audio(path):
    """Write an mp4 with sound and no video stream."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 44100), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return str(path)


def has_encoder(codec):
    try:
        av.codec.Codec(codec, "w")
    except av.codec.codec.UnknownCodecError:
        return False
    return True


def video_frames(path, sample_frames, min_frames=1):
    """Decode frames of a video: uint8 RGB (L, H, W, 3)."""
    return np.stack(video.read_frames(path, sample_frames, min_frames))


def sampling(numbers):
    """Return a frame sampler that selects these frames."""
    return lambda n: np.asarray(numbers)
