"""The recipe that weights have recorded: read as a whole, or as the settings that a run takes from them."""

import os
from collections.abc import Mapping
from typing import Any

from zoo.config import loader
from zoo.config.convert import plain
from zoo.data.errors import UserError
from zoo.data.parsing import parsing
from zoo.run.checkpoint import FOLDER, RECORD, has_averages, load_record
from zoo.weights import onnx_file, recorded

EXAMPLE = "runs/tsm_demo/checkpoints/best"
OF_THE_RUN = ("out", "weights", "fresh_head")  # keys that another run does not repeat
GIVEN = ("--weights", "-o weights")  # origins of weights that are younger than the recipe's file


def is_checkpoint(path: str) -> bool:
    """Return whether a folder is that of a checkpoint."""
    return os.path.isfile(os.path.join(recorded.resolve_pointer(path), RECORD))


def read(path: str) -> tuple[dict[str, Any], loader.Entries]:
    """Read the record and the recipe of a checkpoint folder or of an exported model.

    Raises:
        UserError: the folder is no checkpoint, or the record is incomplete.
    """
    if onnx_file.is_onnx(path):
        return _parse(dict(onnx_file.read(path).metadata.record), path)
    if not is_checkpoint(path):
        candidates = [os.path.dirname(path) or "."] + [os.path.join(path, FOLDER, link) for link in ("best", "last")]
        example = next(filter(is_checkpoint, candidates), EXAMPLE)
        raise UserError(
            f"{path} has no {RECORD}, which holds the recipe and the class names; give the folder of "
            f"a checkpoint, such as {example}"
        )
    return _parse(load_record(path), os.path.join(path, RECORD))


def repeat(path: str) -> tuple[str, loader.Entries]:
    """Return the name of the run that wrote a checkpoint and its recipe, for another run with its weights.

    Of an exported model, it is the name of its file.

    Raises:
        UserError: as read().
    """
    folder = os.path.dirname(path) if path.endswith(".safetensors") else path
    entries = read(folder)[1]
    run = os.path.dirname(os.path.dirname(os.path.realpath(folder)))
    if onnx_file.is_onnx(path):
        run = os.path.splitext(path)[0]
    return os.path.basename(run), {key: entry for key, entry in entries.items() if key not in OF_THE_RUN}


def settings(path: str, resolved: Mapping[str, loader.Entry], eval_only: bool) -> loader.Entries:
    """Return the entries that a run takes from the record of its weights: what describes their model and its input.

    Weights that are named on the command line precede the file of the recipe, and -o precedes them. Weights that a
    recipe names only fill what it leaves at the defaults. An evaluation takes the number of classes too; a training has
    that of the data.

    Args:
        path: of a weights file or the folder of a checkpoint; a file without a record gives nothing.
        resolved: the recipe.
        eval_only: whether the run evaluates the weights.

    Raises:
        UserError: the weights are those of another model.
    """
    record = recorded.read(path)
    name, fresh_head = resolved["model.name"].value, resolved["fresh_head"].value
    if record.model not in (None, name) and not fresh_head:
        remedy = "none" if eval_only else "-o fresh_head=true if only the classifiers differ"
        raise UserError(
            f"{path} holds the model {record.model}, this recipe trains {name}: give a recipe of {record.model} with "
            f"-c, or {remedy}"
        )
    found = {f"model.{key}": value for key, value in record.arch.items() if key != "num_classes"}
    found |= {f"data.{key}": value for key, value in record.data.items()}
    if record.names and not fresh_head:
        found["data.names"] = record.names
    if eval_only and record.classes:
        found["model.num_classes"] = record.arch.get("num_classes") or len(record.classes)
    if eval_only:  # both kinds of weights are evaluated, if there are
        found["train.ema"] = read(path)[1]["train.ema"].value if has_averages(path) else None
    weights = resolved["weights"]
    precede = weights.value is None or weights.origin in GIVEN  # None: those that the resumed run was given

    def is_open(key: str) -> bool:
        origin = resolved[key].origin
        return origin == loader.DEFAULT or (precede and origin != f"-o {key}")

    return {
        key: loader.Entry(value, path)
        for key, value in found.items()
        if key in resolved and is_open(key) and plain(resolved[key].value) != value
    }


def _parse(record: dict[str, Any], origin: str) -> tuple[dict[str, Any], loader.Entries]:
    """Return a record with its classes as a tuple, and its recipe. origin: the file of the record."""
    with parsing(f"{origin} lacks a valid recipe or list of classes", "use another checkpoint of the run"):
        entries = loader.parse_recorded(record["recipe"], origin)
        return {**record, "classes": tuple(map(str, record["classes"]))}, entries
