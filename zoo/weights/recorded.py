"""What a weights file of this zoo records about its model: a converted file, or that of a run's checkpoint."""

import json
import os
from typing import Any, NamedTuple

import yaml

from zoo.weights import files
from zoo.weights.infer import NOT_IN_TENSORS

RECORD = "checkpoint.json"  # in the folder of a checkpoint


class Recorded(NamedTuple):
    """The record of a weights file; empty for other files.

    Attributes:
        model: name of the model.
        arch: options of its Arch.
        data: settings of the data section that repeat the preprocessing of its training.
    """

    model: str | None
    arch: dict[str, Any]
    data: dict[str, Any]


NOTHING = Recorded(None, {}, {})


def read(path: str) -> Recorded:
    """Return what a file records: its metadata, or the recipe in the folder of a checkpoint.

    Of a recipe, only options that no tensor shows are returned. A file that does not exist has no record.

    Args:
        path: A weights file, or the folder of a checkpoint.

    Raises:
        UserError: The file is no complete safetensors file.
    """
    path = os.path.join(path, "model.safetensors") if os.path.isdir(path) else path
    if not path.endswith(".safetensors") or not os.path.isfile(path):
        return NOTHING
    metadata = files.read_metadata(path)
    if "arch" in metadata or "data" in metadata:
        arch, data = (json.loads(metadata.get(key, "{}")) for key in ("arch", "data"))
        return Recorded(metadata.get("model"), arch, data)
    record = os.path.join(os.path.dirname(path), RECORD)
    return _of_checkpoint(record) if os.path.isfile(record) else NOTHING


def run_settings(path: str) -> dict[str, Any]:
    """Return the settings of a recipe that a weights file or checkpoint records, by dotted key.

    The number of classes is left out, because it is that of the data.
    """
    _, arch, data = read(path)
    settings = {f"model.{key}": value for key, value in arch.items() if key != "num_classes"}
    return {**settings, **{f"data.{key}": value for key, value in data.items()}}


def _of_checkpoint(path: str) -> Recorded:
    try:
        with open(path, encoding="utf-8") as file:
            options = dict(yaml.safe_load(json.load(file)["recipe"])["model"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return NOTHING  # whoever reads the checkpoint itself reports it
    model = str(options.get("name"))
    return Recorded(model, {key: options[key] for key in NOT_IN_TENSORS.get(model, ()) if key in options}, {})
