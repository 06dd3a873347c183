"""Frames of regular videos, decoded from the keyframe before each of them on; and their conversion to RGB.

A video is regular if every packet is a frame with a time stamp of its own, the first is a keyframe, and what the header
and the first packet tell the decoder holds for all of them.
"""

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

CODECS = ("h264", "hevc", "av1", "vp8", "vp9")
CONTAINERS = {"mp4", "matroska", "webm"}
MAX_BUFFERED_BYTES = 64 << 20  # of a file whose packets are held in memory
VP8_SHOWN = 1 << 4  # bit of the first byte of a packet
# Of H.264 and HEVC: where a header has the size of lengths, shift and mask of a NAL unit's type, types of slices.
UNITS = {"h264": (4, 0, 31, range(1, 6)), "hevc": (21, 1, 63, range(32))}
PARAMETERS = {"h264": (7, 8, 13, 15), "hevc": (32, 33, 34)}  # types of parameter sets
IDR = 5  # type of slices of H.264 after which nothing refers to frames before
LENGTHS = b"\1"  # begins headers of videos whose units have a length in front
X264 = b"x264 - core "
OLD_X264 = re.compile(X264 + rb"(\d\d?|1[0-4]\d|150) ")  # whose 4:4:4 is decoded in another way
UPRIGHT = (False, 1, 1)


class PacketIndex(NamedTuple):
    packets: list["Packet"]  # in the order in which they are decoded
    timestamps: list[int]  # of the frames that are shown, in the order in which they are
    keyframes: list[int]  # positions in `packets`
    is_closed: bool  # no frame of H.264 refers to one before the last keyframe


def read_index(container: "InputContainer", stream: "VideoStream") -> PacketIndex | None:
    """Read all packets of a video, still encoded; None if it is not regular. Raises errors of PyAV."""
    codec, known = stream.codec_context.codec.canonical_name, stream.codec_context.extradata or b""
    is_large = os.path.getsize(container.name) > MAX_BUFFERED_BYTES
    if is_large or codec not in CODECS or not CONTAINERS & set(container.format.name.split(",")):
        return None
    header = known
    if codec in UNITS and header[:1] != LENGTHS:
        return None
    packets: list[Packet] = []
    timestamps: list[int] = []
    hidden: set[int] = set()
    keyframes: list[int] = []
    is_closed = True
    for packet in container.demux(stream):
        if not packet.size:  # the end
            continue
        content = bytes(packet)
        is_hidden = codec == "vp8" and not content[0] & VP8_SHOWN
        if packet.pts is None or packet.is_corrupt or packet.has_sidedata("new_extradata") or is_hidden:
            return None
        known += b"" if packets else content
        units = list(_units(content, codec, header))
        # Parameter sets and the version of x264 hold for later packets.
        if any(unit not in known for kind, unit in units if kind in PARAMETERS[codec] or X264 in unit):
            return None
        if packet.is_discard:
            hidden.add(packet.pts)
        if packet.is_keyframe:
            keyframes.append(len(packets))
            is_closed = is_closed and IDR in dict(units)
        packets.append(packet)
        timestamps.append(packet.pts)
    shown = sorted(set(timestamps))
    is_regular = (
        len(shown) == len(packets)
        and stream.frames in (0, len(packets))
        and keyframes[:1] == [0]
        # Where a program did not know the time stamps, it wrote those of decoding.
        and (shown != timestamps) == stream.codec_context.has_b_frames
    )
    return PacketIndex(packets, sorted({*shown} - hidden), keyframes, is_closed) if is_regular else None


def _units(packet: bytes, codec: str, header: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield types and contents of the units of a packet of H.264 or HEVC, up to the first slice."""
    if codec not in UNITS:
        return
    position, shift, mask, slices = UNITS[codec]
    length, end = (header[position] & 3) + 1, 0
    while end + length < len(packet):
        start, end = end + length, end + length + int.from_bytes(packet[end : end + length])
        kind = packet[start] >> shift & mask
        yield kind, packet[start:end]
        if kind in slices:
            return


def decode_numbers(stream: "VideoStream", index: PacketIndex, numbers: Sequence[int]) -> list[np.ndarray] | None:
    """Decode frames by number.

    Args:
        stream: the video; its decoder has not been used.
        numbers: of the frames, from 0, in the order in which they are shown; they may repeat.

    Returns:
        uint8 RGB (H, W, 3) for each number, upright; None if one of them does not come out of the decoder.

    Raises:
        Errors of PyAV.
    """
    # The first packet may tell the decoder about all others, and the first frame has the size of the clip: decode both.
    wanted = sorted({index.timestamps[number] for number in (0, *numbers)})
    starts = [0, *_starts(index, wanted[1:])]
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
        for frame in decode_packets(stream, index.packets[start:], group):
            if frame.pts in group and not frame.is_corrupt:
                frames[frame.pts] = convert(frame)
        stream.codec_context.flush_buffers()  # it has been told that the video ends
    if len(frames) < len(wanted):
        return None
    return [frames[index.timestamps[number]] for number in numbers]


def orientation(frame: "VideoFrame") -> tuple[bool, int, int]:
    """Return how a stored frame becomes upright: whether rows become columns; then the steps along rows and columns."""
    from av.sidedata.sidedata import SideDataContainer, Type

    matrix: Any
    # With `frame.side_data`, frame and container would hold each other in memory until a garbage collection.
    read: Any = SideDataContainer
    try:
        matrix = read(frame).get("DISPLAYMATRIX")
    except ValueError:  # it also has data that PyAV has no name for, such as EXIF; now it has one
        Type._missing_ = classmethod(lambda cls, _: cls.PANSCAN)  # type: ignore[assignment]
        matrix = read(frame).get("DISPLAYMATRIX")
    if matrix is None:
        return UPRIGHT
    # A stored point (x, y) is shown at (a x + c y, b x + d y).
    a, b, _, c, d = struct.unpack_from("=5i", matrix)
    turned = abs(b) > abs(a)
    right, down = (c, b) if turned else (a, d)
    return turned, -1 if down < 0 else 1, -1 if right < 0 else 1


def rgb_converter() -> Callable[["VideoFrame"], np.ndarray]:
    """Return a function that converts frames of a video to uint8 RGB (H, W, 3), upright, all in the size of the first.

    It is for one thread. Its converter serves all frames; `VideoFrame.to_ndarray` would set one up for each.
    """
    from av.video.reformatter import VideoReformatter

    converter, size = VideoReformatter(), None

    def convert(frame: "VideoFrame") -> np.ndarray:
        nonlocal size
        turned, down, right = orientation(frame)
        size = size or ((frame.height, frame.width) if turned else (frame.width, frame.height))
        width, height = (size[1], size[0]) if turned else size
        pixels = converter.reformat(frame, width, height, "rgb24").to_ndarray()
        return (pixels.swapaxes(0, 1) if turned else pixels)[::down, ::right]

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


def decode_packets(stream: "VideoStream", packets: Sequence["Packet"], wanted: set[int]) -> Iterable["VideoFrame"]:
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
