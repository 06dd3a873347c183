"""Mixup (arXiv:1710.09412) and CutMix (arXiv:1905.04899): every training sample is mixed with another one.

The sample at position p of the run is mixed with that at its neighbor, p + 1 where p is even and p - 1 where it is odd:
the order is shuffled, so it is any other sample. How they are mixed is drawn from (seed, p). So a mixed sample depends
neither on batches nor on ranks nor on workers, and each position has a draw of its own, as with mode="elem" of timm's
Mixup (torchvision draws once per batch). A neighbor is usually in the same batch; otherwise it is read for this.

Pixels are mixed as bytes, before the normalization, with which mixing commutes, and rounded. Labels become
distributions: `soft_label` float32 (classes,), whose values add up to 1. `label` stays that of the sample itself.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data import order
from zoo.data.batch import SOFT_LABEL, Field, soft_label
from zoo.data.fields import SettingError

Box = tuple[int, int, int, int]  # left, top, right, bottom


class Mix(NamedTuple):
    """Mixture of a sample with its neighbor.

    Attributes:
        weight: of the sample in its soft label, in [0, 1].
        box: that shows the neighbor; None where all pixels are blended by `weight`.
    """

    weight: float
    box: Box | None = None


def is_on(settings: Any) -> bool:
    return settings.mixup > 0 or settings.cutmix > 0


def check(settings: Any) -> None:
    """Check that mixing suits the loader. Raises ValueError as settings classes do."""
    if settings.dali_device == "gpu" and is_on(settings):
        raise SettingError("dali_device", "mixup and cutmix mix decoded images on the host; set data.dali_device=cpu")


def refuse(settings: Any, reason: str) -> None:
    """Raise ValueError if settings of a data set that cannot be mixed ask for it."""
    for key in ("mixup", "cutmix"):
        if getattr(settings, key) > 0:
            raise SettingError(key, f"{reason}; leave it out")


def fields(settings: Any, classes: int) -> tuple[Field, ...]:
    """Return the fields that mixing adds to a training sample."""
    return (soft_label(classes),) if is_on(settings) else ()


def neighbor(position: int) -> int:
    return position ^ 1


def draw(settings: Any, width: int, height: int, rng: np.random.Generator) -> Mix:
    """Draw how a sample is mixed: not at all with probability 1 - mix_prob, else by mixup or cutmix.

    Args:
        settings: mixup and cutmix, the alpha of Beta(alpha, alpha) from which the weight is drawn, 0 for off; mix_prob;
            mix_switch, the probability of cutmix where both are on.
    """
    happens, switched = rng.random() < settings.mix_prob, rng.random() < settings.mix_switch
    cuts = settings.cutmix > 0 and (switched or settings.mixup == 0)
    alpha = settings.cutmix if cuts else settings.mixup
    weight, x, y = rng.beta(alpha, alpha), int(rng.integers(width)), int(rng.integers(height))
    if not happens:
        return Mix(1.0)
    if not cuts:
        return Mix(weight)
    box = cut_box(weight, width, height, x, y)
    return Mix(1 - (box[2] - box[0]) * (box[3] - box[1]) / (width * height), box)


def cut_box(weight: float, width: int, height: int, x: int, y: int) -> Box:
    """Return the box with 1 - weight of an image's area around (x, y), cut off at the edges, as in torchvision."""
    half = 0.5 * math.sqrt(1 - weight)
    w, h = int(half * width), int(half * height)
    return max(x - w, 0), max(y - h, 0), min(x + w, width), min(y + h, height)


def mix(pixels: np.ndarray, other: np.ndarray, drawn: Mix) -> np.ndarray:
    """Mix the pixels of two samples, uint8 (..., H, W, 3); the frames of clips in their order."""
    if drawn.box:
        left, top, right, bottom = drawn.box
        mixed = pixels.copy()
        mixed[..., top:bottom, left:right, :] = other[..., top:bottom, left:right, :]
        return mixed
    if drawn.weight == 1:
        return pixels
    weight = np.float32(drawn.weight)
    blend = pixels.astype(np.float32) * weight + other.astype(np.float32) * (np.float32(1) - weight)
    return np.rint(blend).astype(np.uint8)


def mix_labels(label: Any, other: Any, weight: float, classes: int) -> np.ndarray:
    """Return the distribution of two labels, or the weighted mean of two targets (classes,): float32 (classes,)."""
    if np.ndim(label):
        mixed: np.ndarray = np.float32(weight) * label + np.float32(1 - weight) * other
        return mixed
    values = np.zeros(classes, np.float32)
    values[label] += weight
    values[other] += 1 - weight
    return values


def mix_samples(
    settings: Any, classes: int, seed: int, positions: Sequence[int], samples: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the samples at some positions of the run, mixed.

    Args:
        samples: by position, decoded, those of all neighbors included.
    """
    mixed = []
    for position, rng in zip(positions, order.generators(seed, "mix", positions)):
        sample, other = samples[position], samples[neighbor(position)]
        name = next(iter(sample))  # the model's input
        pixels = sample[name]
        drawn = draw(settings, pixels.shape[-2], pixels.shape[-3], rng)
        label = mix_labels(sample["label"], other["label"], drawn.weight, classes)
        mixed.append({**sample, name: mix(pixels, other[name], drawn), SOFT_LABEL: label})
    return mixed
