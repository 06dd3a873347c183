"""The record of a weights file of this zoo about its model: a converted or exported file, or a run's checkpoint."""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from zoo.config import loader
from zoo.config.schema import Config
from zoo.data.convert import plain
from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular
from zoo.weights import files
from zoo.weights.files import RECORD

T = TypeVar("T")
FOLDER, EVALUATION = "checkpoints", "evaluation.json"  # of a run, of a checkpoint
MODEL, AVERAGE = "model.safetensors", "ema.safetensors"  # of a checkpoint
STEP = re.compile(r"step-\d{8,}")
MAX_SIZE = 64  # bytes of a file with a name
# Options of models that matter in training alone; a run takes over all others, also those of a new model.
MODEL_TRAINING_KEYS = (
    *("pretrained", "dropout", "decay", "conv_init", "fc_bias_init", "zero_gamma", "partial_bn", "fc_lr5", "crop"),
)
DATA_KEYS = ("segments", "size", "antialias", "reduce", "mean", "std", "normalisation")  # that a run takes over


def resolve_pointer(path: str) -> str:
    """Return the folder that a link or a file names, and of a run its best checkpoint, or the newest without any.

    A run that goes on moves its links: whoever reads several files of a checkpoint resolves its path once. Copies to
    file systems without links, and some archives, turn a link into a file with the name of its target, or leave it
    out: then evaluations and names of the checkpoints decide. Any other path is returned as it is.
    """
    if os.path.isdir(os.path.join(path, FOLDER)):
        return resolve_pointer(os.path.join(path, FOLDER, "best"))
    folder, name = os.path.split(path)
    if name in ("best", "last") and not os.path.lexists(path):
        return _without_link(folder, name) or path
    try:
        if os.path.islink(path):
            name = os.readlink(path)
        elif os.path.isfile(path) and os.path.getsize(path) <= MAX_SIZE:
            with open(path, encoding="ascii") as file:
                name = file.read().strip()
        else:
            return path
    except (OSError, ValueError):
        return path
    target = os.path.join(folder, name)
    return target if STEP.fullmatch(name) and os.path.isdir(target) else path


def model_file(path: str, raw: bool = False) -> str:
    """Return the weights file of a checkpoint folder, or the path itself if it is no folder.

    Args:
        raw: the weights of the last update, also where the checkpoint has their moving averages.
    """
    path = resolve_pointer(path)
    if not os.path.isdir(path):
        return path
    return os.path.join(path, MODEL if raw or not has_averages(path) else AVERAGE)


def has_averages(path: str) -> bool:
    """Return whether a path is the folder of a checkpoint with moving averages."""
    return os.path.isfile(os.path.join(resolve_pointer(path), AVERAGE))


def rank(metrics: Mapping[str, Any]) -> tuple[float, float]:
    """Return by what the checkpoint of an evaluation is the best: its main metric, and among equals a lower loss.

    What is not finite, or not known, comes last.
    """
    values = metrics.get("accuracy"), metrics.get("ema", metrics).get("loss")
    accuracy, loss = (value if isinstance(value, float) and math.isfinite(value) else None for value in values)
    return -math.inf if accuracy is None else accuracy, -math.inf if loss is None else -loss


def evaluation(checkpoint: str) -> dict[str, Any]:
    """Return the metrics beside a checkpoint; empty if it was not evaluated, or they cannot be read."""
    try:
        with parsing(checkpoint):
            return {**regular.load_json(os.path.join(checkpoint, EVALUATION))}
    except UserError:
        return {}


