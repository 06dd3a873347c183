"""Files of named tensors: safetensors, and the formats of the frameworks. No code is run from a file."""

import contextlib
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from safetensors import deserialize, safe_open

from zoo.data import durable
from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular
from zoo.weights import reading

RECORD, DIGEST_KEY = "checkpoint.json", "sha256"  # DIGEST_KEY -> digests by the name of the file
DIGEST_SUFFIX, MAX_RECORD = ".sha256", 1 << 12  # of the file beside one that has no record; its bytes
TORCH = (".pth", ".pt", ".pth.tar", ".bin")
PADDLE = ".pdparams"
MINDSPORE = ".ckpt"
ONNX = ".onnx"
EXTENSIONS = (".safetensors", *TORCH, PADDLE, MINDSPORE)
RowRange = tuple[int, int, int]  # number of rows of the whole tensor, first row, row after the last
DTYPES = {
    **{f"{kind.upper()}{8 * size}": np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"f{size}") for size in (2, 4, 8)},
    "BOOL": np.dtype(np.bool_),
}
MAX_HEADER = 100_000_000  # bytes, as the library has it
DAMAGED, REMEDY = "is not a complete safetensors file", "remove it and download or convert it again"
DTYPE_NAMES = {dtype.str[1:]: name for name, dtype in DTYPES.items()}


class DamagedFile(UserError):
    """A file of a checkpoint is not what was written."""


def is_onnx(path: str | None) -> TypeGuard[str]:
    """Return whether a path is that of an exported model, by its name."""
    return path is not None and path.lower().endswith(ONNX)


def sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_digest(path: str, digest: str) -> None:
    """Compare the digest of a file with the one that was recorded beside it, if there is one. Raises DamagedFile."""
    expected = recorded_digest(path)
    if expected not in (None, digest):
        raise DamagedFile(
            f"{path} is damaged: its SHA-256 is {digest[:12]}..., but {str(expected)[:12]}... was recorded beside it; "
            "use another checkpoint, or copy or download this one again"
        )


def recorded_digest(path: str) -> str | None:
    """Return the digest of a file as record_digest or a checkpoint records it; None without a record."""
    record = os.path.join(os.path.dirname(path), RECORD)
    try:
        with parsing(path):
            if os.path.exists(path + DIGEST_SUFFIX):
                return regular.read(path + DIGEST_SUFFIX, MAX_RECORD).decode().split()[0]
            return str(regular.load_json(record)[DIGEST_KEY][os.path.basename(path)])
    except UserError:
        return None  # no checkpoint, or one that is too old to have digests


def record_digest(path: str, digest: str) -> None:
    """Write the digest of a file beside it, as sha256sum does, unless one is recorded."""
    if not os.path.exists(path + DIGEST_SUFFIX):
        with atomic_write(path + DIGEST_SUFFIX) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write(f"{digest}  {os.path.basename(path)}\n")


class TensorShape(NamedTuple):
    shape: tuple[int, ...]


class StreamedTensor(NamedTuple):
    """A tensor that is never whole in memory: its rows come in blocks, which can be iterated once."""

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Iterable[np.ndarray]


