"""The recorded cases of tests/golden/arcface.npz and what they were recorded from, without any framework."""

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
PICTURES, SIDE = 4, 112
# every n-th channel's running statistics after one training forward
WATCHED = {"bn1": 4, "layer1.0.downsample.1": 4, "layer4.1.bn3": 32, "bn2": 32, "features": 32}
TOLERANCE = 1e-5  # of float32 against what was recorded in float64
TRAIN_TOLERANCE = 1e-4  # the last normalisation sees as many values as there are pictures, and magnifies rounding


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Weights that hide nothing, a function of the canonical name and the shape alone, float32.

    Variances are small, so that another epsilon shows; slopes of PReLUs differ from channel to channel. Residual
    branches end in smaller scales: up to fifty are in a row, and no activation bounds their sum.
    """
    values = golden.drawn(name, shape)
    if name.endswith("running_var"):
        return values * np.float32(0.01)
    if name.endswith("prelu.weight"):
        return values * np.float32(0.3)
    return values * np.float32(0.1) if len(shape) == 1 and name.endswith(".weight") else values


def pictures() -> np.ndarray:
    """(4, 3, 112, 112) float32, as the net sees them."""
    return np.random.default_rng(2019).standard_normal((PICTURES, 3, SIDE, SIDE), dtype=np.float32)


def recorded() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "arcface.npz") as arrays:
        return dict(arrays)


def differences(case: str, found: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> dict[str, float]:
    """What a net makes of pictures() against the record.

    found: `eval`, the embeddings of the first two pictures, and `train`, those of all in training mode; any may be left
    out. state: all tensors after that one training forward; {} compares none.
    """
    golden = recorded()
    result = {kind: relative(array, golden[f"{case}/{kind}"]) for kind, array in found.items()}
    for norm, step in WATCHED.items():
        for name in (f"{norm}.running_mean", f"{norm}.running_var"):
            if state and f"{case}/{name}" in golden:
                result[name] = relative(state[name][::step], golden[f"{case}/{name}"])
    return result
