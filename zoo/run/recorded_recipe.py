"""The recipe that weights record: that of a checkpoint or an exported model, and what a run takes from it."""

import glob
import os
from typing import Any

from zoo.config import loader
from zoo.config.loader import Entry
from zoo.config.schema import Config
from zoo.data.convert import plain
from zoo.data.errors import Option, UserError, parsing, similar_path
from zoo.run.checkpoint import load_record
from zoo.weights import files, recorded
from zoo.weights.files import RECORD
from zoo.weights.recorded import FOLDER, has_averages

EXAMPLE = "runs/tsm_demo/checkpoints/best"
OF_THE_RUN = ("out", "weights", "fresh_head")  # keys that another run does not repeat
GIVEN = (Option("--weights"), Option("weights"))  # origins of weights that are younger than the recipe's file


def is_checkpoint(path: str) -> bool:
    return os.path.isfile(os.path.join(recorded.resolve_pointer(path), RECORD))


def read_recipe(path: str) -> tuple[dict[str, Any], loader.Entries]:
    """Read the record and the recipe of a checkpoint folder or of an exported model.

    `names` of the record are names of the outputs to show, where the `classes` that data are compared with are unknown.
    """
    if files.is_onnx(path):
        from zoo.weights import onnx_file  # which most runs do without

        metadata = onnx_file.read(path).metadata
        return _parse({**metadata.record, "names": metadata.classes}, path)
    if not os.path.lexists(path):
        listed = "; zoo weights list shows the published ones"
        raise UserError(f"{path}: there is no such file or folder of weights{similar_path(path) or listed}")
    if not is_checkpoint(path):
        candidates = [os.path.dirname(path) or ".", *sorted(glob.glob(f"{glob.escape(path)}/*/"))]  # of runs, say
        example = next(filter(is_checkpoint, candidates), EXAMPLE)
        raise UserError(
            f"{path} has no {RECORD}, which holds the recipe and the class names; give the folder of "
            f"a checkpoint, such as {example}"
        )
    return _parse(load_record(path), os.path.join(path, RECORD))


def repeat(path: str) -> tuple[str, loader.Entries]:
    """Return the name of the run that wrote a checkpoint and its recipe, for another run with its weights.

    Of an exported model, it is the name of its file.
    """
    folder = os.path.dirname(path) if path.endswith(".safetensors") else path
    entries = read_recipe(folder)[1]
    run = os.path.realpath(folder)
    if os.path.basename(os.path.dirname(run)) == FOLDER:
        run = os.path.dirname(os.path.dirname(run))
    if files.is_onnx(path):
        run = os.path.splitext(path)[0]
    return os.path.basename(run), {key: entry for key, entry in entries.items() if key not in OF_THE_RUN}


def recorded_settings(
    entries: loader.Entries, began: loader.Entries, path: str | None, eval_only: bool
) -> loader.Entries:
    """Return the entries that a run takes from the record of its weights: what describes their model and its input.

    Weights that are named on the command line precede the file of the recipe, and -o precedes them. Weights that a
    recipe names only fill what it leaves open. An evaluation takes the number of classes too; a training has that of
    the data. A run that goes on takes the settings that it took from its weights when it began.

    Args:
        entries: the recipe; weights without a record give nothing.
        began: the recipe of the run to resume; empty for a new run.
        eval_only: whether the run evaluates the weights.
    """
    weights = next((each["weights"] for each in (entries, began) if "weights" in each and each["weights"].value), None)
    if weights is None:
        return {}
    record = recorded.of_recipe(began) if began else recorded.read(str(path))
    origin = str(weights.value if began else path)
    name = entries.get("model.name", Entry(record.model, origin)).value
    fresh_head = "fresh_head" in entries and entries["fresh_head"].value
    if record.model not in (None, name) and not fresh_head:
        remedy = ("none",) if eval_only else (Option("fresh_head", True), " if only the classifiers differ")
        raise UserError(
            f"{origin} holds the model {record.model}, this recipe trains {name}: give a recipe of {record.model} with "
            "-c, or ",
            *remedy,
        )
    found = {f"model.{key}": value for key, value in record.arch.items() if key != "num_classes"}
    found |= {f"data.{key}": value for key, value in record.data.items()}
    if record.names and not fresh_head:
        found["data.names"] = record.names
    if eval_only and record.classes:
        found["model.num_classes"] = record.arch.get("num_classes") or len(record.classes)
    if eval_only and record.model:  # both kinds of weights are evaluated, if there are
        found["train.ema"] = read_recipe(origin)[1]["train.ema"].value if has_averages(origin) else None
    precede = weights.origin in GIVEN or weights is not entries.get("weights")

    def is_open(key: str) -> bool:
        return key not in entries or (precede and entries[key].origin != Option(key))

    # `outdated`: a key that this model or data set does not have is left out.
    return {key: Entry(value, origin, outdated=True) for key, value in found.items() if is_open(key)}


def taken_note(taken: loader.Entries, entries: loader.Entries, cfg: Config) -> list[str]:
    """Return a line on what the weights have changed of a recipe and its defaults; none without any."""
    changes = []
    for key, entry in sorted(taken.items()):
        section, _, name = key.partition(".")
        settings = getattr(cfg, section)
        before = entries[key].value if key in entries else getattr(type(settings), name, None)
        if plain(before) != plain(getattr(settings, name, before)):
            changes.append(f"{key}: {plain(before)} -> {entry.value}")
    path = next(iter(taken.values())).origin if taken else ""
    return [f"taken from {path}, unless -o says otherwise: {', '.join(changes)}"] if changes else []


def _parse(record: dict[str, Any], origin: str) -> tuple[dict[str, Any], loader.Entries]:
    with parsing(f"{origin} lacks a valid recipe or list of classes", "use another checkpoint of the run"):
        entries = loader.parse_recorded(record["recipe"], origin)
        lists = {key: tuple(map(str, record.get(key, ()))) for key in ("classes", "names")}
        return {**record, **lists}, entries
