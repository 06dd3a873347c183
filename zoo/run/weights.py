"""Weights that a run is given: the recipe that they record, their tensors, and exported models (.onnx)."""

import glob
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from zoo import tasks
from zoo.config import loader
from zoo.config.convert import plain
from zoo.config.loader import Entry
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.data.errors import UserError, similar_name, similar_path
from zoo.data.parsing import parsing
from zoo.models import Spec, initializers, load_spec
from zoo.run.checkpoint import FOLDER, RECORD, has_averages, load_record, model_file
from zoo.trainer import load_onnx_backend
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.protocol import Param
from zoo.trainer.world import World
from zoo.weights import files, onnx_file, recorded
from zoo.weights.match import merge
from zoo.weights.recorded import MODEL_TRAINING_KEYS

Print = Callable[[str], None]
Tensors = dict[str, np.ndarray]
# Options of converted weights that a run may change, with a warning.
CHANGEABLE = ("padding", "bn_eps", "dilate", "shift_place", "temporal_pool")
WITHOUT_OPTION = {"padding": "symmetric", "bn_eps": 1e-5}  # what models compute that lack the option
EXAMPLE = "runs/tsm_demo/checkpoints/best"
OF_THE_RUN = ("out", "weights", "fresh_head")  # keys that another run does not repeat
GIVEN = ("--weights", "-o weights")  # origins of weights that are younger than the recipe's file
ONNX = "onnx"  # of the back end, where that of a framework stands in records and messages
FIXED_BY_EXPORT = {  # key -> its flags
    "framework": ("--framework",),
    "train.precision": ("--amp", "--exact"),
    "train.eval_precision": (),
    "train.ema": (),
}


def resolve(name: str) -> str:
    """Return the path of weights: the given one, or that of a name of published ones or an address, made ready.

    Raises:
        UserError: they cannot be made ready, or a name like it is meant.
    """
    if name.startswith("hf://"):
        from zoo.run import hub

        return hub.pull(name)
    if os.path.lexists(name) or os.sep in name:
        return name
    from zoo.weights import registry  # which most runs do without

    if name in registry.table() or similar_name(name, registry.table()):
        return registry.prepare(registry.find(name))
    return name


def is_checkpoint(path: str) -> bool:
    """Return whether a folder is that of a checkpoint."""
    return os.path.isfile(os.path.join(recorded.resolve_pointer(path), RECORD))


