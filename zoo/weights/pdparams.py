"""Paddle's files; Paddle is not needed and no code is run.

A .pdparams is a pickle of numpy arrays by name. A variable of Paddle 1, or of a later static graph, has a binary file
of its own: u32 version 0; u64 number of LoD levels, 0 of a weight; u32 version 0; i32 size of
a protocol buffer message {type = 1; repeated dimension = 2}; the elements in row-major order. All little-endian.
"""

import gzip
import io
import math
import pickle
import struct
import tarfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from zoo.data.errors import UserError, parsing
from zoo.data.formats import safe_pickle
from zoo.weights import reading
from zoo.weights.reading import MAX_DIMS, parse_message, widen

EXTENSION = ".pdparams"
PROTOCOL = 4  # of pickles, as paddle.save has it
MAX_ARCHIVE_SIZE = 1 << 30  # bytes of an archive when decompressed; the published ones have less than a fifth of it
WRAPPER_KEYS = ("state_dict", "model")  # entries of a training checkpoint that hold the tensors
DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
BFLOAT16 = np.dtype("u2")  # numpy has no bfloat16, so Paddle saves its bits; its models have no other uint16
REMEDY = "load it in Paddle and save only the model's state_dict with paddle.save"
VARIABLE_DTYPES = {0: "b1", 1: "i2", 2: "i4", 3: "i8", 4: "f2", 5: "f4", 6: "f8", 20: "u1", 21: "i1"}  # by code


def read(path: str) -> dict[str, np.ndarray]:
    """Return the tensors of a file by name; see `parse`."""
    reading.refuse(path)
    with parsing(f"{path} cannot be read"), open(path, "rb") as file:
        return parse(file, path)


def read_archive(path: str, remedy: str) -> dict[str, np.ndarray]:
    """Return the tensors of the single .pdparams in a .tar.gz."""
    with parsing(f"{path} is not a complete .tar.gz", remedy):
        with gzip.open(path) as compressed:
            content = compressed.read(MAX_ARCHIVE_SIZE + 1)  # to the end, which checks the checksum
        if len(content) > MAX_ARCHIVE_SIZE:
            raise UserError(f"{path} has more than {MAX_ARCHIVE_SIZE} bytes when decompressed; {remedy}")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            members = [member for member in archive if member.isfile() and member.name.endswith(EXTENSION)]
            if len(members) != 1:
                raise UserError(f"{path} holds {len(members)} files *{EXTENSION}, not one; {remedy}")
            file = archive.extractfile(members[0])
            assert file is not None, "it is a file"
            return parse(io.BytesIO(file.read()), f"{members[0].name} in {path}")


def parse(file: BinaryIO, path: str) -> dict[str, np.ndarray]:
    """Return the tensors of an opened file by name; 16-bit floats are widened to float32. path: for messages."""
    problem = (
        f"{path} is refused: it is damaged, or holds more than numpy arrays, which would mean running code from it"
    )
    with parsing(problem, f"download it again; if you trust it, {REMEDY}"):
        content = safe_pickle.load(file, dtypes=DTYPES)
    state_dict = _unwrap(content)
    if not isinstance(state_dict, dict) or not state_dict:
        raise UserError(f"{path} holds a {type(state_dict).__name__}, not named tensors; {REMEDY}")
    tensors = {name: value for name, value in state_dict.items() if not str(name).endswith("@@")}  # Paddle's own notes
    arrays = {name: _array_of(path, name, value) for name, value in tensors.items()}
    distinct = {id(array): array for array in arrays.values()}  # names may share an array, which is widened once
    widened = {key: widen(array, array.dtype == BFLOAT16) for key, array in distinct.items()}
    return {name: widened[id(array)] for name, array in arrays.items()}


def write(file: BinaryIO, tensors: Mapping[str, np.ndarray]) -> None:
    """Write arrays as paddle.save writes a state dict."""
    content = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
    pickle.dump(content, file, PROTOCOL)


def _unwrap(content: Any) -> Any:
    """Return the state dict of a training checkpoint; anything else as it is."""
    if isinstance(content, dict):
        for key in WRAPPER_KEYS:
            if isinstance(content.get(key), dict):
                return content[key]
    return content


def _array_of(path: str, name: Any, value: Any) -> np.ndarray:
    """Return the array of an entry, which nested dicts hold as a pair (Paddle's own name, array)."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    if not isinstance(name, str) or not isinstance(value, safe_pickle.Array) or value.array is None:
        raise UserError(f"{path}: the entry {name!r} is not an array; {REMEDY}")
    return value.array


def read_variable(path: str) -> np.ndarray:
    """Return the tensor of a file; float16 is widened to float32."""
    with parsing(f"{path} is not a complete variable of Paddle", "copy or save it again"), open(path, "rb") as file:
        array = _parse_variable(memoryview(file.read()))
    return widen(array)


def _parse_variable(content: memoryview) -> np.ndarray:
    version, levels, inner_version, size = struct.unpack_from("<IQIi", content)
    if version or levels or inner_version:
        raise ValueError(f"version {version or inner_version}, {levels} levels of detail")
    position = 20
    if size < 0 or position + size > len(content):
        raise ValueError("it is truncated")
    dtype_code: int | memoryview | None = None
    shape: list[int] = []
    for number, value in parse_message(content[position : position + size]):
        if number == 1:
            dtype_code = value
        elif number == 2 and isinstance(value, int):
            shape.append(value)
    if not isinstance(dtype_code, int) or dtype_code not in VARIABLE_DTYPES:
        raise ValueError(f"tensors of type {dtype_code} are not supported")
    if len(shape) > MAX_DIMS:
        raise ValueError(f"a tensor of {len(shape)} dimensions")
    flat = np.frombuffer(content[position + size :], VARIABLE_DTYPES[dtype_code])
    if flat.size != math.prod(shape):
        raise ValueError(f"{flat.size} elements for a tensor of shape {tuple(shape)}")
    return flat.reshape(shape)
