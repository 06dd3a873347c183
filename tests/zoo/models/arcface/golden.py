"""Cases, weights and inputs that tests/golden/arcface.npz was recorded with; uses no framework."""

import numpy as np

from tests.helpers.paths import GOLDEN
from tests.zoo.models.tsm import golden
from tests.zoo.models.tsm.golden import relative

CASES = {  # options of zoo.models.arcface.spec.Arch
    "r18": dict(depth=18),
    "r50": dict(depth=50),
    "r100": dict(depth=100),
    "plsc50": dict(depth=50, variant="plsc"),
}
NUM_IMAGES, SIDE = 4, 112
# every n-th channel's running statistics after one training forward
RECORDED_STATISTICS = {"bn1": 4, "layer1.0.downsample.1": 4, "layer4.1.bn3": 32, "bn2": 32, "features": 32}
TOLERANCE = 1e-5  # of float32 against what was recorded in float64
TRAIN_TOLERANCE = 1e-4  # the last normalization has one value per image, and amplifies rounding


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 weights that are a function of the canonical name and the shape, and neutral nowhere.

    Variances are small, so that another epsilon is detected; PReLU slopes differ between channels. Residual branches
    end in smaller weights: up to fifty follow each other, and no activation bounds their sum.
    """
    values = golden.drawn(name, shape)
    if name.endswith("running_var"):
        return values * np.float32(0.01)
    if name.endswith("prelu.weight"):
        return values * np.float32(0.3)
    return values * np.float32(0.1) if len(shape) == 1 and name.endswith(".weight") else values


def input_images() -> np.ndarray:
    """Return normalized images (4, 3, 112, 112) float32."""
    return np.random.default_rng(2019).standard_normal((NUM_IMAGES, 3, SIDE, SIDE), dtype=np.float32)


def recorded() -> dict[str, np.ndarray]:
    """Return the recorded arrays."""
    with np.load(GOLDEN / "arcface.npz") as arrays:
        return dict(arrays)


def differences(case: str, outputs: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> dict[str, float]:
    """Return relative differences from the record for input_images().

    Args:
        case: key of CASES.
        outputs: `eval`, the embeddings of the first two images, and `train`, those of all in training mode.
        state: all tensors after that training forward pass; {} compares none.
    """
    golden = recorded()
    measured = {mode: relative(array, golden[f"{case}/{mode}"]) for mode, array in outputs.items()}
    for norm, step in RECORDED_STATISTICS.items():
        for name in (f"{norm}.running_mean", f"{norm}.running_var"):
            if state and f"{case}/{name}" in golden:
                measured[name] = relative(state[name][::step], golden[f"{case}/{name}"])
    return measured
