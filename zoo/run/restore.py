"""The tensors a run starts from: initial values, ImageNet weights, a weights file, or a checkpoint of the run."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from zoo.config.convert import plain
from zoo.config.schema import Config
from zoo.data.errors import UserError
from zoo.models import Spec, initializers, load_spec
from zoo.run import exported
from zoo.run.checkpoint import has_averages, latest, load_checkpoint, model_file
from zoo.run.job import Job
from zoo.trainer import state
from zoo.trainer.loss_scale import SCALE_KEY
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import Param
from zoo.weights import files, imagenet, recorded
from zoo.weights.conversion import NOT_IN_TENSORS, OPTIONS, default_model
from zoo.weights.match import merge, require_match

Print = Callable[[str], None]
# Options of converted weights that a run may change, with a warning.
CHANGEABLE = ("padding", "bn_eps", "dilate", "shift_place", "temporal_pool")
WITHOUT_OPTION = {"padding": "symmetric", "bn_eps": 1e-5}  # what models compute that lack the option


def restore(cfg: Config, job: Job, resume: str | None, print_line: Print, eval_only: bool = False) -> tuple[int, str]:
    """Load the tensors of the last checkpoint of the run to resume, or else the initial ones; called by all ranks.

    One process per machine goes first, because it may have to download a file.

    Args:
        cfg: the recipe.
        job: its trainer receives the tensors.
        resume: folder of the run to continue, None for a new run.
        print_line: receives lines for the console.
        eval_only: whether the weights are evaluated only: of a checkpoint with moving averages both kinds.

    Returns:
        The updates done so far, and the origin of the weights, in words.

    Raises:
        UserError: a file does not hold exactly the tensors of the model; the message lists the differences.
    """
    graph = exported.path_of(cfg)
    if graph:
        return 0, _describe_exported(graph, cfg, job, print_line)
    goes_first = job.group.launch.local_rank == 0
    restored = _restore(cfg, job, resume, print_line, eval_only) if goes_first else None
    job.group.all_gather(None)
    return restored or _restore(cfg, job, resume, print_line, eval_only)


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
        _check_arch(recorded.options(path, metadata, "arch") or _shown_by_tensors(record), cfg.model, path)
        _check_model(tensors, initialized, spec, record, path)
        _warn_of_other_arch(record.arch, cfg.model, path, print_line)
        _warn_of_other_preprocessing(record.data, cfg, path, print_line)
        if "classes" in metadata and not cfg.fresh_head:
            _warn_of_other_classes(recorded.texts(path, metadata, "classes"), classes, path, print_line)
        merged = _merge(initialized, tensors, lambda name: cfg.fresh_head and spec.is_head(name), path, print_line)
        return merged, f"{path}, sha256 {files.sha256(path)}"
    if getattr(cfg.model, "pretrained", None) == "imagenet":
        depth = getattr(cfg.model, "depth", None)
        path, origin = imagenet.find_weights(depth, cfg.weights_dir, imagenet.variant_of(cfg.model))
        tensors = imagenet.add_backbone_prefix(files.read(path)[0], initialized)
        return _merge(initialized, tensors, spec.not_pretrained, path, print_line), f"{origin}, {path}"
    return initialized, f"initialized from seed {cfg.seed}"


def averages_note(path: str) -> str:
    """Return a line for those who load the weights of a checkpoint that has moving averages."""
    return f"weights: the moving average (EMA) in {path}; those of its last update: {model_file(path, raw=True)}"


def _restore(cfg: Config, job: Job, resume: str | None, print_line: Print, eval_only: bool = False) -> tuple[int, str]:
    path = latest(resume) if resume else None
    if path is None:
        tensors, origin = _start(cfg, job, print_line, eval_only)
        job.trainer.load_state_dict(tensors)
        return 0, origin
    sharded = {param.name: (param.shape[0], *param.rows) for param in job.trainer.params if param.rows}
    shapes = state.shapes(job.trainer.params, job.plan, job.trainer.statistics)
    rows = {}
    for name in (*shapes, *(f"momentum/{name}" for name in sharded)):
        parameter = name.rpartition("/")[2]  # optimizer/<slot>/<parameter> has its rows
        if parameter in sharded:
            rows[name] = sharded[parameter]
    loaded, record = load_checkpoint(path, rows)
    check_record(record, path)
    tensors = {state.current_key(name): array for name, array in loaded.items()}
    tensors = _switch_average(tensors, [param.name for param in job.trainer.params], job.plan, path, print_line)
    tensors, shapes = _match_statistics(tensors, shapes, path, print_line)
    require_match(tensors, shapes, path)
    if record["global_batch"] != job.clock.global_batch:
        raise UserError(
            f"--resume: {path} was written with a global batch of {record['global_batch']}, now it "
            f"is {job.clock.global_batch}: the samples would not continue where they stopped; set "
            "train.batch and train.accumulate so that batch x accumulate x processes is the same, or give "
            "--global-batch keep"
        )
    _warn_of_other_classes(record["classes"], job.val_set.classes, path, print_line)
    if not job.plan.adapts_scale:
        tensors[SCALE_KEY] = np.array(job.plan.first_scale, np.float32)  # perhaps not that of the checkpoint
    job.trainer.load_state_dict(tensors)
    return record["step"], record["weights"]


def _describe_exported(path: str, cfg: Config, job: Job, print_line: Print) -> str:
    """Return the origin of the weights of an exported model, which are in its graph; warn as for other weights."""
    record = recorded.read(path)
    _warn_of_other_preprocessing(record.data, cfg, path, print_line)
    _warn_of_other_classes(record.classes, job.val_set.classes, path, print_line)
    return f"{path}, sha256 {files.sha256(path)}"


def check_record(record: Mapping[str, Any], path: str) -> None:
    """Raise UserError if a checkpoint's record lacks what a run needs to go on."""
    classes = record.get("classes")
    if not isinstance(record.get("weights"), str) or type(record.get("global_batch")) is not int:
        raise UserError(f"{path}: {files.RECORD} lacks the weights or the global batch; use another checkpoint")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise UserError(f"{path}: {files.RECORD} lacks the names of the classes; use another checkpoint")


