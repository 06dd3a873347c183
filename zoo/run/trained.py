"""Trained models: the checkpoint of a run with its recipe, class names and weights, without the data."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import yaml

from data.batch import Field
from data.errors import UserError
from zoo.config import loader, renamed
from zoo.config.schema import Config
from zoo.models import Spec, resolve_arch
from zoo.run import cli
from zoo.run.checkpoint import FOLDER, load_record
from zoo.run.restore import model_file
from zoo.weights import files

EXAMPLE = "runs/tsm_demo/checkpoints/best"


def read_checkpoint(
    path: str, framework: str, device: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], Config, loader.Entries]:
    """Read the record of a checkpoint folder and its recipe, changed by the user's options.

    Raises:
        UserError: the folder is no checkpoint or its record is incomplete, or an override is wrong.
    """
    if not is_checkpoint(path):
        candidates = [os.path.dirname(path) or "."] + [os.path.join(path, FOLDER, link) for link in ("best", "last")]
        example = next(filter(is_checkpoint, candidates), EXAMPLE)
        raise UserError(
            f"{path} has no checkpoint.json, which holds the recipe and the class names; give the folder of "
            f"a checkpoint, such as {example}"
        )
    record = load_record(path)
    try:
        entries = recipe_entries(record["recipe"], os.path.join(path, "checkpoint.json"))
        record["classes"] = tuple(map(str, record["classes"]))
    except (KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path}: checkpoint.json lacks a valid recipe or list of classes ({error!r}); "
            "use another checkpoint of the run"
        ) from None
    flags = {"framework": loader.Entry(framework, "--framework"), "device": loader.Entry(device, "--device")}
    cfg, resolved = loader.build({**entries, **flags, **loader.overrides(overrides)}, cli.FIND)
    return record, cfg, resolved


def is_checkpoint(path: str) -> bool:
    """Return whether a folder is that of a checkpoint."""
    return os.path.isfile(os.path.join(path, "checkpoint.json"))


def recipe_entries(recipe: str, origin: str) -> loader.Entries:
    """Parse a resolved recipe, whose sections are one level deep."""
    entries: loader.Entries = {}
    for key, value in yaml.safe_load(recipe).items():
        pairs = {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
        entries.update((name, loader.Entry(item, origin)) for name, item in pairs.items())
    return renamed.translate(entries)


def resolve(spec: Spec, arch: Any, fields: Sequence[Field], classes: int) -> Any:
    """Complete an architecture for predictions, which need one row of a class matrix at most."""
    if spec.SHARDED_PARAMETERS:
        return resolve_arch(spec, replace(arch, num_classes=1), fields, 0)
    return resolve_arch(spec, arch, fields, classes)


def read_tensors(path: str, spec: Spec) -> dict[str, np.ndarray]:
    """Read the tensors of a checkpoint; of a class matrix, the first row.

    It has a row per class and may be larger than the memory, and no prediction depends on it.

    Raises:
        UserError: the file is not readable.
    """
    rows: dict[str, files.RowRange] = {}
    if spec.SHARDED_PARAMETERS:
        shapes = {key: tensor.shape for key, tensor in files.read_shapes(model_file(path)).items()}
        rows = {key: (shapes[key][0], 0, 1) for key in spec.SHARDED_PARAMETERS if key in shapes}
    return files.read(model_file(path), rows)[0]
