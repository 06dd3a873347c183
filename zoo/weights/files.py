"""Files of named tensors: safetensors, and what the frameworks save. Nothing in a file is ever executed."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save

from data.errors import UserError
from zoo.weights import ckpt, pickled

TORCH = (".pth", ".pt", ".pth.tar", ".bin")
PADDLE, MINDSPORE = ".pdparams", ".ckpt"
EXTENSIONS = (".safetensors", *TORCH, PADDLE, MINDSPORE)
# What the training files of mmengine hold beside tensors: a log of the losses, in numpy arrays.
BESIDE = (
    "mmengine.logging.history_buffer.HistoryBuffer",
    "builtins.getattr",
    "numpy.ndarray",
    "numpy.dtype",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
)
Rows = tuple[int, int, int]  # of a tensor that has so many rows: [first, last)
DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
NAMES = {np.dtype(kind).str[1:]: name for name, kind in DTYPES.items()}


class Shaped(NamedTuple):
    """What is known of a tensor that has not been read."""

    shape: tuple[int, ...]


class Blocks(NamedTuple):
    """A tensor that is never whole in memory: its rows come block by block, once."""

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Iterable[np.ndarray]


def read(path: str, rows: Mapping[str, Rows] | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors of a file by name and its metadata; 16-bit floats come as float32.

    rows: of these tensors, if they have as many rows as is said, only those rows are taken (and of a safetensors file
    only those are read).

    Metadata are those of safetensors; of mmsegmentation's files `classes` and `palette`, in JSON; else there are none.
    Of a dict with an entry `state_dict` that entry is taken. Raises UserError if the file is missing, cut, of another
    kind, or a pickle that is more than named tensors.
    """
    if not os.path.isfile(path):
        raise UserError(f"{path}: no such file")
    rows = rows or {}
    if str(path).endswith(".safetensors"):
        return _read_rows(path, rows) if rows else _read_safetensors(path)
    if str(path).endswith(TORCH):
        tensors, metadata = read_torch(path)
    elif str(path).endswith((PADDLE, MINDSPORE)):
        tensors, metadata = (pickled if str(path).endswith(PADDLE) else ckpt).read(path), {}
    else:
        raise UserError(f"{path}: the name must end in one of {', '.join(EXTENSIONS)}")
    for name, (count, first, last) in rows.items():
        if name in tensors and tensors[name].shape[:1] == (count,):
            tensors[name] = tensors[name][first:last]
    return tensors, metadata


