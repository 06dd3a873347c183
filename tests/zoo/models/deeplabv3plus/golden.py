"""The recorded cases of tests/golden/deeplab.npz and what they were recorded from, without any framework."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tests.helpers.paths import GOLDEN
from tests.zoo.models.tsm import golden
from tests.zoo.models.tsm.golden import relative
from zoo.tasks.segment import IGNORE_INDEX, PixelCrossEntropy

CLASSES, PICTURES = 19, 2
R18 = dict(depth=18, head_width=128, low_width=12, aux_width=64)
D16 = dict(depth=101, output_stride=16, multi_grid=(1, 2, 4), rates=(6, 12, 18))


class Case(NamedTuple):
    options: dict  # of zoo.models.deeplabv3plus.spec.Arch, beside num_classes and dropout
    size: tuple[int, int]  # of the pictures; on fewer than 289 pixels the dilation 36 meets nothing but padding


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
LOSSES = {  # recorded for every case; those of mined pixels for MINED alone
    "valid": PixelCrossEntropy("valid"),
    "all": PixelCrossEntropy("all"),
    "ohem_probability": PixelCrossEntropy("all", kept=100, threshold=0.7),  # here the threshold decides,
    "ohem_both": PixelCrossEntropy("all", kept=6000, threshold=0.05),  # here the number to keep,
    "ohem_count": PixelCrossEntropy("all", kept=1500),  # and here there is no threshold
}
MINED = "r18"
# every n-th channel's running statistics after one training forward
WATCHED = {
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
    """Weights that hide nothing, a function of the canonical name and the shape alone, float32.

    Normalisations shift upwards, so that ReLUs cut less: each that cuts one half makes float32's rounding a fifth
    larger, and here are up to a hundred in a row. Classifiers are sharp: some pixels are easy, others are not.
    """
    values = golden.drawn(name, shape)
    if name.endswith("classifier.weight"):
        return values * np.float32(3)
    if name.endswith(".bias") and not name.endswith(("classifier.bias", "conv.bias", "bn3.bias")):
        return values + np.float32(1)
    return values


def pictures(case: str) -> np.ndarray:
    """(2, 3, H, W). The second is brighter and richer in contrast: their means, which the image pooling normalises over
    the two, must not be near each other."""
    rng = np.random.default_rng(2018)
    noise = rng.standard_normal((PICTURES, 3, *CASES[case].size), dtype=np.float32)
    return noise * np.float32([0.8, 1.4])[:, None, None, None] + np.float32([-0.5, 0.5])[:, None, None, None]


def labels(case: str) -> np.ndarray:
    """(2, H, W) uint8, a fifth of it ignored, more in the second picture than in the first."""
    rng = np.random.default_rng(2016)
    height, width = CASES[case].size
    found = rng.integers(0, CLASSES, (PICTURES, height, width), dtype=np.uint8)
    return np.where(rng.random(found.shape) < np.float64([0.1, 0.3])[:, None, None], np.uint8(IGNORE_INDEX), found)


def recorded() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "deeplab.npz") as arrays:
        return dict(arrays)


def thinned(kind: str, array: np.ndarray) -> np.ndarray:
    """What of an array is recorded."""
    return array.reshape(-1)[:: STEPS[kind]]


def differences(case: str, found: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> dict[str, float]:
    """What a net makes of pictures() against the record.

    found: `eval`, `train` and `aux`, the logits of the heads before they are resized, and `resized`, an evaluation's
    output; any of them may be left out. state: all tensors after one training forward; {} compares none.
    """
    golden = recorded()
    result = {kind: relative(thinned(kind, array), golden[f"{case}/{kind}"]) for kind, array in found.items()}
    for norm, step in WATCHED.items():
        for name in (f"{norm}.running_mean", f"{norm}.running_var"):
            if state and f"{case}/{name}" in golden:
                result[name] = relative(state[name][::step], golden[f"{case}/{name}"])
    return result


def losses(case: str) -> Iterator[tuple[str, PixelCrossEntropy, float]]:
    """(name, objective, its recorded value) of the training forward: of the head alone, then with the auxiliary one."""
    golden = recorded()
    for name, objective in LOSSES.items():
        if f"{case}/loss_{name}" in golden:
            main, *auxiliary = golden[f"{case}/loss_{name}"]
            yield name, replace(objective, aux_weight=0.0), main
            if auxiliary:
                yield f"{name} with aux", objective, main + auxiliary[0]
