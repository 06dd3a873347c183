"""What was recorded from the upstream of each recipe, tests/golden/upstream_*.npz, and its comparison."""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tests.helpers.paths import CONFIGS, GOLDEN
from zoo.config import loader
from zoo.config.schema import Config
from zoo.models import Spec, load_spec
from zoo.run.request import FIND
from zoo.weights.names import canonical_name

PLSC_BLOCKS = 24  # of its ResNet50


class Recorded(NamedTuple):
    """Where a recipe's recorded values are, and the published run that they belong to."""

    file: str
    origin: str  # of the tensors' names
    classes: int
    samples: int  # of the training split
    processes: int


CITYSCAPES = Recorded("mmseg", "mmseg", 19, 2975, 4)
MS1MV2 = Recorded("plsc", "plsc", 85742, 5822653, 8)
RECORDED = {
    "deeplabv3plus_cityscapes": CITYSCAPES,
    "deeplabv3plus_cityscapes_769": CITYSCAPES,
    "resnet50_imagenet": Recorded("nvidia", "canonical", 1000, 1281167, 8),
    "resnet50_imagenet_v1": Recorded("torchvision", "canonical", 1000, 1281167, 8),
    "arcface_ms1m": MS1MV2,
    "arcface_synthetic": MS1MV2,
    "arcface_glint360k": Recorded("insightface", "canonical", 360232, 17091657, 8),
}


class Recipe(NamedTuple):
    """A recipe, its model, and what was recorded from its upstream."""

    config: Config
    spec: Spec
    arch: Any
    recorded: Recorded
    values: dict[str, np.ndarray]

    def canonical(self, name: str) -> str:
        """Return the canonical name of upstream's tensor."""
        return canonical_name(str(name), self.recorded.origin, PLSC_BLOCKS)

    def parameters(self) -> set[str]:
        """Return the names of the model's parameters, those of the objective included."""
        return {name for name in self.spec.shapes(self.arch) if ".running_" not in name}


@cache
def recipe(name: str) -> Recipe:
    """Return a recipe whose model is initialized without pretrained weights."""
    entries = loader.read(str(CONFIGS / f"{name}.yaml"))
    config, recorded = loader.build(entries, FIND)[0], RECORDED[name]
    with np.load(GOLDEN / f"upstream_{recorded.file}.npz") as file:
        values = {key: file[key] for key in file.files}
    arch = replace(config.model, num_classes=recorded.classes)
    return Recipe(config, load_spec(str(entries["model.name"].value)), arch, recorded, values)


def check(what: str, value: Any, expected: Any, limit: float) -> None:
    """Check that no value differs by more than `limit` times the largest expected one; print the largest difference.

    `pytest -rP` shows what was printed.
    """
    value, expected = np.asarray(value, np.float64), np.asarray(expected, np.float64)
    difference = np.abs(value - expected).max() / np.abs(expected).max()
    print(f"{what}: {difference:.1e} of the largest value, limit {limit:.0e}")
    assert value.shape == expected.shape and difference <= limit, f"{what}: {difference:.3e}"
