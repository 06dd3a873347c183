"""The recorded cases of tests/golden/tsm.npz and what they were recorded from, without any framework."""

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
WATCHED = {"bn1": 1, "layer4.2.bn3": 32}  # every n-th channel's running statistics after one training forward
TOLERANCE = 1e-5  # of float32 against logits recorded in float64


def drawn(name, shape):
    """Weights that hide nothing: a function of the canonical name and the shape alone, float32.

    No scale is 1, no shift and no statistic trivial, non-local blocks contribute. Residual branches end in smaller
    scales and attention is soft: otherwise batch statistics of so few pixels amplify float32's rounding past 1e-5.
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


def video():
    rng = np.random.default_rng(2019)
    return rng.standard_normal((VIDEOS, SEGMENTS, 3, SIDE, SIDE), dtype=np.float32)


def recorded() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "tsm.npz") as arrays:
        return dict(arrays)


def relative(ours, theirs):
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


def differences(
    case: str, evaluated: np.ndarray, trained: np.ndarray, state: dict[str, np.ndarray]
) -> dict[str, float]:
    """What a net makes of video() against the record: logits of evaluation, then of training, then the statistics."""
    golden = recorded()
    found = {"eval": relative(evaluated, golden[f"{case}/eval"]), "train": relative(trained, golden[f"{case}/train"])}
    for norm, step in WATCHED.items():
        for name in (f"{norm}.running_mean", f"{norm}.running_var"):
            found[name] = relative(state[name][::step], golden[f"{case}/{name}"])
    return found
