"""Decoding of single frames of a video with PyAV: from the keyframe before each, and no packet that it does not need.

Only regular videos are read so: every packet is a frame with a time stamp of its own, and the first is a keyframe.
Frames that no player shows, because an edit list leaves them out, do not count; others may refer to them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


class Index(NamedTuple):
    """The packets of a regular video."""

    packets: list["Packet"]  # in the order in which they are decoded
    timestamps: list[int]  # of the frames that are shown, in the order in which they are
    keyframes: list[int]  # positions in `packets`


def read_index(container: "InputContainer", stream: "VideoStream") -> Index | None:
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
    regular = (
        len(timestamps) == len(packets) and stream.frames in (0, len(packets)) and bool(keyframes) and not keyframes[0]
    )
    return Index(packets, sorted(timestamps - hidden), keyframes) if regular else None


def decode(stream: "VideoStream", index: Index, numbers: Sequence[int]) -> list[np.ndarray] | None:
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
        for frame in _decode_from(stream, index.packets[start:], group):
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


def _starts(index: Index, wanted: Sequence[int]) -> list[int]:
    """Return, for each time stamp, the position of the last keyframe that is not shown later.

    Frames that are shown before a keyframe and stored after it (of an open GOP) refer to the keyframe before.
    """
    shown = [index.packets[position].pts or 0 for position in index.keyframes]
    return [
        max((position for position, pts in zip(index.keyframes, shown) if pts <= timestamp), default=0)
        for timestamp in wanted
    ]


def _decode_from(stream: "VideoStream", packets: Sequence["Packet"], wanted: set[int]) -> Iterable["VideoFrame"]:
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