def _start(cfg: Config, job: Job, print_line: Print, eval_only: bool) -> tuple[dict[str, np.ndarray], str]:
    """Return the tensors of a new run, with moving averages where the plan has them, and the origin of the weights."""
    arguments = job.spec, job.arch, job.trainer.params, job.val_set.classes
    if not (eval_only and job.plan.ema and cfg.weights and has_averages(cfg.weights)):
        tensors, origin = initial(cfg, *arguments, print_line)
        return state.with_averages(tensors, job.plan), origin
    averages, _ = initial(cfg, *arguments, lambda line: None)
    tensors, origin = initial(replace(cfg, weights=model_file(cfg.weights, raw=True)), *arguments, print_line)
    print_line(f"weights: {cfg.weights} has a moving average (EMA) too, which is evaluated beside them")
    return {**tensors, **{state.ema_key(name): array for name, array in averages.items()}}, origin


def _switch_average(
    tensors: dict[str, np.ndarray], names: Sequence[str], plan: Plan, path: str, print_line: Print
) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint with moving averages if and only if the plan has them."""
    has_them = any(key.startswith(state.EMA_PREFIX) for key in tensors)
    if plan.ema and not has_them:
        print_line(f"train.ema: {path} has no moving average; it starts from these weights")
        return {**tensors, **{state.ema_key(name): tensors[name] for name in names if name in tensors}}
    if has_them and not plan.ema:
        print_line(f"train.ema is off: the moving average in {path} is dropped")
        return {key: array for key, array in tensors.items() if not key.startswith(state.EMA_PREFIX)}
    return tensors


def _match_statistics(
    tensors: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], path: str, print_line: Print
) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """Return a checkpoint and the trainer's shapes without running statistics of the loss that only one of them has."""
    found, needed = (
        sorted(key for key in keys if key.startswith(state.OBJECTIVE_PREFIX)) for keys in (tensors, shapes)
    )
    if needed and not found:
        print_line(f"{path} has no running statistics of the loss ({', '.join(needed)}): they start anew")
        return tensors, {key: shape for key, shape in shapes.items() if key not in needed}
    if found and not needed:
        print_line(f"this loss has no running statistics: those in {path} are dropped ({', '.join(found)})")
        return {key: array for key, array in tensors.items() if key not in found}, shapes
    return tensors, shapes


def _shown_by_tensors(record: recorded.Recorded) -> dict[str, Any]:
    """Return the options of a checkpoint's model that decide its tensors."""
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


def _warn_of_other_preprocessing(settings: Mapping[str, Any], cfg: Config, path: str, print_line: Print) -> None:
    """Warn when samples are not prepared as those that the weights were trained on."""
    for key, value in settings.items():
        current = plain(getattr(cfg.data, key, value))
        if current != value:
            option, other = f"data.{key}={json.dumps(value)}", json.dumps(current)
            print_line(f"warning: {path} was trained with {option}, the recipe has {other}; give -o {option}")


def _warn_of_other_classes(recorded: Sequence[str], current: Sequence[str], path: str, print_line: Print) -> None:
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
    hint = "\n  another number of classes? -o fresh_head=true starts with a new classifier"
    merged = merge(initialized, tensors, is_fresh, path, hint)
    fresh = sum(map(is_fresh, initialized))
    print_line(f"weights: {len(initialized) - fresh} tensors from {path}, {fresh} newly initialized")
    return merged
