"""Viewer of a run that writes files for TensorBoard, without that package of 77 MB: who looks at them has it.

A file holds records with checksums (TFRecord), each a message Event of tensorboard/compat/proto/event.proto.
"""

import io
import os
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.data import durable
from zoo.data.errors import printable
from zoo.logs.journal import Event
from zoo.logs.viewers import GROUPS, Histogram, numbers

VERSION = "brain.Event:2"  # of the format, in the first record of a file
STRING = 7  # DT_STRING
PNG_EFFORT = 1  # of zlib, 0 to 9: images are written during a run
POLYNOMIAL = 0x82F63B78  # of CRC-32C, reversed
MASK = 0xA282EAD8  # that TFRecord adds to checksums

Message = Sequence[tuple[int, Any]]  # number of a field, and its value


class TensorBoard:
    """Viewer that writes numbers, images, histograms and the recipe to a file in the run's folder."""

    def __init__(self, run: str, recipe: str, hparams: Mapping[str, Any]):
        """Open a new file of events in a run's folder. hparams: by which the tab HPARAMS compares runs."""
        self._recipe, self._hparams = recipe, hparams
        self._time = time.time()  # of the last event
        name = f"events.out.tfevents.{int(self._time)}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = open(os.path.join(run, name), "wb", opener=durable.fresh)  # noqa: SIM115
        self._write([(1, self._time), (3, VERSION)])

    def __call__(self, event: Event) -> None:
        self._time = float(event["time"])
        if event["event"] in GROUPS:
            for name, value in numbers(event):
                self._add(event["step"], name, (2, np.float32(value)))
        elif event["event"] in ("begin", "resume"):
            indented = "".join(f"    {line}\n" for line in self._recipe.splitlines())  # Markdown's verbatim text
            step = event.get("step", 0)
            self._add(step, "recipe", (8, [(1, STRING), (8, indented)]), _plugin("text"))
            self._add(step, "_hparams_/session_start_info", _plugin("hparams", _hparams(self._hparams, self._time)))
        if event["event"] == "eval":
            self._file.flush()

    def show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        for name, pixels in images.items():
            height, width, channels = pixels.shape
            self._add(step, name, (4, [(1, height), (2, width), (3, channels), (4, _png(pixels))]))
        for name, (counts, edges) in histograms.items():
            buckets = (6, edges[1:].astype("<f8").tobytes()), (7, counts.astype("<f8").tobytes())
            self._add(step, name, (5, [(1, float(edges[0])), (2, float(edges[-1])), *buckets]))
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _add(self, step: int, name: str, *content: tuple[int, Any]) -> None:
        """Write a Summary with one Value. content: its fields beside the tag."""
        self._write([(1, self._time), (2, step), (5, [(1, [(1, printable(name)), *content])])])

    def _write(self, message: Message) -> None:
        content = encode(message)
        length = struct.pack("<Q", len(content))
        self._file.write(length + _checksum(length) + content + _checksum(content))


def _plugin(name: str, content: Message = ()) -> tuple[int, Message]:
    """Return the metadata of a Value that a plugin reads."""
    return 9, [(1, [(1, name), (2, encode(content))])]


def _hparams(values: Mapping[str, Any], start: float) -> Message:
    """Return HParamsPluginData with a SessionStartInfo. start: of the run, as a time stamp in seconds."""
    entries = [(1, [(1, key), (2, [_dynamic(value)])]) for key, value in values.items()]
    return [(3, [*entries, (5, start)])]


def _dynamic(value: Any) -> tuple[int, Any]:
    """Return the field of google.protobuf.Value for a value."""
    if isinstance(value, bool):
        return 4, value
    return (2, float(value)) if isinstance(value, int | float) else (3, str(value))


def encode(message: Message) -> bytes:
    """Encode a message in protobuf's wire format: by type varint, double, float32, or bytes, text and messages."""
    return b"".join(_encode_field(number, value) for number, value in message)


def _encode_field(number: int, value: Any) -> bytes:
    if isinstance(value, np.float32):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else encode(value)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encode a number from 0: seven bits per byte, the lowest first; the highest bit says that more follow."""
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ POLYNOMIAL * (crc & 1) for crc in table]
    return table


CRC_TABLE = _crc_table()


def _checksum(content: bytes) -> bytes:
    """Return the masked CRC-32C of a record: 4 bytes."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (crc >> 15 | crc << 17) + MASK & 0xFFFFFFFF)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image  # images are drawn only where it is installed

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=PNG_EFFORT)
    return buffer.getvalue()
