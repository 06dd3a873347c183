"""Cases, weights and inputs that tests/golden/deeplab.npz was recorded with; uses no framework."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tests.helpers.paths import GOLDEN
from tests.zoo.models.tsm import golden
from tests.zoo.models.tsm.golden import relative
from zoo.tasks.segment import IGNORE_INDEX, Settings

CLASSES, NUM_IMAGES = 19, 2
R18 = dict(depth=18, head_width=128, low_width=12, aux_width=64)
D16 = dict(depth=101, output_stride=16, multi_grid=(1, 2, 4), rates=(6, 12, 18))


class Case(NamedTuple):
    options: dict  # of zoo.models.deeplabv3plus.spec.Arch, beside num_classes and dropout
    size: tuple[int, int]  # of the images; below 289 pixels the dilation 36 reaches nothing but padding


CASES = {
    "r50": Case(dict(depth=50), (64, 128)),
    "r50_odd": Case(dict(depth=50), (65, 129)),
    "r50_aligned": Case(dict(depth=50, align_corners=True), (65, 129)),
    "r50b": Case(dict(depth=50, stem="plain"), (64, 128)),
    "r101": Case(dict(depth=101), (64, 128)),
    "r101_d16": Case(D16, (64, 128)),
    "r18": Case(R18, (32, 304)),
    "vd50": Case(dict(variant="paddleseg", depth=50), (64, 128)),
}
LOSSES = {  # recorded for every case; those with hard example mining for OHEM_CASE alone
    "valid": Settings(average="valid"),
    "all": Settings(average="all"),
    "ohem_probability": Settings(average="all", ohem_kept=100, ohem_threshold=0.7),  # the threshold selects the pixels
    "ohem_both": Settings(average="all", ohem_kept=6000, ohem_threshold=0.05),  # the number to keep selects them
    "ohem_count": Settings(average="all", ohem_kept=1500),  # without a threshold
}
OHEM_CASE = "r18"
# every n-th channel's running statistics after one training forward
RECORDED_STATISTICS = {
    "backbone.bn1": 4,
    "backbone.layer4.1.bn1": 32,
    "head.image_pool.bn": 16,
    "head.aspp.3.depthwise.bn": 64,
    "head.fuse.1.pointwise.bn": 16,
    "aux.project.bn": 16,
}
STEPS = {"eval": 31, "train": 31, "aux": 31, "resized": 397, "feature": 499}  # every n-th value is recorded
TOLERANCE = 1e-5  # of float32 against what was recorded in float64


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 weights that are a function of the canonical name and the shape, and neutral nowhere.

    Normalizations have positive biases, so that ReLUs cut less: each that cuts one half makes float32's rounding a
    fifth larger, and up to a hundred follow each other. Classifiers are sharp: some pixels are easy, others are not.
    """
    values = golden.drawn(name, shape)
    if name.endswith("classifier.weight"):
        return values * np.float32(3)
    if name.endswith(".bias") and not name.endswith(("classifier.bias", "conv.bias", "bn3.bias")):
        return values + np.float32(1)
    return values


def input_images(case: str) -> np.ndarray:
    """Return images (2, 3, H, W) float32.

    The second one is brighter and has more contrast: the image pooling normalizes the means of the two images, which
    must not be close to each other.
    """
    rng = np.random.default_rng(2018)
    noise = rng.standard_normal((NUM_IMAGES, 3, *CASES[case].size), dtype=np.float32)
    return noise * np.float32([0.8, 1.4])[:, None, None, None] + np.float32([-0.5, 0.5])[:, None, None, None]


def labels(case: str) -> np.ndarray:
    """Return labels (2, H, W) uint8, of which a fifth is ignored, more in the second image than in the first."""
    rng = np.random.default_rng(2016)
    height, width = CASES[case].size
    classes = rng.integers(0, CLASSES, (NUM_IMAGES, height, width), dtype=np.uint8)
    is_ignored = rng.random(classes.shape) < np.float64([0.1, 0.3])[:, None, None]
    return np.where(is_ignored, np.uint8(IGNORE_INDEX), classes)


def recorded() -> dict[str, np.ndarray]:
    """Return the recorded arrays."""
    with np.load(GOLDEN / "deeplab.npz") as arrays:
        return dict(arrays)


def thinned(kind: str, array: np.ndarray) -> np.ndarray:
    """Return the values of an array that are recorded."""
    return array.reshape(-1)[:: STEPS[kind]]


def differences(case: str, outputs: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> dict[str, float]:
    """Return relative differences from the record for input_images().

    Args:
        case: key of CASES.
        outputs: any of `eval`, `train` and `aux`, the logits of the heads before they are resized, and `resized`, the
            output in evaluation.
        state: all tensors after one training forward pass; {} compares none.
    """
    golden = recorded()
    measured = {kind: relative(thinned(kind, array), golden[f"{case}/{kind}"]) for kind, array in outputs.items()}
    for norm, step in RECORDED_STATISTICS.items():
        for name in (f"{norm}.running_mean", f"{norm}.running_var"):
            if state and f"{case}/{name}" in golden:
                measured[name] = relative(state[name][::step], golden[f"{case}/{name}"])
    return measured


def losses(case: str) -> Iterator[tuple[str, Settings, float]]:
    """Yield (name, settings, recorded value) of the training forward pass, without and with the auxiliary head."""
    golden = recorded()
    for name, settings in LOSSES.items():
        if f"{case}/loss_{name}" in golden:
            main, *auxiliary = golden[f"{case}/loss_{name}"]
            yield name, replace(settings, aux_weight=0.0), main
            if auxiliary:
                yield f"{name} with aux", settings, main + auxiliary[0]