def read(path: str, rows: Mapping[str, RowRange] | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the tensors of a file by name and its metadata; 16-bit floats are widened to float32.

    A file with an entry `state_dict` is read as that entry.

    Args:
        rows: Tensors of which only a range of rows is returned, if they have the given number of rows; from a
            safetensors file only that range is read.

    Returns:
        The tensors, and the metadata of a safetensors file; of PyTorch's files what pth.read returns.
    """
    if not os.path.isfile(path):
        raise UserError(f"{path}: no such file")
    rows = rows or {}
    if str(path).endswith(".safetensors"):
        return _read_rows(path, rows) if rows else _read_safetensors(path)
    metadata: dict[str, str] = {}
    if is_onnx(path):
        raise UserError(
            f"{path} is an exported model, whose weights are part of its graph; give the checkpoint that it was "
            "exported from"
        )
    if str(path).endswith(TORCH) or reading.is_zip(str(path)):  # those of Lightning end in .ckpt
        from zoo.weights import pth  # as the readers below, which a run does without

        tensors, metadata = pth.read(path)
    elif str(path).endswith(PADDLE):
        from zoo.weights import pdparams

        tensors = pdparams.read(path)
    elif str(path).endswith(MINDSPORE):
        from zoo.weights import ckpt

        tensors = ckpt.read(path)
    else:
        raise UserError(f"{path}: the name must end in one of {', '.join(EXTENSIONS)}")
    for name, (count, first, last) in rows.items():
        if name in tensors and tensors[name].shape[:1] == (count,):
            tensors[name] = tensors[name][first:last]
    return tensors, metadata


def read_metadata(path: str) -> dict[str, str]:
    """Return the metadata of a safetensors file without reading its tensors."""
    return _read_header(path).get("__metadata__", {})


def read_shapes(path: str) -> dict[str, TensorShape]:
    header = _read_header(path)
    return {name: TensorShape(tuple(entry["shape"])) for name, entry in header.items() if name != "__metadata__"}


def write(path: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    with atomic_write(path) as temporary:
        write_streamed(temporary, tensors, metadata or {})


def write_streamed(path: str, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> tuple[int, str]:
    """Write a safetensors file tensor by tensor, wait until it is on the disk, return its size in bytes and SHA-256.

    The bytes are those of the library's own writer, which needs every tensor whole in memory. Here the blocks of a
    StreamedTensor are written as they come, and tensors in the order of storage_order.
    """
    with open(path, "wb", opener=durable.fresh) as file:
        digest = hashlib.sha256()
        for part in _parts(tensors, metadata):
            file.write(part)
            digest.update(part)
        file.flush()
        os.fsync(file.fileno())
        return file.tell(), digest.hexdigest()


def content(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a safetensors file, the same each time; the library writes metadata in random order."""
    return b"".join(_parts(tensors, metadata))


def _parts(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name in storage_order(tensors):
        size = math.prod(tensors[name].shape) * tensors[name].dtype.itemsize
        header[name] = {
            "dtype": DTYPE_NAMES[tensors[name].dtype.str[1:]],
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in storage_order(tensors):
        tensor = tensors[name]
        for block in tensor.blocks if isinstance(tensor, StreamedTensor) else [tensor]:
            yield np.asarray(block, order="C").data


def storage_order(tensors: Mapping[str, Any]) -> list[str]:
    """Return the names of tensors in the order of a safetensors file: wide types first, for alignment."""
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[str]:
    """Give a temporary path that is renamed to `path` when the block succeeds and removed when it fails.

    Its folder is made if it is missing.
    """
    refuse_existing(path)
    temporary = f"{path}.{secrets.token_hex(8)}.part"  # ranks may write the same file, and nobody has put a link there
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        refuse_existing(path)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}; make room, or give another folder"
        ) from None
    finally:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.remove(temporary)


def refuse_existing(path: str) -> None:
    """Raise UserError if a path exists, even as a broken link."""
    if os.path.lexists(path):
        raise UserError(f"{path} exists already and is not overwritten; remove it or give another name")


def _read_header(path: str) -> dict[str, Any]:
    reading.refuse(path)
    with parsing(f"{path} {DAMAGED}", REMEDY):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > min(os.path.getsize(path), MAX_HEADER):
                raise ValueError(f"a header of {size} bytes")
            header = dict(regular.parse_json(file.read(size).decode()))
        metadata = header.get("__metadata__", {})
        if not all(isinstance(value, str) for value in dict(metadata).values()):
            raise ValueError("metadata that are no texts")
        for name, entry in header.items():
            if name != "__metadata__":
                _check_shape(name, entry["shape"])
        return header


def _check_shape(name: str, shape: Any) -> None:
    """Raise ValueError unless this is the shape of a tensor."""
    if not isinstance(shape, list) or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"{name} has no shape")
    if len(shape) > reading.MAX_DIMS or math.prod(max(length, 1) for length in shape) >= 1 << 63:
        raise ValueError(f"{name} has {len(shape)} dimensions and more elements than any array")


def _read_rows(path: str, rows: Mapping[str, RowRange]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    metadata = read_metadata(path)
    with parsing(f"{path} {DAMAGED} of numpy's types", REMEDY), safe_open(path, framework="np") as file:
        tensors = {}
        for name in file.keys():  # noqa: SIM118 -- it is not a dict
            stored = file.get_slice(name)
            count, first, last = rows.get(name, (None, None, None))
            tensors[name] = stored[first:last] if [count] == stored.get_shape()[:1] else file.get_tensor(name)
        return {name: reading.widen(array) for name, array in tensors.items()}, metadata


def _read_safetensors(path: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    metadata = read_metadata(path)
    with parsing(f"{path} {DAMAGED}", REMEDY):
        with open(path, "rb") as file:
            content = file.read()
        check_digest(path, hashlib.sha256(content).hexdigest())
        return {name: _to_array(path, name, entry) for name, entry in deserialize(content)}, metadata


def _to_array(path: str, name: str, entry: Mapping[str, Any]) -> np.ndarray:
    dtype, is_bfloat16 = entry["dtype"], entry["dtype"] == "BF16"
    if dtype not in DTYPES and not is_bfloat16:
        raise UserError(f"{path}: {name} has the type {dtype}, which is not supported; save it as float32")
    flat = np.frombuffer(entry["data"], np.uint16 if is_bfloat16 else DTYPES[dtype])
    return reading.widen(flat, is_bfloat16).reshape(entry["shape"])
