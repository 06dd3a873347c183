"""Cases, weights and inputs that tests/golden/tsm.npz was recorded with; uses no framework."""

import zlib

import numpy as np

from tests.helpers.paths import GOLDEN

CLASSES, SEGMENTS, VIDEOS, SIDE = 7, 8, 2, 64
CASES = {
    "r50_blockres": dict(depth=50),
    "r50_block": dict(depth=50, shift_place="block"),
    "r50_tpool": dict(depth=50, temporal_pool=True),
    "r50_nonlocal": dict(depth=50, non_local=True),
    "r101_blockres": dict(depth=101),
}
RECORDED_STATISTICS = {
    "bn1": 1,
    "layer4.2.bn3": 32,
}  # every n-th channel's running statistics after one training forward
TOLERANCE = 1e-5  # of float32 against logits recorded in float64


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 weights that are a function of the canonical name and the shape, and neutral nowhere.

    No weight of a normalization is 1, no bias and no statistic trivial, and non-local blocks contribute. Residual
    branches end in smaller weights and attention is soft: otherwise batch statistics of so few pixels amplify float32's
    rounding past 1e-5.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("running_var"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if name.endswith(("bn3.weight", "nl.bn.weight")):
        return rng.uniform(0.1, 0.4, shape).astype(np.float32)
    if len(shape) == 1 and name.endswith("weight"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) == 1:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    scale = np.float32(np.prod(shape[1:]) ** -0.5 * (0.5 if ".theta." in name or ".phi." in name else 1))
    return rng.standard_normal(shape, dtype=np.float32) * scale


def video() -> np.ndarray:
    """Return the input (2, 8, 3, 64, 64) float32."""
    rng = np.random.default_rng(2019)
    return rng.standard_normal((VIDEOS, SEGMENTS, 3, SIDE, SIDE), dtype=np.float32)


def recorded() -> dict[str, np.ndarray]:
    """Return the recorded arrays."""
    with np.load(GOLDEN / "tsm.npz") as arrays:
        return dict(arrays)


def relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the largest difference relative to the largest magnitude."""
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


def differences(
    case: str, evaluated: np.ndarray, trained: np.ndarray, state: dict[str, np.ndarray]
) -> dict[str, float]:
    """Return relative differences from the record: logits in evaluation and training, then running statistics."""
    golden = recorded()
    measured = {
        "eval": relative(evaluated, golden[f"{case}/eval"]),
        "train": relative(trained, golden[f"{case}/train"]),
    }
    for norm, step in RECORDED_STATISTICS.items():
        for name in (f"{norm}.running_mean", f"{norm}.running_var"):
            measured[name] = relative(state[name][::step], golden[f"{case}/{name}"])
    return measured
