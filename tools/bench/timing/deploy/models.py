"""Models at the size of their recipes, with initial weights: a checkpoint and its exported files."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from zoo.config import loader
from zoo.export import assembly, int8, source
from zoo.export.source import Source
from zoo.models import initializers, load_spec
from zoo.predict.predictors import find_predictor
from zoo.run import cli, trained
from zoo.run.checkpoint import save_checkpoint

CLASSES = {  # recipe -> classes of its data set; identities belong to a matrix that is not exported
    "tsm_k400": 400,
    "resnet50_imagenet": 1000,
    "deeplabv3plus_cityscapes": 19,
    "arcface_ms1m": 0,
}
STATISTICS = ("running_mean", "running_var")


class Sized(NamedTuple):
    """A model of a recipe.

    Attributes:
        recipe: its name.
        checkpoint: with initial weights.
        shape: of a sample, channels last.
        parameters: of the graph; without those that only training uses.
        flops: floating-point operations of a sample, 2 per multiply-add (zoo.models.flops).
    """

    recipe: str
    checkpoint: Source
    shape: tuple[int, ...]
    parameters: int
    flops: int


def build(recipe: str, overrides: Sequence[str], folder: str, classes: int | None = None) -> Sized:
    """Write the checkpoint of a recipe with initial weights.

    Args:
        recipe: its name.
        overrides: `key=value` pairs that change it.
        folder: that the checkpoint is written to.
        classes: of its data set; None for those of CLASSES.

    Raises:
        UserError: a key or value is wrong.
    """
    request = cli.request(f"configs/{recipe}.yaml", overrides, device="cpu")
    cfg, model = request.config, request.resolved["model.name"].value
    spec, classes = load_spec(model), CLASSES[recipe] if classes is None else classes
    fields = find_predictor(spec.TASK, request.resolved["data.name"].value).fields(cfg.data)
    arch = trained.resolve(spec, cfg.model, fields, classes)
    tensors = {
        name: initializers.initialize(spec.initializer(arch, name, shape), cfg.seed, name, shape)
        for name, shape in spec.shapes(arch).items()
    }
    record = {
        "classes": [f"class {number}" for number in range(classes)],
        "recipe": loader.render(request.resolved),
    }
    path = save_checkpoint(os.path.join(folder, recipe), 0, tensors, record, 1)
    checkpoint = source.read(path, "torch", "cpu", (), False)
    predicts = replace(arch, auxiliary=False) if hasattr(arch, "auxiliary") else arch
    parameters = sum(
        math.prod(size)
        for name, size in spec.shapes(predicts).items()
        if name not in spec.SHARDED_PARAMETERS and not name.endswith(STATISTICS)
    )
    return Sized(recipe, checkpoint, fields[0].shape, parameters, spec.flops(predicts, fields[0].shape))


def export(sized: Sized, precision: str, path: str) -> str:
    """Write the graph of a model, fp32 or int8; return its path.

    An int8 graph is calibrated with random numbers: how long it takes does not depend on the ranges.
    """
    checkpoint, shape = sized.checkpoint, sized.shape
    model = assembly.build(checkpoint, shape, False, folded=precision == "int8")
    if precision == "int8":
        channels_first = (*shape[:-3], shape[-1], *shape[-3:-1])
        model = int8.convert(model, [np.random.default_rng(0).standard_normal((1, *channels_first), np.float32)])
    opset = model.opset_import[0].version
    facts = dict(protocol="", precision=precision, opset=opset, max_difference=0.0)
    assembly.attach(model, assembly.describe(checkpoint, shape, False, **facts))
    with open(path, "xb") as file:
        file.write(model.SerializeToString())
    return path
