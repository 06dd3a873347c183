"""Reader for MindSpore's .ckpt, protocol buffer messages of tensors by name; MindSpore is not needed.

    Checkpoint   repeated Value value = 1
    Value        string tag = 1; TensorProto tensor = 2; MapTensorProto maptensor = 3
    TensorProto  repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3

A tensor of more than 512 MiB is split into several Values with the same tag. With crc_check the file ends in "crc_num"
and ten bytes.
"""

import math
import zlib

import numpy as np

from zoo.data.errors import UserError, parsing
from zoo.weights import reading
from zoo.weights.reading import MAX_DIMS, parse_message, parse_packed

DTYPES = {
    **{f"{kind}{bits}": np.dtype(f"{kind.lower()}{bits}") for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "Bool": np.dtype(np.bool_),
    "BFloat16": np.dtype(np.uint16),
}
CRC = b"crc_num"
CRC_SIZE = len(CRC) + 10
MAX_TENSORS = 100_000
REMEDY = "download, copy or save it again"


def read(path: str) -> dict[str, np.ndarray]:
    """Return the tensors of a file by name, without its strings; 16-bit floats are widened to float32."""
    reading.refuse(path)
    with parsing(f"{path} is not a complete checkpoint of MindSpore", REMEDY):
        with open(path, "rb") as file:
            content = file.read()
        entries = _parse_checkpoint(memoryview(_strip_checksum(content)))
        tensors = {name: _to_array(*entry) for name, entry in entries.items() if entry[1] != "str"}
    if not tensors:
        raise UserError(f"{path} holds no tensors; {REMEDY}")
    return tensors


def _strip_checksum(content: bytes) -> bytes:
    """Return the messages of a file. Raises ValueError if it ends in a checksum that does not match them."""
    tail = content[-CRC_SIZE:]
    if not tail.startswith(CRC):
        return content
    if zlib.crc32(content[:-CRC_SIZE]) != int.from_bytes(tail[len(CRC) :], "big"):
        raise ValueError("its checksum does not match")
    return content[:-CRC_SIZE]


def _parse_checkpoint(content: memoryview) -> dict[str, tuple[list[int], str, list[memoryview]]]:
    """Return dimensions, type and the pieces of the content in order, by name. Raises ValueError."""
    entries: dict[str, tuple[list[int], str, list[memoryview]]] = {}
    for number, value in parse_message(content):
        if number != 1 or isinstance(value, int):
            raise ValueError(f"field {number} where a Value is expected")
        message = dict(parse_message(value))
        name = str(_bytes_field(message, 1, "a Value without a name"), "utf-8")
        dims, dtype, piece = _parse_tensor(_bytes_field(message, 2, f"{name} is not a tensor"), name)
        entry = entries.setdefault(name, (dims, dtype, []))
        if len(entries) > MAX_TENSORS:
            raise ValueError(f"more than {MAX_TENSORS} tensors")
        if entry[:2] != (dims, dtype):
            raise ValueError(f"the pieces of {name} differ in shape or type")
        entry[2].append(piece)
    return entries


def _parse_tensor(message: memoryview, name: str) -> tuple[list[int], str, memoryview]:
    dims: list[int] = []
    fields: dict[int, int | memoryview] = {}
    for number, value in parse_message(message):
        if number == 1:
            dims += [value] if isinstance(value, int) else parse_packed(value)
        else:
            fields[number] = value
    dtype = str(_bytes_field(fields, 2, f"{name} has no type"), "utf-8")
    return dims, dtype, _bytes_field(fields, 3, f"{name} has no content")


def _to_array(dims: list[int], dtype: str, pieces: list[memoryview]) -> np.ndarray:
    if len(dims) > MAX_DIMS:
        raise ValueError(f"a tensor of {len(dims)} dimensions")
    if dtype not in DTYPES:
        raise ValueError(f"tensors of type {dtype} are not supported")
    flat = np.frombuffer(b"".join(pieces) if len(pieces) > 1 else pieces[0], DTYPES[dtype])
    shape = () if dims == [0] and flat.size == 1 else tuple(dims)  # early versions write the shape (0,) for a scalar
    if flat.size != math.prod(shape):
        raise ValueError(f"{flat.size} elements for a tensor of shape {shape}")
    return reading.widen(flat, dtype == "BFloat16").reshape(shape)


def _bytes_field(fields: dict[int, int | memoryview], number: int, problem: str) -> memoryview:
    value = fields.get(number)
    if not isinstance(value, memoryview):
        raise ValueError(problem)
    return value
