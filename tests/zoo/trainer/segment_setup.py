"""Scenes, labels, settings and a model of segmentation without a framework."""

import numpy as np

from zoo.tasks import segment

CLASSES = 5
OBJECTIVES = {
    "valid": segment.Settings(),
    "all": segment.Settings(average="all", aux_weight=0.25),
    "hardest": segment.Settings(ohem_kept=300),
    "threshold": segment.Settings(ohem_kept=30, ohem_threshold=0.3),
    "threshold_many": segment.Settings(ohem_kept=700, ohem_threshold=0.01),
    "smoothed_hardest": segment.Settings(ohem_kept=300, label_smoothing=0.3),
    "smoothed_threshold": segment.Settings(ohem_kept=30, ohem_threshold=0.3, label_smoothing=0.3),
}
MASKS = ("mixed", "ignored")
OUTPUTS = {
    "whole": segment.Settings(),
    "slide": segment.Settings(window=(24, 32), stride=(13, 20)),
    "flip": segment.Settings(flip=True),
    "slide_flip": segment.Settings(window=(30, 30), flip=True),
}
SIZE = (40, 56)  # height and width of the images


def random_logits(seed: int, size=SIZE) -> np.ndarray:
    return 2 * np.random.default_rng(seed).standard_normal((2, CLASSES, *size), dtype=np.float32)


def random_mask(content: str, size=SIZE) -> np.ndarray:
    """Return labels (2, *size), of which some (mixed) or all (ignored) are left out."""
    mask = np.random.default_rng(5).integers(0, CLASSES, (2, *size)).astype(np.uint8)
    mask[:, : size[0] // 3, : size[1] // 2] = segment.IGNORE_INDEX
    return np.full_like(mask, segment.IGNORE_INDEX) if content == "ignored" else mask


def random_images() -> np.ndarray:
    return np.random.default_rng(6).integers(0, 256, (2, *SIZE, 3), np.uint8)


def random_small_images() -> np.ndarray:
    """Return the second scale of an evaluation."""
    return np.random.default_rng(7).integers(0, 256, (2, 20, 28, 3), np.uint8)


def fixed_model(pixels: np.ndarray) -> np.ndarray:
    """Return logits (N, CLASSES, h, w), float32, of uint8 (N, h, w, 3); they depend on the place in the window."""
    height, width = pixels.shape[1:3]
    row, column = np.mgrid[:height, :width].astype(np.float32)
    x = pixels.astype(np.float32) / 64
    logits = [
        x[..., 0],
        x[..., 1] + 0.02 * row,
        x[..., 2] - 0.01 * column + 0.3,
        (x[..., 0] + x[..., 1]) / 2 + 0.5,
        0.1 * column - x[..., 2] + 1,
    ]
    return np.ascontiguousarray(np.stack([np.broadcast_to(z, x.shape[:3]) for z in logits], 1), dtype=np.float32)
