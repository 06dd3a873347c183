"""What is exported: the checkpoint of a run in any framework, read without one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.config import loader
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.models import Spec, load_spec
from zoo.predict.predictors import find_predictor
from zoo.run import recorded_recipe, trained
from zoo.run.checkpoint import model_file
from zoo.weights.match import require_match


class Source(NamedTuple):
    """A checkpoint.

    Attributes:
        path: of its folder, as the user gave it.
        file: of its weights.
        record: of the checkpoint, with its class names.
        cfg: its recipe, changed by the user's options.
        recipe: the same as text.
        model, dataset: names.
        spec, arch: of the model.
        fields: of a training sample; the model's input comes first.
        tensors: weights and running statistics by canonical name.
        class_names: of the outputs, in order; empty for faces.
    """

    path: str
    file: str
    record: dict[str, Any]
    cfg: Config
    recipe: str
    model: str
    dataset: str
    spec: Spec
    arch: Any
    fields: tuple[Field, ...]
    tensors: dict[str, np.ndarray]
    class_names: tuple[str, ...]


def read(path: str, framework: str, device: str, overrides: Sequence[str], raw: bool) -> Source:
    """Read a checkpoint.

    Args:
        path: of its folder.
        framework, device: of the comparison.
        overrides: `key=value` pairs that change its recipe.
        raw: take the weights of the last update, also where there is their moving average.

    Raises:
        UserError: the folder is no checkpoint, an override is wrong, or the weights are not those of the model.
    """
    record, cfg, resolved = trained.read_checkpoint(path, framework, device, overrides)
    model, dataset = resolved["model.name"].value, resolved["data.name"].value
    spec, classes = load_spec(model), record["classes"]
    fields = find_predictor(spec.TASK, dataset).fields(cfg.data)
    arch = trained.resolve(spec, cfg.model, fields, len(classes))
    tensors = trained.read_tensors(path, spec, raw)
    require_match(tensors, spec.shapes(arch), path)
    unnamed = tuple(f"class {label}" for label in range(len(classes), arch.num_classes))
    recorded = recorded_recipe.read(path)[1]
    of_the_run: loader.Entries = {key: recorded[key] for key in ("framework", "device") if key in recorded}
    return Source(
        path=path,
        file=model_file(path, raw),
        record=record,
        cfg=cfg,
        recipe=loader.render({**resolved, **of_the_run}),
        model=model,
        dataset=dataset,
        spec=spec,
        arch=arch,
        fields=fields,
        tensors=tensors,
        class_names=() if spec.SHARDED_PARAMETERS else classes + unnamed,
    )
