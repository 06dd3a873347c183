"""Trained models: a checkpoint or an exported model with its recipe, class names and weights, without the data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from zoo.config import loader
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.data.errors import Option, UserError
from zoo.data.formats.class_names import readable
from zoo.models import Spec, load_spec, resolve_arch
from zoo.predict.predictors import Predictor, find_predictor
from zoo.predict.results import TrainedModel
from zoo.run import exported, hub
from zoo.run.job import build_trainer
from zoo.run.recorded_recipe import read_recipe
from zoo.run.request import FIND
from zoo.tasks import load_task
from zoo.trainer import load_backend
from zoo.trainer.plan import Mode
from zoo.trainer.protocol import Trainer
from zoo.trainer.world import Launch, World
from zoo.weights import files, recorded
from zoo.weights.match import require_match, require_usable
from zoo.weights.recorded import has_averages, model_file


@dataclass(frozen=True)
class Trained:
    """A checkpoint or an exported model.

    Attributes:
        raw: whether the weights of the last update count, also where there is their moving average.
        record: of the checkpoint: `classes`, `step`.
        cfg: its recipe, changed by the user's options.
        spec, arch: of the model; of a class matrix there is one row, on which no prediction depends.
        predictor: how the model is applied to files and arrays.
        fields: of a training sample; the model's input comes first.
        class_names: of the outputs, in order; empty for faces.
    """

    path: str
    raw: bool
    record: dict[str, Any]
    cfg: Config
    resolved: loader.Entries
    model: str
    dataset: str
    spec: Spec
    arch: Any
    predictor: Predictor
    fields: tuple[Field, ...]
    class_names: tuple[str, ...]

    @property
    def file(self) -> str:
        return model_file(self.path, self.raw)

    @property
    def is_averaged(self) -> bool:
        return has_averages(self.path) and not self.raw

    @property
    def thresholds(self) -> dict[str, float]:
        """Those of TrainedModel, of the evaluation of a checkpoint or from an exported file."""
        found = recorded.evaluation(self.path)
        own = (found.get("ema", {}) if self.is_averaged else found).get("thresholds", {})
        return own or self.record.get("thresholds", {})

    @cached_property
    def tensors(self) -> dict[str, np.ndarray]:
        """The weights and running statistics of a checkpoint by canonical name.

        A class matrix has a row per class and may be larger than the memory; the first row is read.
        """
        rows: dict[str, files.RowRange] = {}
        if self.spec.SHARDED_PARAMETERS:
            shapes = {key: tensor.shape for key, tensor in files.read_shapes(self.file).items()}
            rows = {key: (shapes[key][0], 0, 1) for key in self.spec.SHARDED_PARAMETERS if key in shapes}
        tensors = files.read(self.file, rows)[0]
        require_match(tensors, self.spec.shapes(self.arch), self.path)
        require_usable(tensors, self.path)
        return tensors

    def load(self, scores: bool = False) -> TrainedModel:
        """Build the model to predict in fp32, or as it was exported.

        Args:
            scores: let a model of scenes give the probabilities of all classes.
        """
        cfg, head = self.cfg, {}
        if files.is_onnx(self.path):
            if self.raw:
                raise UserError(Option("--raw", True), f": {self.path} has one kind of weights; leave it out")
            world = exported.start(Launch(), cfg.device)
            _, inference, file = exported.build(self.path, cfg, self.model, self.arch, self.fields, world)
            facts = {"framework": exported.ONNX, "precision": file.metadata.precision, "device": world.device}
        else:
            output = load_task(cfg.task.task).output(cfg.task)
            if scores and self.spec.TASK == "segment":
                output = replace(output, probabilities=True)
            inference, world = self.build(output)
            head = {name: array for name, array in self.tensors.items() if self.spec.is_head(name)}
            facts = {"framework": cfg.framework, "device": world.device}
        metadata = {"weights": self.path, "averaged": self.is_averaged, "step": self.record["step"]}
        metadata |= {"model": self.model, "task": cfg.task.task, **facts, "classes": self.class_names}
        return TrainedModel(self.cfg, inference, self.class_names, metadata, head, self.thresholds)

    def build(self, output: Any, **train: Any) -> tuple[Trainer, World]:
        """Build the model as an evaluation in fp32 does, and load the weights.

        Args:
            output: specification of what `predict` returns.
            train: changes of section `train`.
        """
        cfg = replace(self.cfg, train=replace(self.cfg.train, ema=None, **train))  # one model, and not two
        world = load_backend(cfg.framework).start(Launch(), cfg.device)
        # A mode of torch.compile concerns training, and may need a GPU.
        mode = Mode("fp32", None, cfg.train.channels_last, cfg.train.compile and True)
        _, trainer = build_trainer(cfg, self.model, self.arch, self.fields, world, mode, output=output)
        trainer.load_state_dict(self.tensors)
        return trainer, world


def read(path: str, framework: str | None, device: str, overrides: Sequence[str], raw: bool = False) -> Trained:
    """Read the record of a checkpoint folder or an exported model, and its recipe, changed by the user's options.

    Args:
        path: of the folder or the .onnx file, or a name of published weights.
        framework: that computes, default torch; none for an exported model.
        overrides: `key=value` pairs.
        raw: take the weights of the last update, also where there is their moving average.
    """
    path = recorded.resolve_pointer(hub.resolve(path))
    record, entries = read_recipe(path)
    flags = {"device": loader.Entry(device, Option("--device"))}
    if framework or not files.is_onnx(path):
        flags["framework"] = loader.Entry(framework or "torch", Option("--framework"))
    cfg, resolved = loader.build({**entries, **flags, **loader.overrides(overrides)}, FIND)
    if files.is_onnx(path):
        exported.check_settings(path, resolved)
    model, dataset, classes = resolved["model.name"].value, resolved["data.name"].value, record["classes"]
    spec = load_spec(model)
    predictor = find_predictor(cfg.task.task, dataset)
    fields = predictor.fields(cfg.data)
    arch = resolve(spec, cfg.model, fields, len(classes))
    names = () if spec.SHARDED_PARAMETERS else record["names"] or readable(classes)
    names += () if spec.SHARDED_PARAMETERS else tuple(f"class {label}" for label in range(len(names), arch.num_classes))
    return Trained(path, raw, record, cfg, resolved, model, dataset, spec, arch, predictor, fields, names)


def resolve(spec: Spec, arch: Any, fields: Sequence[Field], classes: int) -> Any:
    """Complete an architecture for predictions, which need one row of a class matrix at most."""
    if spec.SHARDED_PARAMETERS:
        return resolve_arch(spec, replace(arch, num_classes=1), fields, 0)
    return resolve_arch(spec, arch, fields, classes)