def read_recipe(path: str) -> tuple[dict[str, Any], loader.Entries]:
    """Read the record and the recipe of a checkpoint folder or of an exported model.

    Raises:
        UserError: the folder is no checkpoint, or the record is incomplete.
    """
    if onnx_file.is_onnx(path):
        return _parse(dict(onnx_file.read(path).metadata.record), path)
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

    Raises:
        UserError: as read_recipe().
    """
    folder = os.path.dirname(path) if path.endswith(".safetensors") else path
    entries = read_recipe(folder)[1]
    run = os.path.realpath(folder)
    if os.path.basename(os.path.dirname(run)) == FOLDER:
        run = os.path.dirname(os.path.dirname(run))
    if onnx_file.is_onnx(path):
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
        path: of the weights that the recipe names.
        eval_only: whether the run evaluates the weights.

    Raises:
        UserError: the weights are those of another model.
    """
    weights = next((each["weights"] for each in (entries, began) if "weights" in each and each["weights"].value), None)
    if weights is None:
        return {}
    record = recorded.of_recipe(began) if began else recorded.read(str(path))
    origin = str(weights.value if began else path)
    name = entries.get("model.name", Entry(record.model, origin)).value
    fresh_head = "fresh_head" in entries and entries["fresh_head"].value
    if record.model not in (None, name) and not fresh_head:
        remedy = "none" if eval_only else "-o fresh_head=true if only the classifiers differ"
        raise UserError(
            f"{origin} holds the model {record.model}, this recipe trains {name}: give a recipe of {record.model} with "
            f"-c, or {remedy}"
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
        return key not in entries or (precede and entries[key].origin != f"-o {key}")

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


def initial(
    cfg: Config, spec: Spec, arch: Any, params: Sequence[Param], classes: Sequence[str], print_line: Print
) -> tuple[dict[str, np.ndarray], str]:
    """Return the tensors that a new run starts from.

    Args:
        cfg: `weights`, `fresh_head`, `seed` and the model's `pretrained` select them.
        spec: of the model.
        arch: its complete architecture.
        params: the trainer's parameters and running statistics; of a sharded one, only its rows are returned.
        classes: names of the data's classes.
        print_line: receives lines for the console.

    Returns:
        Every parameter and running statistic by canonical name, and the origin of the weights, in words.

    Raises:
        UserError: a file does not hold exactly the tensors of the model; the message lists the differences.
    """
    initialized = {
        param.name: initializers.initialize(
            spec.initializer(arch, param.name, param.shape), cfg.seed, param.name, param.shape, param.rows
        )
        for param in params
    }
    if cfg.weights:
        path = model_file(cfg.weights)
        if has_averages(cfg.weights):
            print_line(averages_note(cfg.weights))
        sharded = {param.name: (param.shape[0], *param.rows) for param in params if param.rows}
        tensors, metadata = files.read(path, sharded)
        record = recorded.read(path)
        _check_arch(recorded.entry(path, metadata, "arch", dict) or _shown_by_tensors(record), cfg.model, path)
        _check_model(tensors, initialized, spec, record, path)
        _warn_of_other_arch(record.arch, cfg.model, path, print_line)
        warn_of_other_preprocessing(record.data, cfg, path, print_line)
        if "classes" in metadata and not cfg.fresh_head:
            warn_of_other_classes(
                [*map(str, recorded.entry(path, metadata, "classes", list))], classes, path, print_line
            )
        merged = _merge(initialized, tensors, lambda name: cfg.fresh_head and spec.is_head(name), path, print_line)
        return merged, f"{path}, sha256 {files.sha256(path)}"
    if getattr(cfg.model, "pretrained", None) == "imagenet":
        depth = getattr(cfg.model, "depth", None)
        from zoo.weights import imagenet  # which most runs do without

        path, origin = imagenet.find_weights(depth, cfg.weights_dir, imagenet.variant_of(cfg.model))
        tensors = imagenet.add_backbone_prefix(files.read(path)[0], initialized)
        merged = _merge(initialized, tensors, spec.not_pretrained, path, print_line)
        return merged, f"{origin}, sha256 {files.sha256(path)}"
    return initialized, f"initialized from seed {cfg.seed}"


def averages_note(path: str) -> str:
    """Return a line for those who load the weights of a checkpoint that has moving averages."""
    return f"weights: the moving average (EMA) in {path}; those of its last update: {model_file(path, raw=True)}"


def exported_model(cfg: Config) -> str | None:
    """Return the exported model that a recipe names as its weights; None if they are none."""
    return cfg.weights if onnx_file.is_onnx(cfg.weights) else None


def check_exported_use(path: str, evaluates: bool, resume: str | None = None) -> None:
    """Raise UserError unless a run does nothing but evaluate an exported model."""
    if not evaluates:
        raise UserError(
            f"weights: {path} is an exported model, which can only predict: evaluate it with --eval-only, or train "
            "from the checkpoint that it was exported from"
        )
    if resume:
        raise UserError(f"--resume: evaluates the last checkpoint of {resume}, and --weights {path}; leave one out")


def check_exported_settings(path: str, resolved: Mapping[str, Entry]) -> None:
    """Raise UserError if the command line asks for something that was settled by the export."""
    for key, flags in FIXED_BY_EXPORT.items():
        origin = resolved[key].origin
        if origin in (f"-o {key}", *flags):
            raise UserError(
                f"{origin}: {path} is computed by ONNX Runtime, in the precision and with the weights that it was "
                "exported with; leave it out"
            )


def build_exported(
    path: str, cfg: Config, model: str, arch: Any, fields: Sequence[Field], world: World
) -> tuple[Plan, Any, onnx_file.OnnxFile]:
    """Load an exported model, to predict.

    Args:
        path: of its file.
        cfg: the recipe.
        model: name of the model.
        arch: its complete architecture.
        fields: of a training sample of the data set; the model's input comes first.
        world: of zoo.trainer.onnx.

    Returns:
        The plan, an OnnxModel, and the file.

    Raises:
        UserError: the file is not readable, or is that of another model or architecture.
    """
    file = onnx_file.read(path)
    _check_graph(file, model, arch)
    plan = Plan(
        fields=tuple(fields),
        dropout_masks=(),
        param_group=lambda name: ParamGroup(0.0, 0.0),  # nothing is trained
        mode=Mode(file.metadata.precision, None, False, False),
        output=tasks.load_task(load_spec(model).TASK).output(cfg.task),
        seed=cfg.seed,
        eval_mixed=True,  # in the precision of the export
    )
    return plan, load_onnx_backend().OnnxModel(file, arch, plan, world), file


def _parse(record: dict[str, Any], origin: str) -> tuple[dict[str, Any], loader.Entries]:
    """Return a record with its classes as a tuple, and its recipe. origin: the file of the record."""
    with parsing(f"{origin} lacks a valid recipe or list of classes", "use another checkpoint of the run"):
        entries = loader.parse_recorded(record["recipe"], origin)
        return {**record, "classes": tuple(map(str, record["classes"]))}, entries


def _shown_by_tensors(record: recorded.Recorded) -> dict[str, Any]:
    """Return the options of a checkpoint's model that decide its tensors."""
    from zoo.weights.conversion import NOT_IN_TENSORS, OPTIONS

    keys = set(OPTIONS.get(record.model or "", ())) - set(NOT_IN_TENSORS.get(record.model or "", ()))
    return {key: value for key, value in record.arch.items() if key in keys}


def _check_model(
    tensors: Mapping[str, np.ndarray],
    initialized: Mapping[str, np.ndarray],
    spec: Spec,
    record: recorded.Recorded,
    path: str,
) -> None:
    """Refuse the tensors of another model in one line; single differences are listed later."""
    from zoo.weights.conversion import default_model
    from zoo.weights.names import COUNTER

    foreign = [name for name in tensors if name not in initialized]
    if not record.model and (len(foreign) == len(tensors) or any(name.endswith(COUNTER) for name in foreign)):
        raise UserError(
            f"{path} has the names of another project, such as {foreign[0]}; convert it first: "
            f"zoo convert {path} --out NAME.safetensors"
        )
    found = record.model or default_model("canonical", tensors)
    names = [name for name in tensors if not spec.is_head(name)]
    equal = sum(name in initialized and tensors[name].shape == initialized[name].shape for name in names)
    if 2 * equal < len(names) or load_spec(found).TASK != spec.TASK:
        raise UserError(
            f"{path} holds a model of the kind {found} that is not this recipe's: {equal} of its {len(names)} tensors "
            "fit; give its own recipe with -c, or other weights"
        )


def _check_arch(options: Mapping[str, Any], arch: Any, path: str) -> None:
    """Refuse weights for an option which a run cannot change, such as the depth or a shift's direction."""
    for key, value in options.items():
        current = plain(getattr(arch, key, value))
        if key != "num_classes" and key not in CHANGEABLE and current != value:
            option = f"model.{key}={str(value).replace(' ', '')}"
            raise UserError(f"{path} is for {option}, the recipe has {current}; give -o {option}")


def _warn_of_other_arch(options: Mapping[str, Any], arch: Any, path: str, print_line: Print) -> None:
    """Warn when the model does not compute exactly what that of the weights does."""
    for key, value in options.items():
        current = plain(getattr(arch, key, WITHOUT_OPTION.get(key, value)))
        if key != "num_classes" and value is not None and current != value:
            option = f"model.{key}={str(value).replace(' ', '')}"
            remedy = f"give -o {option}" if hasattr(arch, key) else "there is no such option for this model"
            print_line(f"warning: {path} is for {option}, the recipe has {current}; {remedy}")


def warn_of_other_preprocessing(settings: Mapping[str, Any], cfg: Config, path: str, print_line: Print) -> None:
    """Warn when samples are not prepared as those that the weights were trained on."""
    for key, value in settings.items():
        current = plain(getattr(cfg.data, key, value))
        if current != value:
            option, other = f"data.{key}={json.dumps(value)}", json.dumps(current)
            print_line(f"warning: {path} was trained with {option}, the recipe has {other}; give -o {option}")


def warn_of_other_classes(recorded: Sequence[str], current: Sequence[str], path: str, print_line: Print) -> None:
    """Warn when a label means another class than when the weights were trained."""
    for label, (before, now) in enumerate(zip(recorded, current)):
        if before != now:
            print_line(f"warning: class {label} is {now!r} in the data but was {before!r} when {path} was trained")
            return


def _merge(
    initialized: dict[str, np.ndarray],
    tensors: Mapping[str, np.ndarray],
    is_fresh: Callable[[str], bool],
    path: str,
    print_line: Print,
) -> dict[str, np.ndarray]:
    hint = "\n  no classifier, or another number of classes? -o fresh_head=true starts with a new classifier"
    merged = merge(initialized, tensors, is_fresh, path, hint)
    fresh = sum(map(is_fresh, initialized))
    print_line(f"weights: {len(initialized) - fresh} tensors from {path}, {fresh} newly initialized")
    return merged


def _check_graph(file: onnx_file.OnnxFile, model: str, arch: Any) -> None:
    """Refuse a recipe for another model than that of the graph, in which every option is fixed."""
    metadata = file.metadata
    if metadata.model != model:
        raise UserError(f"{file.path} holds a {metadata.model}, this recipe has a {model}; leave out -c and model.name")
    skipped = (*MODEL_TRAINING_KEYS, *(("num_classes",) if load_spec(model).SHARDED_PARAMETERS else ()))
    for key, value in asdict(arch).items():
        fixed = metadata.arch.get(key, plain(value))
        if key not in skipped and plain(value) != fixed:
            raise UserError(
                f"{file.path} is for model.{key}={str(fixed)[:100]}, and these settings give {plain(value)}; give the "
                "settings that it was exported with, or export the checkpoint with others"
            )
