"""Inputs of the recorded runs of mit-han-lab/temporal-shift-module; see tsm_recipe.npz in tests/golden/README.txt."""

from typing import NamedTuple

import numpy as np

CLIPS = {  # name -> width, height, number of frames
    "landscape": (340, 256, 20),
    "portrait": (240, 427, 30),
    "snapped": (300, 226, 8),  # its shorter side is within 2 pixels of the crop's size
    "hd": (1920, 1080, 9),
}
DRAWS = 3  # training samples per clip
LENGTHS = (3, 5, 7, 8, 9, 12, 15, 16, 17, 29, 63, 64, 65, 100, 250, 300)  # frames of a video
SEGMENTS = (8, 16)
STRIDE = 16  # every STRIDE-th pixel of a sample's first frame is recorded, and a hash of all of them


class Recipe(NamedTuple):
    """Upstream's command line that a recipe repeats, and the number of training clips."""

    dataset: str
    arguments: str
    clips: int


COMMON = "--arch resnet50 --num_segments 8 --gd 20 --epochs 50 --dropout 0.5 --consensus_type=avg --eval-freq=1"
SHIFT = "--shift --shift_div=8 --shift_place=blockres --npb --lr_steps 20 40"
RECIPES = {
    "tsm_k400": Recipe("kinetics", f"{COMMON} {SHIFT} --lr 0.02 --wd 1e-4 --batch-size 128", 234619),
    "tsm_ssv2": Recipe("somethingv2", f"{COMMON} {SHIFT} --lr 0.01 --batch-size 64", 168913),
}
# Positions in the run, in epochs, at which the learning rate is compared.
EPOCHS = (0, 0.5, 1, 3, 7.25, 12, 15, 19, 19.999, 20, 20.5, 25, 30, 33.3, 39, 39.999, 40, 45, 49, 49.999)


def clip(name: str) -> np.ndarray:
    """Return the noise of a clip: uint8 RGB (frames, height, width, 3)."""
    width, height, count = CLIPS[name]
    rng = np.random.default_rng(sorted(CLIPS).index(name))
    return rng.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def logits_and_labels(classes: int = 400, batch: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Return logits float32 (N, K) and labels int64 (N,)."""
    rng = np.random.default_rng(7)
    return rng.normal(0, 3, (batch, classes)).astype(np.float32), rng.integers(0, classes, batch)
