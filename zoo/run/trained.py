"""Trained models: a checkpoint or an exported model with its recipe, class names and weights, without the data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from zoo.config import loader
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.data.errors import UserError
from zoo.models import Spec, load_spec, resolve_arch
from zoo.predict.results import TrainedModel
from zoo.run import cli, weights
from zoo.run.checkpoint import has_averages, model_file
from zoo.run.job import build_trainer
from zoo.trainer import load_backend, load_onnx_backend
from zoo.trainer.plan import Mode
from zoo.trainer.protocol import Inference
from zoo.trainer.world import Launch
from zoo.weights import files, onnx_file
from zoo.weights.match import require_match


def read_checkpoint(
    path: str, framework: str | None, device: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], Config, loader.Entries]:
    """Read the record of a checkpoint folder or an exported model, and its recipe, changed by the user's options.

    Args:
        path: of the folder or the .onnx file.
        framework: that computes, default torch; none for an exported model.
        device: as for train.py.
        overrides: `key=value` pairs.

    Raises:
        UserError: there is no checkpoint or its record is incomplete, or an option is wrong.
    """
    record, entries = weights.read_recipe(path)
    flags = {"device": loader.Entry(device, "--device")}
    if framework or not onnx_file.is_onnx(path):
        flags["framework"] = loader.Entry(framework or "torch", "--framework")
    cfg, resolved = loader.build({**entries, **flags, **loader.overrides(overrides)}, cli.FIND)
    if onnx_file.is_onnx(path):
        weights.check_exported_settings(path, resolved)
    return record, cfg, resolved


def resolve(spec: Spec, arch: Any, fields: Sequence[Field], classes: int) -> Any:
    """Complete an architecture for predictions, which need one row of a class matrix at most."""
    if spec.SHARDED_PARAMETERS:
        return resolve_arch(spec, replace(arch, num_classes=1), fields, 0)
    return resolve_arch(spec, arch, fields, classes)


def load(
    path: str, record: dict[str, Any], cfg: Config, name: str, fields: tuple[Field, ...], raw: bool = False
) -> TrainedModel:
    """Load a checkpoint or an exported model to predict with it, without data.

    Args:
        path: of the folder or the .onnx file.
        record: as read_checkpoint returns it.
        cfg: the recipe, likewise.
        name: of the model.
        fields: of a training sample.
        raw: the weights of the last update, also where there is their moving average.

    Raises:
        UserError: the weights do not match the model, or the device or what computes is missing.
    """
    spec, classes = load_spec(name), record["classes"]
    arch = resolve(spec, cfg.model, fields, len(classes))
    load_inference = _load_exported if onnx_file.is_onnx(path) else _load_checkpoint
    inference, facts = load_inference(path, cfg, name, arch, fields, raw)
    unnamed = tuple(f"class {label}" for label in range(len(classes), arch.num_classes))
    class_names = () if spec.SHARDED_PARAMETERS else classes + unnamed
    metadata = {
        "weights": path,
        "averaged": has_averages(path) and not raw,
        "step": record["step"],
        "model": name,
        "task": spec.TASK,
        **facts,
        "classes": class_names,
    }
    return TrainedModel(cfg, inference, class_names, metadata)


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


def _load_checkpoint(
    path: str, cfg: Config, name: str, arch: Any, fields: tuple[Field, ...], raw: bool
) -> tuple[Inference, dict[str, str]]:
    """Build a model as a run does, but for fp32, and load the weights of a checkpoint."""
    world = load_backend(cfg.framework).start(Launch(), cfg.device)
    # A mode of torch.compile concerns training, and may need a GPU.
    mode = Mode("fp32", None, cfg.train.channels_last, cfg.train.compile and True)
    cfg = replace(cfg, train=replace(cfg.train, ema=None))  # one model, and not two
    _, trainer = build_trainer(cfg, name, arch, fields, world, mode)
    tensors = read_tensors(path, load_spec(name), raw)
    require_match(tensors, {param.name: param.shape for param in trainer.params}, path)
    trainer.load_state_dict(tensors)
    return trainer, {"framework": cfg.framework, "device": world.device}


def _load_exported(
    path: str, cfg: Config, name: str, arch: Any, fields: tuple[Field, ...], raw: bool
) -> tuple[Inference, dict[str, str]]:
    if raw:
        raise UserError(f"--raw: {path} has one kind of weights; leave it out")
    world = load_onnx_backend().start(Launch(), cfg.device)
    _, model, file = weights.build_exported(path, cfg, name, arch, fields, world)
    facts = {"framework": weights.ONNX, "precision": file.metadata.precision, "device": world.device}
    return model, facts