def write(path: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file whole or not at all. Raises UserError if it exists already."""
    # asarray and not ascontiguousarray, which would give a scalar one dimension
    chosen = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    with aside(path) as temporary, open(temporary, "wb") as file:
        file.write(save(chosen, dict(metadata or {})))


@contextlib.contextmanager
def aside(path: str) -> Iterator[str]:
    """A temporary name beside `path`: renamed to it when the block ends well, removed when it does not.

    Raises UserError if `path` exists already or the folder cannot be written.
    """
    refuse_existing(path)
    temporary = f"{path}.{os.getpid()}.part"  # the process id: ranks may write the same file
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        refuse_existing(path)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.remove(temporary)


def refuse_existing(path: str) -> None:
    if os.path.lexists(path):
        raise UserError(f"{path} exists already and is not overwritten; remove it or give another name")


def sha256(path: str) -> str:
    """The SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def stream(path: str, tensors: Mapping[str, np.ndarray | Blocks], metadata: Mapping[str, str]) -> int:
    """Write a safetensors file and wait until it is on the disk. Its size in bytes.

    The library's own writer, whose bytes these are, wants every tensor whole in memory; here Blocks are written as they
    come, in the order of `in_file`.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    place = 0
    for name in in_file(tensors):
        size = math.prod(tensors[name].shape) * tensors[name].dtype.itemsize
        header[name] = {
            "dtype": NAMES[tensors[name].dtype.str[1:]],
            "shape": list(tensors[name].shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in in_file(tensors):
            tensor = tensors[name]
            for block in tensor.blocks if isinstance(tensor, Blocks) else [tensor]:
                file.write(np.asarray(block, order="C").data)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def in_file(tensors: Mapping[str, Any]) -> list[str]:
    """The names of tensors in the order in which a file holds them: wide types first, for alignment."""
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


def metadata(path: str) -> dict[str, str]:
    """The metadata of a safetensors file, without reading its tensors. Raises UserError if there is no sane header."""
    return _header(path).get("__metadata__", {})


def shapes(path: str) -> dict[str, Shaped]:
    """The shapes of a safetensors file's tensors, without reading them. Raises UserError as metadata does."""
    return {name: Shaped(tuple(entry["shape"])) for name, entry in _header(path).items() if name != "__metadata__"}


def _header(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > os.path.getsize(path):
                raise ValueError
            return dict(json.loads(file.read(size)))
    except (OSError, ValueError, TypeError):
        raise UserError(f"{path} is no whole safetensors file; remove it and fetch or convert it again") from None


def _read_rows(path: str, rows: Mapping[str, Rows]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        with safe_open(path, framework="np") as file:
            tensors = {}
            for name in file.keys():
                part = file.get_slice(name)
                count, first, last = rows.get(name, (None, None, None))
                tensors[name] = part[first:last] if [count] == part.get_shape()[:1] else file.get_tensor(name)
    except (SafetensorError, OSError, TypeError) as error:
        raise UserError(
            f"{path} is no whole safetensors file of numpy's types ({error}); fetch or convert it again"
        ) from None
    return {
        name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in tensors.items()
    }, metadata(path)


def _read_safetensors(path: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    try:
        with open(path, "rb") as file:
            entries = deserialize(file.read())
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is no whole safetensors file ({error}); fetch or convert it again") from None
    return {name: _array(path, name, entry) for name, entry in entries}, metadata(path)


def _array(path: str, name: str, entry: Mapping) -> np.ndarray:
    if entry["dtype"] == "BF16":  # numpy has no bfloat16: it is the upper half of a float32
        array = (np.frombuffer(entry["data"], np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif entry["dtype"] in DTYPES:
        array = np.frombuffer(entry["data"], DTYPES[entry["dtype"]])
        array = array.astype(np.float32) if array.dtype == np.float16 else array
    else:
        raise UserError(f"{path}: {name} has the type {entry['dtype']}, which is not read; save it as float32")
    return array.reshape(entry["shape"])


class _Ignored:
    """Stands for whatever BESIDE names in a file: it is made in its place, and nothing is called."""

    def __init__(self, *arguments):
        pass

    def __setstate__(self, state):
        pass


def read_torch(path: str, entry: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """As read, of a file of torch.save whatever its name; of a dict with more in it, only the entry that is named."""
    try:
        import torch
    except ModuleNotFoundError:
        raise UserError(
            f"{path}: reading a {TORCH[0]} file needs PyTorch; install it, or convert the file to "
            "safetensors where PyTorch is installed"
        ) from None
    try:
        with torch.serialization.safe_globals([(_Ignored, name) for name in BESIDE]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a broken or foreign file raises differs by its format and by torch's version
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{path} is not read: it is broken, or holds more than tensors, which would mean running code from it "
            f"({type(error).__name__}: {reason}). If you trust it, load it elsewhere and save its state_dict alone"
        ) from None
    metadata = {}
    if entry is not None:
        content = content.get(entry) if isinstance(content, dict) else None
    elif isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        metadata = _classes(content.get("meta"))
        content = content["state_dict"]
    if not isinstance(content, dict) or not content:
        what = f"{entry} with tensors" if entry else f"named tensors but a {type(content).__name__}"
        raise UserError(f"{path} holds no {what}; save a state_dict")
    arrays = {}
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise UserError(f"{path}: the entry {name!r} is no tensor but a {type(value).__name__}; save a state_dict")
        if value.layout != torch.strided or value.is_quantized:
            raise UserError(f"{path}: {name} is sparse or quantised; save it as a dense float32 tensor")
        half = value.dtype in (torch.float16, torch.bfloat16)
        arrays[name] = (value.float() if half else value).detach().numpy()
    return arrays, metadata


def _classes(meta: Any) -> dict[str, str]:
    """Class names and colours as mmsegmentation 0.x (CLASSES) and 1.x (dataset_meta) keep them."""
    meta = meta if isinstance(meta, dict) else {}
    meta = {**meta, **meta["dataset_meta"]} if isinstance(meta.get("dataset_meta"), dict) else meta
    found = {key: meta.get(key) or meta.get(key.upper()) for key in ("classes", "palette")}
    with contextlib.suppress(TypeError, ValueError):
        return {key: json.dumps(value) for key, value in found.items() if isinstance(value, (list, tuple))}
    return {}
