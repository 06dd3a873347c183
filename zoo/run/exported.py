"""Exported models (.onnx) in place of a checkpoint: they are evaluated and predict, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from zoo import tasks
from zoo.config.convert import plain
from zoo.config.loader import Entry
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.data.errors import UserError
from zoo.models import load_spec
from zoo.trainer import load_onnx_backend
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.world import World
from zoo.weights import onnx_file
from zoo.weights.recorded import MODEL_TRAINING_KEYS

NAME = "onnx"  # of the back end, where that of a framework stands in records and messages
FLAGS = {  # key -> its flags
    "framework": ("--framework",),
    "train.precision": ("--amp", "--exact"),
    "train.eval_precision": (),
    "train.ema": (),
}


def path_of(cfg: Config) -> str | None:
    """Return the exported model that a recipe names as its weights; None if they are none."""
    return cfg.weights if onnx_file.is_onnx(cfg.weights) else None


def check_use(path: str, evaluates: bool, resume: str | None = None) -> None:
    """Raise UserError unless a run does nothing but evaluate an exported model."""
    if not evaluates:
        raise UserError(
            f"weights: {path} is an exported model, which can only predict: evaluate it with --eval-only, or train "
            "from the checkpoint that it was exported from"
        )
    if resume:
        raise UserError(f"--resume: evaluates the last checkpoint of {resume}, and --weights {path}; leave one out")


def check_settings(path: str, resolved: Mapping[str, Entry]) -> None:
    """Raise UserError if the command line asks for something that was settled by the export."""
    for key, flags in FLAGS.items():
        origin = resolved[key].origin
        if origin in (f"-o {key}", *flags):
            raise UserError(
                f"{origin}: {path} is computed by ONNX Runtime, in the precision and with the weights that it was "
                "exported with; leave it out"
            )


def build(
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
    _check_model(file, model, arch)
    plan = Plan(
        fields=tuple(fields),
        dropout_masks=(),
        param_group=lambda name: ParamGroup(0.0, 0.0),  # nothing is trained
        mode=Mode(file.metadata.precision, None, False, False),
        output=tasks.load_task(load_spec(model).TASK).output(cfg.task),
        seed=cfg.seed,
    )
    return plan, load_onnx_backend().OnnxModel(file, arch, plan, world), file


def _check_model(file: onnx_file.OnnxFile, model: str, arch: Any) -> None:
    """Refuse a recipe for another model than that of the graph, in which every option is fixed."""
    exported = file.metadata
    if exported.model != model:
        raise UserError(f"{file.path} holds a {exported.model}, this recipe has a {model}; leave out -c and model.name")
    skipped = (*MODEL_TRAINING_KEYS, *(("num_classes",) if load_spec(model).SHARDED_PARAMETERS else ()))
    for key, value in asdict(arch).items():
        fixed = exported.arch.get(key, plain(value))
        if key not in skipped and plain(value) != fixed:
            raise UserError(
                f"{file.path} is for model.{key}={str(fixed)[:100]}, and these settings give {plain(value)}; give the "
                "settings that it was exported with, or export the checkpoint with others"
            )