def _without_link(folder: str, name: str) -> str | None:
    """Return the checkpoint of a folder that a missing link would name; None without any."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    steps = sorted((each for each in names if STEP.fullmatch(each)), key=lambda step: int(step[5:]))
    paths = [os.path.join(folder, step) for step in steps]
    ranks = [rank(evaluation(path)) for path in paths]
    if name == "best" and max(ranks, default=(-math.inf,))[0] > -math.inf:
        return paths[ranks.index(max(ranks))]
    return paths[-1] if paths else None


class Recorded(NamedTuple):
    """The record of a weights file; empty for other files.

    Attributes:
        data: settings of the data section that repeat the samples of its training.
    """

    model: str | None
    arch: dict[str, Any]
    data: dict[str, Any]
    classes: tuple[str, ...] = ()
    names: str | None = None


NOTHING = Recorded(None, {}, {})


def read(path: str) -> Recorded:
    """Return what a file records: its metadata, or the recipe and classes in it or in the folder of a checkpoint.

    A file that does not exist has no record.
    """
    path = resolve_pointer(path)
    if files.is_onnx(path) and os.path.isfile(path):
        from zoo.weights import onnx_file  # which most runs do without

        return _of_record(path, onnx_file.read(path).metadata.record)
    path = os.path.join(path, MODEL) if os.path.isdir(path) else path
    if not path.endswith(".safetensors") or not os.path.isfile(path):
        return NOTHING
    metadata = files.read_metadata(path)
    if "arch" in metadata or "data" in metadata:
        arch, data = (entry(path, metadata, key, dict) for key in ("arch", "data"))
        return Recorded(metadata.get("model"), arch, data)
    record = os.path.join(os.path.dirname(path), RECORD)
    return _of_record(record) if os.path.isfile(record) else NOTHING


def entry(path: str, metadata: Mapping[str, str], key: str, kind: type[T]) -> T:
    """Return the value in JSON under a key of a file's metadata, an empty one without it. Raises UserError."""
    with parsing(f"{path}: its metadata {key} is not as this zoo writes it", "convert the weights again"):
        found = regular.parse_json(metadata[key]) if key in metadata else kind()
        if not isinstance(found, kind):
            raise ValueError(f"no {kind.__name__}")
        return found


def warn_of_other_preprocessing(
    settings: Mapping[str, Any], cfg: Config, path: str, print_line: Callable[[str], None]
) -> None:
    """Warn when samples are not prepared as those that the weights were trained on."""
    for key, value in settings.items():
        current = plain(getattr(cfg.data, key, value))
        if current != value:
            option, other = f"data.{key}={json.dumps(value)}", json.dumps(current)
            print_line(f"warning: {path} was trained with {option}, the recipe has {other}; give -o {option}")


def warn_of_other_classes(
    recorded: Sequence[str], current: Sequence[str], path: str, print_line: Callable[[str], None]
) -> None:
    """Warn when a label means another class than when the weights were trained."""
    for label, (before, now) in enumerate(zip(recorded, current)):
        if before != now:
            print_line(f"warning: class {label} is {now!r} in the data but was {before!r} when {path} was trained")
            return


def _of_record(path: str, record: Any = None) -> Recorded:
    """Return what a record tells, by default that in a file; whoever reads the checkpoint itself reports a bad one."""
    try:
        with parsing(path):
            record = regular.load_json(path) if record is None else record
            entries = loader.parse_recorded(record["recipe"], path)
            classes = tuple(map(str, record.get("classes", ())))
    except UserError:
        return NOTHING
    return of_recipe(entries, classes) if "model.name" in entries else NOTHING


def of_recipe(entries: loader.Entries, classes: tuple[str, ...] = ()) -> Recorded:
    """Return what the recipe of a run records of its model and input."""
    values = {key: entry.value for key, entry in entries.items()}
    arch = {key.partition(".")[2]: value for key, value in values.items() if key.startswith("model.")}
    return Recorded(
        model=values.get("model.name"),
        arch={key: value for key, value in arch.items() if key not in ("name", *MODEL_TRAINING_KEYS)},
        data={key: values[f"data.{key}"] for key in DATA_KEYS if values.get(f"data.{key}") is not None},
        classes=classes,
        names=values.get("data.names"),
    )
