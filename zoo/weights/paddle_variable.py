"""Reader for a variable of Paddle 1, or of a later static graph, in a binary file of its own; Paddle is not needed.

u32 version 0; u64 number of LoD levels, and for each u64 size and as many bytes; u32 version 0; i32 size of a protocol
buffer message {type = 1; repeated dimension = 2}; the elements in row-major order. All little-endian.
"""

import math
import struct

import numpy as np

from zoo.data.parsing import parsing
from zoo.weights import ckpt
from zoo.weights.protobuf import parse_message

MAX_LEVELS = 8  # of detail; a weight has none
DTYPES = {
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
    """Return the tensor of a file; float16 is widened to float32.

    Raises:
        UserError: The file cannot be read, or is not exactly one variable.
    """
    with parsing(f"{path} is not a complete variable of Paddle", "copy or save it again"), open(path, "rb") as file:
        array = _parse(memoryview(file.read()))
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _parse(content: memoryview) -> np.ndarray:
    version, levels = struct.unpack_from("<IQ", content)
    if version:
        raise ValueError(f"version {version}")
    position = 12
    if levels > MAX_LEVELS:
        raise ValueError(f"{levels} levels of detail")
    for _ in range(levels):
        position += 8 + struct.unpack_from("<Q", content, position)[0]
    version, size = struct.unpack_from("<Ii", content, position)
    if version:
        raise ValueError(f"version {version}")
    position += 8
    if size < 0 or position + size > len(content):
        raise ValueError("it is truncated")
    dtype_code: int | memoryview | None = None
    shape: list[int] = []
    for number, value in parse_message(content[position : position + size]):
        if number == 1:
            dtype_code = value
        elif number == 2 and isinstance(value, int):
            shape.append(value)
    if not isinstance(dtype_code, int) or dtype_code not in DTYPES:
        raise ValueError(f"tensors of type {dtype_code} are not supported")
    if len(shape) > ckpt.MAX_DIMS:
        raise ValueError(f"a tensor of {len(shape)} dimensions")
    flat = np.frombuffer(content[position + size :], DTYPES[dtype_code])
    if flat.size != math.prod(shape):
        raise ValueError(f"{flat.size} elements for a tensor of shape {tuple(shape)}")
    return flat.reshape(shape)
