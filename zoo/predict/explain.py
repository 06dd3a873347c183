"""Explanation of a prediction, drawn over the image: class activation maps (arXiv:1512.04150), probabilities of pixels.

The classifiers of images and clips end in a mean over positions and a linear layer, so that the logit of a class is the
mean over positions (and frames) of its activation map, features x weights + bias. The map needs no gradient, and is
the same in every framework.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np

from zoo.data.extras import cv2
from zoo.predict import batches, overlay
from zoo.predict.results import Sample, TrainedModel


@cache
def colors() -> np.ndarray:
    """Return the colors of values from 0 to 1: uint8 RGB (256, 3)."""
    return cv2.applyColorMap(np.arange(256, dtype=np.uint8)[:, None], cv2.COLORMAP_VIRIDIS)[:, 0, ::-1]


def activations(head: Mapping[str, np.ndarray], maps: np.ndarray, label: int) -> np.ndarray:
    """Return the activation map of a class, (n, h, w), of the feature maps (n, C, h, w) of an image or of n frames."""
    weight, *bias = sorted(head.values(), key=np.ndim, reverse=True)
    return np.tensordot(weight[label], maps, (0, 1)) + sum(each[label] for each in bias)


def write_activations(model: TrainedModel, sample: Sample, label: int, probability: float, path: str) -> None:
    """Write the activation map of a class over an image or the frames of a clip, as the model sees its first view."""
    (maps,) = batches.forward(model, True, [sample])
    (views,) = sample.batch.values()
    frames = views[0] if views.ndim == 5 else views[:1]
    heat = np.maximum(activations(model.head, maps[: len(maps) // len(views)], label), 0)
    heat = heat.repeat(len(frames) // len(heat), 0) / (heat.max() or 1)  # a temporal pool halves the frames
    write(path, frames, heat, model.class_names[label], probability)


def write(path: str, frames: np.ndarray, heat: np.ndarray, name: str, probability: float) -> None:
    """Write images uint8 (n, H, W, 3) side by side, colored by a value from 0 to 1 for each place of (n, h, w)."""
    height, width = frames.shape[1:3]
    gray = frames.mean(3, keepdims=True).astype(np.uint8).repeat(3, 3)  # colors are those of the values alone
    scaled = [cv2.resize(each, (width, height)).clip(0, 1) * 255 for each in heat.astype(np.float32)]
    drawn = [overlay.blend(frame, each.astype(np.uint8), colors()) for frame, each in zip(gray, scaled)]
    caption = f"{name} {overlay.percent(probability)}"
    overlay.write_image(path, overlay.attach_caption(np.concatenate(drawn, 1), caption, ""))
