"""Steps of a conversion beyond key mapping: layouts that options change, the direction of the shift, metadata."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.weights import faces, files, layouts

Tensors = Mapping[str, np.ndarray]
DEFAULT_SHIFT_DIV = 8  # of this zoo, and of PaddleVideo's models of 8 frames


def to_canonical(tensors: Tensors, origin: str, options: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the tensors by canonical name and in canonical layout, changed as the options need, and notes."""
    result, notes = layouts.to_canonical(tensors, origin), []
    if origin == "mindspore" and options.get("num_classes") != 1001 and len(result.get("fc.bias", ())) == 1001:
        result = layouts.without_spare_class(result)
        notes.append(
            "the last of 1001 classes, which no image of ImageNet has, is dropped; -o num_classes=1001 keeps it"
        )
    if origin == "plsc" and options.get("variant") == "insightface":
        result = faces.to_insightface(result)
    return result, notes


def reverse_shift(
    tensors: Tensors, depth: int, shift_div: int | None, keep_direction: bool
) -> tuple[Tensors, list[str]]:
    """Convert a TSM of PaddleVideo to the shift direction of this zoo, and return notes on its use.

    Args:
        shift_div: PaddleVideo's model shifts 1/shift_div of the channels each way; None for the default.
    """
    shift_div = DEFAULT_SHIFT_DIV if shift_div is None else shift_div
    widths = {
        tensor.shape[0]
        for name, tensor in tensors.items()
        if name == "bn1.weight" or name.endswith(".downsample.1.weight")
    }
    if shift_div < 2 or any(2 * width // shift_div != 2 * (width // shift_div) for width in widths):
        raise UserError(
            f"--shift-div {shift_div}: PaddleVideo's two folds would differ in size, which this zoo's shift "
            "does not support; give the number of frames that the model was trained with"
        )
    notes = [
        "PaddleVideo's shift has the other direction; the channels are reordered so that this zoo's shift computes the "
        "same"
    ]
    if keep_direction:
        notes = ["PaddleVideo's shift has the other direction: model.shift_direction=past is stored in the file"]
    if shift_div != DEFAULT_SHIFT_DIV:
        notes.append(f"model.shift_div={shift_div} is stored in the file; if a recipe has another, give it with -o")
    if depth > 50:
        notes.append(
            f"PaddleVideo's ResNet-{depth} shifts in every block, this zoo's in every second one: fine-tune these "
            "weights before using them"
        )
    return tensors if keep_direction else layouts.reverse_shift(tensors, shift_div), notes


def metadata(
    model: str,
    origin: str,
    options: Mapping[str, Any],
    data: Mapping[str, Any],
    notes: Sequence[str],
    path: str,
    paths: Sequence[str],
) -> dict[str, str]:
    """Return the metadata of a converted file.

    Args:
        options: All known options of the model, which a run uses, or compares with those of its recipe. The image size
            is left out: the shape of fc.weight determines it.
        data: Settings of the data section, likewise.
    """
    return {
        "origin": origin,
        "model": model,
        "arch": json.dumps({key: value for key, value in options.items() if key != "size"}),
        "file": os.path.basename(os.path.normpath(path)),
        "sha256": _digest(paths),
        **({"data": json.dumps(data)} if data else {}),
        **({"notes": json.dumps(notes)} if notes else {}),
    }


def _digest(paths: Sequence[str]) -> str:
    """Return the SHA-256 of a file, or that of the concatenated digests of several."""
    of_files = [files.sha256(path) for path in paths]
    return of_files[0] if len(of_files) == 1 else hashlib.sha256("".join(of_files).encode()).hexdigest()


def require_float32(tensors: Tensors) -> None:
    """Raise UserError for a tensor that is not float32; 16-bit floats have been widened already."""
    for name, array in tensors.items():
        if array.dtype != np.float32:
            raise UserError(f"{name} is {array.dtype}, but weights are float32 (or 16-bit floats); save it as float32")
