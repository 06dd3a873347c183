"""MindSpore's .ckpt, read without MindSpore: protocol-buffer messages of tensors by name.

    Checkpoint   repeated Value value = 1
    Value        string tag = 1; TensorProto tensor = 2; MapTensorProto maptensor = 3
    TensorProto  repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3

A tensor of more than 512 MiB is cut into several Values of one tag. With crc_check the file ends in "crc_num" and ten
bytes. The wire format is read here and not by the protobuf library, which would hold every tensor twice.
"""

import math
import zlib
from collections.abc import Iterator

import numpy as np

from data.errors import UserError

TYPES = {
    "Float64": np.float64,
    "Float32": np.float32,
    "Float16": np.float16,
    "Int64": np.int64,
    "Int32": np.int32,
    "Int16": np.int16,
    "Int8": np.int8,
    "UInt64": np.uint64,
    "UInt32": np.uint32,
    "UInt16": np.uint16,
    "UInt8": np.uint8,
    "Bool": np.bool_,
}
FOREIGN = (b"PK", b"\x80")  # how a file of torch.save begins; Lightning calls those .ckpt too
CRC = b"crc_num"
CRC_SIZE = len(CRC) + 10
REMEDY = "copy or save it again"


def read(path: str) -> dict[str, np.ndarray]:
    """The tensors of a file by name, texts left out; 16-bit floats come back as float32. Raises UserError."""
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(FOREIGN):
        raise UserError(f"{path} is no checkpoint of MindSpore but of PyTorch; give it a name that ends in .pth")
    try:
        parts = _parts(memoryview(_checked(content)))
        tensors = {name: _tensor(*part) for name, part in parts.items() if part[1] != "str"}
    except (ValueError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no whole checkpoint of MindSpore ({error}); {REMEDY}") from None
    if not tensors:
        raise UserError(f"{path} holds no tensors; {REMEDY}")
    return tensors


def _checked(content: bytes) -> bytes:
    """The messages of a file. Raises ValueError if it ends in a checksum that is not theirs."""
    tail = content[-CRC_SIZE:]
    if not tail.startswith(CRC):
        return content
    if zlib.crc32(content[:-CRC_SIZE]) != int.from_bytes(tail[len(CRC) :], "big"):
        raise ValueError("its checksum does not fit")
    return content[:-CRC_SIZE]


def _parts(content: memoryview) -> dict[str, tuple[list[int], str, list[memoryview]]]:
    """Name -> dimensions, type, and the pieces of the content in order. Raises ValueError."""
    found: dict[str, tuple[list[int], str, list[memoryview]]] = {}
    for number, value in fields(content):
        if number != 1 or isinstance(value, int):
            raise ValueError(f"a field {number} where a value must be")
        entry = dict(fields(value))
        name = str(_bytes(entry, 1, "a value without name"), "utf-8")
        dims, kind, piece = _tensor_proto(_bytes(entry, 2, f"{name} is no tensor"), name)
        known = found.setdefault(name, (dims, kind, []))
        if known[:2] != (dims, kind):
            raise ValueError(f"{name} comes in pieces that differ in shape or type")
        known[2].append(piece)
    return found


def _tensor_proto(message: memoryview, name: str) -> tuple[list[int], str, memoryview]:
    dims: list[int] = []
    found: dict[int, int | memoryview] = {}
    for number, value in fields(message):
        if number == 1:
            dims += [value] if isinstance(value, int) else _packed(value)
        else:
            found[number] = value
    kind = str(_bytes(found, 2, f"{name} has no type"), "utf-8")
    return dims, kind, _bytes(found, 3, f"{name} has no content")


def _tensor(dims: list[int], kind: str, pieces: list[memoryview]) -> np.ndarray:
    if kind != "BFloat16" and kind not in TYPES:
        raise ValueError(f"tensors of type {kind} are not read")
    flat = np.frombuffer(b"".join(pieces) if len(pieces) > 1 else pieces[0], TYPES.get(kind, np.uint16))
    shape = () if dims == [0] and flat.size == 1 else tuple(dims)  # early versions write a scalar so
    if flat.size != math.prod(shape):
        raise ValueError(f"{flat.size} numbers for a tensor of shape {shape}")
    if kind == "BFloat16":  # numpy has no bfloat16: it is the upper half of a float32
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return (flat.astype(np.float32) if kind == "Float16" else flat).reshape(shape)


def _bytes(fields: dict[int, int | memoryview], number: int, otherwise: str) -> memoryview:
    value = fields.get(number)
    if not isinstance(value, memoryview):
        raise ValueError(otherwise)
    return value


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of a message's fields: an integer, or bytes. Raises ValueError where it is cut or foreign."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif key & 7 == 2:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("it is cut")
            yield key >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError(f"a field of wire type {key & 7}")


def _packed(message: memoryview) -> list[int]:
    values, at = [], 0
    while at < len(message):
        value, at = _varint(message, at)
        values.append(value)
    return values


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits per byte, lowest first, and where it ends. Raises ValueError."""
    value = 0
    for k, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, at + k + 1
    raise ValueError("it is cut")
