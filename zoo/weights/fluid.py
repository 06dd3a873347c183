"""A variable of Paddle 1, or of a later static graph, in a binary file of its own; read without Paddle.

u32 version 0; u64 levels of detail, for each u64 size and as many bytes; u32 version 0; i32 size of a message of
protocol buffers {type = 1; repeated dimension = 2}; the numbers, the last dimension fastest. All little-endian.
"""

import math
import struct

import numpy as np

from data.errors import UserError
from zoo.weights import ckpt

TYPES = {
    0: np.bool_,
    1: np.int16,
    2: np.int32,
    3: np.int64,
    4: np.float16,
    5: np.float32,
    6: np.float64,
    20: np.uint8,
    21: np.int8,
}


def read(path: str) -> np.ndarray:
    """The tensor; 16-bit floats come back as float32. Raises UserError if there is no such file, whole."""
    try:
        with open(path, "rb") as file:
            array = _tensor(memoryview(file.read()))
    except (OSError, ValueError, OverflowError, struct.error) as error:
        raise UserError(f"{path} is no whole variable of Paddle ({error}); copy or save it again") from None
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _tensor(content: memoryview) -> np.ndarray:
    version, levels = struct.unpack_from("<IQ", content)
    if version:
        raise ValueError(f"version {version}")
    at = 12
    for _ in range(levels):
        at += 8 + struct.unpack_from("<Q", content, at)[0]
    version, size = struct.unpack_from("<Ii", content, at)
    if version:
        raise ValueError(f"version {version}")
    at += 8
    if size < 0 or at + size > len(content):
        raise ValueError("it is cut")
    kind, shape = None, []
    for number, value in ckpt.fields(content[at : at + size]):
        if number == 1:
            kind = value
        elif number == 2 and isinstance(value, int):
            shape.append(value)
    if kind not in TYPES:
        raise ValueError(f"tensors of type {kind} are not read")
    flat = np.frombuffer(content[at + size :], TYPES[kind])
    if flat.size != math.prod(shape):
        raise ValueError(f"{flat.size} numbers for a tensor of shape {tuple(shape)}")
    return flat.reshape(shape)
