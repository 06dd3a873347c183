"""Trained models: the checkpoint of a run with its recipe, class names and weights, without the data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data.batch import Field
from zoo.config import loader
from zoo.config.schema import Config
from zoo.models import Spec, resolve_arch
from zoo.run import cli, recorded_recipe
from zoo.run.checkpoint import model_file
from zoo.weights import files


def read_checkpoint(
    path: str, framework: str, device: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], Config, loader.Entries]:
    """Read the record of a checkpoint folder and its recipe, changed by the user's options.

    Raises:
        UserError: the folder is no checkpoint or its record is incomplete, or an override is wrong.
    """
    record, entries = recorded_recipe.read(path)
    flags = {"framework": loader.Entry(framework, "--framework"), "device": loader.Entry(device, "--device")}
    cfg, resolved = loader.build({**entries, **flags, **loader.overrides(overrides)}, cli.FIND)
    return record, cfg, resolved


def resolve(spec: Spec, arch: Any, fields: Sequence[Field], classes: int) -> Any:
    """Complete an architecture for predictions, which need one row of a class matrix at most."""
    if spec.SHARDED_PARAMETERS:
        return resolve_arch(spec, replace(arch, num_classes=1), fields, 0)
    return resolve_arch(spec, arch, fields, classes)


def read_tensors(path: str, spec: Spec, raw: bool = False) -> dict[str, np.ndarray]:
    """Read the tensors of a checkpoint; of a class matrix, the first row.

    It has a row per class and may be larger than the memory, and no prediction depends on it.

    Args:
        path: folder of the checkpoint.
        spec: of its model.
        raw: the weights of the last update, also where the checkpoint has their moving averages.

    Raises:
        UserError: the file is not readable.
    """
    file = model_file(path, raw)
    rows: dict[str, files.RowRange] = {}
    if spec.SHARDED_PARAMETERS:
        shapes = {key: tensor.shape for key, tensor in files.read_shapes(file).items()}
        rows = {key: (shapes[key][0], 0, 1) for key in spec.SHARDED_PARAMETERS if key in shapes}
    return files.read(file, rows)[0]
