"""Class maps of an image, by sliding windows, mirror images and resizing."""

from collections.abc import Callable
from itertools import product

import numpy as np

Array = np.ndarray
Forward = Callable[[Array], Array]  # pixels (N, h, w, 3) -> logits (N, K, h, w)
Pair = tuple[int, int]


def class_map(
    forward: Forward,
    images: Array,
    size: Pair,
    window: Pair | None = None,
    stride: Pair | None = None,
    flip: bool = False,
    align_corners: bool = False,
) -> Array:
    """Return the most probable class of each pixel, (N, *size), of images (N, H, W, 3).

    Logits of windows are averaged where they overlap, resized to `size`; with `flip`, their probabilities are averaged
    with those of the mirror image.
    """
    scores = resize(_logits(forward, images, window, stride), size, align_corners)
    if flip:
        mirrored = resize(_logits(forward, images[:, :, ::-1], window, stride), size, align_corners)[..., ::-1]
        scores = _softmax(scores) + _softmax(mirrored)
    return scores.argmax(1)


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _logits(forward: Forward, images: Array, window: Pair | None, stride: Pair | None) -> Array:
    if window is None:
        return forward(images)
    stride = stride or (-(-2 * window[0] // 3), -(-2 * window[1] // 3))
    starts = map(_starts, images.shape[1:3], window, stride)
    sums, counts = np.zeros(()), np.zeros(images.shape[1:3])
    for top, left in product(*starts):
        part = slice(top, top + window[0]), slice(left, left + window[1])
        logits = forward(images[:, part[0], part[1]])
        whole = np.zeros((*logits.shape[:2], *images.shape[1:3]))
        whole[:, :, part[0], part[1]] = logits
        sums, counts[part] = sums + whole, counts[part] + 1
    return sums / counts


def _starts(length: int, window: int, stride: int) -> list[int]:
    """Return the first rows or columns of the windows; the last window ends with the image."""
    starts = [0]
    while starts[-1] + window < length:
        starts.append(min(starts[-1] + stride, length - window))
    return starts


def resize(values: Array, size: Pair, align_corners: bool) -> Array:
    """Resize (N, K, h, w) to (N, K, *size), bilinear."""
    for axis, length in zip((2, 3), size):
        old = values.shape[axis]
        at = np.linspace(0, old - 1, length) if align_corners else (np.arange(length) + 0.5) * old / length - 0.5
        at = np.clip(at, 0, old - 1)
        low = np.minimum(at.astype(int), max(old - 2, 0))
        part = (at - low).reshape([-1 if i == axis else 1 for i in range(4)])
        values = values.take(low, axis) * (1 - part) + values.take(np.minimum(low + 1, old - 1), axis) * part
    return values
