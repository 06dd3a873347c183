"""The tensors a run starts from: drawn, published ImageNet weights, or a checkpoint of the zoo."""

import json
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from data.errors import UserError
from zoo.config.schema import Config
from zoo.models import initializers
from zoo.run.checkpoint import latest, load_checkpoint
from zoo.run.job import Job
from zoo.trainer.protocol import Param
from zoo.weights import files, imagenet
from zoo.weights.match import match


def restore(cfg: Config, job: Job, resume: str | None, say: Callable[[str], None]) -> tuple[int, str]:
    """Fill the trainer: from the last checkpoint of the run to resume, else with its initial weights.

    The updates done so far, and in words where the weights once came from. One process per machine goes first: it may
    have to fetch a file. Raises UserError with a report if a file does not hold exactly what the net needs.
    """
    goes_first = job.group.launch.local_rank == 0
    found = _restore(cfg, job, resume, say) if goes_first else None
    job.group.all_gather(None)
    return found or _restore(cfg, job, resume, say)


def _restore(cfg: Config, job: Job, resume: str | None, say: Callable[[str], None]) -> tuple[int, str]:
    path = latest(resume) if resume else None
    if path is None:
        tensors, origin = initial(cfg, job.spec, job.arch, job.trainer.params, job.val_set.classes, say)
        job.trainer.load_state_dict(tensors)
        return 0, origin
    split = {param.name: param for param in job.trainer.params if param.rows}
    held = job.trainer.state_dict()
    owners = {name: split.get(name.rpartition("/")[2]) for name in held}
    tensors, record = load_checkpoint(path, {name: _rows(param) for name, param in owners.items() if param})
    report = match(tensors, {name: array.shape for name, array in held.items()})
    if not report.complete:
        raise UserError(f"{path} does not fit this net:\n{report}")
    if record["global_batch"] != job.clock.global_batch:
        raise UserError(
            f"--resume: {path} was written with a global batch of {record['global_batch']}, now it "
            f"is {job.clock.global_batch}: the samples would not go on where they stopped; set "
            "train.batch and train.accumulate so that batch x accumulate x processes is the same, or say "
            "--global-batch keep"
        )
    _compare_classes(record["classes"], job.val_set.classes, path, say)
    job.trainer.load_state_dict(tensors)
    return record["step"], record["weights"]


def initial(
    cfg: Config,
    spec: ModuleType,
    arch: Any,
    params: Sequence[Param],
    classes: Sequence[str],
    say: Callable[[str], None],
) -> tuple[dict[str, np.ndarray], str]:
    """Every parameter and running statistic by canonical name, and where they come from, in words.

    Raises UserError with a report if a file does not hold exactly what the net needs.
    """
    drawn = {
        param.name: initializers.initialize(
            spec.initializer(arch, param.name, param.shape), cfg.seed, param.name, param.shape, param.rows
        )
        for param in params
    }
    if cfg.weights:
        path = model_file(cfg.weights)
        tensors, metadata = files.read(path, {param.name: _rows(param) for param in params if param.rows})
        _compare_arch(json.loads(metadata.get("arch", "{}")), cfg.model, path)
        if "classes" in metadata and not cfg.fresh_head:
            _compare_classes(json.loads(metadata["classes"]), classes, path, say)
        merged = _merge(drawn, tensors, lambda name: cfg.fresh_head and spec.is_head(name), path, say)
        return merged, f"{path}, sha256 {files.sha256(path)}"
    if getattr(cfg.model, "pretrained", None) == "imagenet":
        path, origin = imagenet.find(cfg.model.depth, cfg.weights_dir, imagenet.kind(cfg.model))
        tensors = imagenet.named(files.read(path)[0], drawn)
        return _merge(drawn, tensors, spec.not_pretrained, path, say), f"{origin}, {path}"
    return drawn, f"drawn from seed {cfg.seed}"


def _rows(param: Param) -> files.Rows:
    return (param.shape[0], *param.rows)


def model_file(path: str) -> str:
    """The weights of a checkpoint folder, or the file itself."""
    return os.path.join(path, "model.safetensors") if os.path.isdir(path) else path


def _compare_arch(stated: dict[str, Any], arch: Any, path: str) -> None:
    """Refuse weights that were converted for another option, which no shape would tell (the direction of a shift)."""
    for key, value in stated.items():
        mine = getattr(arch, key, value)
        mine = list(mine) if isinstance(mine, tuple) else mine  # as JSON has it
        if key != "num_classes" and mine != value:
            given = str(value).replace(" ", "")
            raise UserError(f"{path} is for model.{key}={given}, the recipe says {mine}; give -o model.{key}={given}")


def _compare_classes(old: Sequence[str], new: Sequence[str], path: str, say: Callable[[str], None]) -> None:
    """Warn when a label no longer means what it meant when the weights were trained."""
    for label, (before, now) in enumerate(zip(old, new)):
        if before != now:
            say(f"warning: class {label} is {now!r} in the data but was {before!r} when {path} was trained")
            return


def _merge(
    drawn: dict[str, np.ndarray],
    tensors: dict[str, np.ndarray],
    fresh: Callable[[str], bool],
    path: str,
    say: Callable[[str], None],
) -> dict[str, np.ndarray]:
    """The file's tensors, strictly; names that are to be fresh stay as drawn."""
    wanted = {name: array.shape for name, array in drawn.items() if not fresh(name)}
    kept = {name: array for name, array in tensors.items() if not fresh(name)}
    report = match(kept, wanted)
    if not report.complete:
        raise UserError(
            f"{path} does not fit this net:\n{report}\n  another number of classes? "
            "-o fresh_head=true starts with a new classifier"
        )
    say(f"weights: {len(wanted)} tensors from {path}, {len(drawn) - len(wanted)} drawn anew")
    return {**drawn, **kept}
