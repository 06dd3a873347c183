"""Reader for PyTorch's files of torch.save; no code is run from them."""

import contextlib
import json
import os
import zipfile
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.data.formats.pickle_screen import EXPANSION, FREE_BYTES, screen
from zoo.data.parsing import parsing

LEGACY_PICKLES = 5  # at the beginning of a file of PyTorch before 1.6
EXTENSIONS = (".pth", ".pt", ".pth.tar", ".bin")
# Names in the training files of mmengine, which hold a log of the losses in numpy arrays beside the tensors.
IGNORED_NAMES = (
    "mmengine.logging.history_buffer.HistoryBuffer",
    "builtins.getattr",
    "numpy.ndarray",
    "numpy.dtype",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
)


def read(path: str, entry: str | None = None) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the tensors of a file by name and its metadata; 16-bit floats are widened to float32.

    Args:
        path: A file of torch.save, with any extension.
        entry: Key of the state dict in a file that holds more. Default: `state_dict` if there is one, else all.

    Returns:
        The tensors, and of mmsegmentation's files the metadata `classes` and `palette` in JSON.

    Raises:
        UserError: The file is damaged, needs code to be run, or holds anything but named dense tensors; or PyTorch is
            not installed.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise UserError(
            f"{path}: reading a {EXTENSIONS[0]} file needs PyTorch; install it, or convert the file to "
            "safetensors where PyTorch is installed"
        ) from None
    state_dict, metadata = _select(_load(path), entry)
    if not isinstance(state_dict, dict) or not state_dict:
        problem = f"holds no {entry} with tensors" if entry else f"holds a {type(state_dict).__name__}, not tensors"
        raise UserError(f"{path} {problem}; save a state_dict")
    arrays = {}
    bytes_left = FREE_BYTES + EXPANSION * os.path.getsize(path)  # tensors may repeat the same elements
    for name, value in state_dict.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise UserError(f"{path}: the entry {name!r} is a {type(value).__name__}, not a tensor; save a state_dict")
        if value.layout != torch.strided or value.is_quantized:
            raise UserError(f"{path}: {name} is sparse or quantised; save it as a dense float32 tensor")
        is_half = value.dtype in (torch.float16, torch.bfloat16)
        bytes_left -= value.numel() * value.element_size()
        if bytes_left < 0:
            raise UserError(f"{path}: {name} and the tensors before it hold more data than the file; save a state_dict")
        if value.device.type != "cpu":
            raise UserError(f"{path}: {name} has no elements, only a shape; save a state_dict with its values")
        arrays[name] = (value.float() if is_half else value).resolve_conj().resolve_neg().detach().numpy()
    return arrays, metadata


class _Ignored:
    """Stand-in for the objects of IGNORED_NAMES: it is created in their place and calls nothing."""

    def __init__(self, *arguments: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def _load(path: str) -> Any:
    import torch

    problem = f"{path} is refused: it is damaged, or holds more than tensors, which would mean running code from it"
    with parsing(problem, "if you trust it, load it elsewhere and save only its state_dict"):
        _screen(path)
        with torch.serialization.safe_globals([(_Ignored, name) for name in IGNORED_NAMES]):
            return torch.load(path, map_location="cpu", weights_only=True)


def _screen(path: str) -> None:
    """Screen the pickles of a file before PyTorch builds anything. Raises an exception for a damaged file."""
    size = os.path.getsize(path)
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as file:
            for _ in range(LEGACY_PICKLES):
                screen(file, size)
        return
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > size or any(entry.compress_type for entry in entries):
            raise ValueError("its entries are compressed, or overlap")
        for entry in entries:
            if entry.filename.endswith(".pkl"):
                with archive.open(entry) as pickled:
                    screen(pickled, size)


def _select(content: Any, entry: str | None) -> tuple[Any, dict[str, str]]:
    """Return the state dict in a file's content, and its metadata."""
    if not isinstance(content, dict):
        return (content if entry is None else None), {}
    if entry is not None:
        return content.get(entry), {}
    if isinstance(content.get("state_dict"), dict):
        return content["state_dict"], _class_metadata(content.get("meta"))
    return content, {}


def _class_metadata(meta: Any) -> dict[str, str]:
    """Return class names and colors as mmsegmentation 0.x (CLASSES) and 1.x (dataset_meta) store them."""
    meta = meta if isinstance(meta, dict) else {}
    meta = {**meta, **meta["dataset_meta"]} if isinstance(meta.get("dataset_meta"), dict) else meta
    values = {key: meta.get(key) or meta.get(key.upper()) for key in ("classes", "palette")}
    with contextlib.suppress(TypeError, ValueError):
        return {key: json.dumps(value) for key, value in values.items() if isinstance(value, (list, tuple))}
    return {}
