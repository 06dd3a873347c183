"""Reader for PyTorch's files of torch.save; PyTorch is not needed and no code is run.

    since 1.6   a ZIP archive, whose entry data.pkl is a pickle; a storage is the entry data/<key>
    before      five pickles (magic number, version, machine, content, keys), then each storage: i64 length, elements

A pickled tensor is a call of torch._utils._rebuild_tensor_v2 with a storage, an offset, a size and strides.
"""

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from zoo.data.errors import UserError, parsing
from zoo.data.formats import safe_pickle
from zoo.data.formats.safe_pickle import AllowedCall, OrderedDict
from zoo.weights import reading
from zoo.weights.reading import widen

FREE_BYTES, EXPANSION = 16 << 20, 8  # limit of the tensors: the first, and so many times the size of the file
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
CODECS = ("latin1", "latin-1", "utf-8", "ascii")
STORAGES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "BFloat16Storage": "bf16",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "b1",
}
DTYPES = ("float64", "double", "float32", "float", "float16", "half", "bfloat16", "int64", "long", "int32", "int",
          "int16", "short", "int8", "uint8", "bool")  # fmt: skip
# Names in training files beside tensors, such as arguments of the program; mmengine's hold a log of the losses in numpy
# arrays. They are left out.
IGNORED = (
    ("mmengine.logging.history_buffer", "HistoryBuffer"),
    ("argparse", "Namespace"),
    ("pathlib", "PosixPath"),
    ("pytorch_lightning.utilities.parsing", "AttributeDict"),
    ("lightning.fabric.utilities.data", "AttributeDict"),
    ("builtins", "getattr"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(("torch", name) for name in DTYPES),
    ("torch", "device"),
    ("torch", "strided"),
    ("torch.serialization", "_get_layout"),
)


class Storage(NamedTuple):
    """Elements of one or several tensors: the key of their bytes, their type (or bf16) and number."""

    key: str
    dtype: str
    length: int


class Tensor(NamedTuple):
    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def read(path: str, entry: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the tensors of a file by name and its metadata; 16-bit floats are widened to float32.

    Args:
        entry: Key of the state dict in a file that holds more. Default: `state_dict` or `model`, else the only one.

    Returns:
        The tensors, and metadata in JSON: of mmsegmentation's files `classes` and `palette`, of others perhaps `notes`.
    """
    reading.refuse(path, is_archive=True)
    problem = f"{path} is refused: it is damaged, or holds more than tensors, which would mean running code from it"
    with (
        parsing(problem, "download it again; if you trust it, load it elsewhere and save only its state_dict"),
        open(path, "rb") as file,
    ):
        size = os.path.getsize(path)
        content, storages = (_read_archive if zipfile.is_zipfile(path) else _read_legacy)(file, size)
        state_dict, metadata = _select(content, entry)
        if not isinstance(state_dict, dict) or not state_dict:
            found = f"holds no {entry} with tensors" if entry else f"holds a {type(state_dict).__name__}, not tensors"
            raise UserError(f"{path} {found}; save a state_dict")
        return dict(_arrays(path, state_dict, storages, FREE_BYTES + EXPANSION * size)), metadata


def _arrays(
    path: str, state_dict: Mapping[Any, Any], storages: Callable[[Storage], np.ndarray], bytes_left: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and arrays, which may repeat the elements of a storage up to a limit of bytes."""
    for name, value in state_dict.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            kind = type(value).__name__
            remedy = (
                "save it alone, if it is the state_dict you want" if isinstance(value, dict) else "save a state_dict"
            )
            raise UserError(f"{path}: the entry {str(name)[:99]!r} is a {kind}, not a tensor; {remedy}")
        flat = storages(value.storage)
        bytes_left -= math.prod(value.size) * flat.itemsize
        if bytes_left < 0:
            raise UserError(f"{path}: {name} and the tensors before it hold more data than the file; save a state_dict")
        steps = [flat.itemsize * step for step in value.stride]
        array = np.lib.stride_tricks.as_strided(flat[value.offset :], value.size, steps)
        yield name, np.array(widen(array, value.storage.dtype == "bf16"), order="C")


def _read_archive(file: BinaryIO, size: int) -> tuple[Any, Callable[[Storage], np.ndarray]]:
    archive = zipfile.ZipFile(file)
    entries = {entry.filename: entry for entry in archive.infolist()}
    if sum(entry.file_size for entry in archive.infolist()) > size or any(e.compress_type for e in entries.values()):
        raise ValueError("its entries are compressed, or overlap")
    root = next(name for name in entries if name.endswith("data.pkl")).removesuffix("data.pkl")
    if f"{root}byteorder" in entries and archive.read(f"{root}byteorder") != b"little":
        raise ValueError("its numbers are not little-endian")
    content = _unpickle(io.BytesIO(archive.read(f"{root}data.pkl")), size)
    return content, lambda storage: _elements(archive.read(f"{root}data/{storage.key}"), storage)


def _read_legacy(file: BinaryIO, size: int) -> tuple[Any, Callable[[Storage], np.ndarray]]:
    if safe_pickle.unpickle(file, size, {}) != LEGACY_MAGIC:
        raise ValueError("it is no file of torch.save")
    for _ in ("version", "machine"):
        safe_pickle.unpickle(file, size, {})
    known: dict[str, Storage] = {}
    content = _unpickle(file, size, known)
    found = {}
    for key in safe_pickle.unpickle(file, size, {}):
        count = int.from_bytes(file.read(8), "little")
        if count != known[key].length:
            raise ValueError(f"a storage of {count} elements")
        found[key] = _elements(file.read(count * _dtype(known[key]).itemsize), known[key])
    return content, lambda storage: found[storage.key]


def _elements(content: bytes, storage: Storage) -> np.ndarray:
    flat = np.frombuffer(content, _dtype(storage))
    if len(flat) != storage.length:
        raise ValueError(f"{len(flat)} elements in a storage of {storage.length}")
    return flat


def _dtype(storage: Storage) -> np.dtype:
    return np.dtype("u2" if storage.dtype == "bf16" else storage.dtype)


def _unpickle(file: BinaryIO, size: int, known: dict[str, Storage] | None = None) -> Any:
    def storage(identifier: Any) -> Storage:
        kind, dtype, key, _, count = identifier[:5]
        if kind != "storage" or type(count) is not int or not 0 <= count <= size or any(identifier[5:]):
            raise ValueError("a storage of another form")
        made = Storage(str(key), dtype.function, count)
        return made if known is None else known.setdefault(made.key, made)

    return safe_pickle.unpickle(file, size, NAMES, persistent_load=storage)


def _rebuild(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
    if not isinstance(storage, Storage) or not isinstance(size, tuple) or not isinstance(stride, tuple):
        raise ValueError("a tensor of another form")
    numbers = (offset, *size, *stride)
    is_plain = len(size) == len(stride) <= safe_pickle.MAX_DIMENSIONS and all(
        type(n) is int and n >= 0 for n in numbers
    )
    last = offset + sum((length - 1) * step for length, step in zip(size, stride)) if is_plain and all(size) else -1
    if not is_plain or last >= storage.length:
        raise ValueError(f"a tensor of size {size} in a storage of {storage.length}")
    return Tensor(storage, offset, size, stride)


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _typed(function: Any, _: Any, arguments: Any, *__: Any) -> Any:
    """Rebuild a tensor that had attributes of Python."""
    return function(*arguments)


def _encode(text: str, encoding: str = "utf-8") -> bytes:
    if encoding not in CODECS:  # others take quadratic time
        raise ValueError(f"text in {encoding!r}")
    return text.encode(encoding)


class Ignored:
    """Stand-in for what is no tensor: it is made in its place and calls nothing."""

    def __init__(self, *_: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def _size(*items: Any) -> tuple[Any, ...]:
    return tuple(items[0]) if items and isinstance(items[0], tuple | list) else ()


NAMES: safe_pickle.Names = {
    **dict.fromkeys(IGNORED, Ignored),
    **{("torch", name): AllowedCall(dtype) for name, dtype in STORAGES.items()},  # type: ignore[arg-type]
    ("torch._utils", "_rebuild_tensor_v2"): AllowedCall(_rebuild),
    ("torch._utils", "_rebuild_tensor"): AllowedCall(_rebuild),
    ("torch._utils", "_rebuild_parameter"): AllowedCall(_parameter),
    ("torch._utils", "_rebuild_parameter_with_state"): AllowedCall(_parameter),
    ("torch._tensor", "_rebuild_from_type_v2"): AllowedCall(_typed),
    ("torch", "Tensor"): Ignored,
    ("torch.nn.parameter", "Parameter"): AllowedCall(_parameter),
    ("torch", "Size"): AllowedCall(_size),
    ("collections", "OrderedDict"): AllowedCall(OrderedDict),
    ("_codecs", "encode"): AllowedCall(_encode),
    ("builtins", "set"): Ignored,
}


def _select(content: Any, entry: str | None) -> tuple[Any, dict[str, str]]:
    if not isinstance(content, dict):
        return (content if entry is None else None), {}
    if entry is not None:
        return content.get(entry), {}
    models = [key for key, value in content.items() if _is_state_dict(value)]
    usual = [
        key for key in ("state_dict", "model") if isinstance(content.get(key), dict)
    ]  # torchvision's is the latter
    chosen = (usual or models if len(models) == 1 else usual)[:1]
    if not chosen:
        return content, {}
    others = ", ".join(str(key) for key in models if key not in chosen)
    note = f"the file holds other weights too ({others}), which are not converted; save them alone to convert them"
    metadata = _class_metadata(content.get("meta")) | ({"notes": json.dumps([note])} if others else {})
    return content[chosen[0]], metadata


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(item, Tensor) for item in value.values())


def _class_metadata(meta: Any) -> dict[str, str]:
    """Return class names and colors as mmsegmentation 0.x (CLASSES) and 1.x (dataset_meta) store them."""
    meta = meta if isinstance(meta, dict) else {}
    meta = {**meta, **meta["dataset_meta"]} if isinstance(meta.get("dataset_meta"), dict) else meta
    values = {key: meta.get(key) or meta.get(key.upper()) for key in ("classes", "palette")}
    is_item = {"classes": lambda item: isinstance(item, str), "palette": _is_color}
    return {
        key: json.dumps(value)
        for key, value in values.items()
        if isinstance(value, list | tuple) and all(map(is_item[key], value))
    }


def _is_color(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 3 and all(type(level) is int for level in item)
