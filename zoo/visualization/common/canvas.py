"""Images side by side and below each other, with lines of text."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

GAP = 4  # pixels between images
FONT_SIZE, LINE = 14, 20  # pixels
TEXT_COLOR, BACKGROUND = (20, 20, 20), 255
RIGHT, WRONG, NEUTRAL = (0, 120, 0), (190, 0, 0), TEXT_COLOR  # colors of captions


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image (H, W, 3) to a height and width: averaged pixels if smaller, repeated pixels if larger."""
    height, width = size
    method = Image.Resampling.BOX if height < image.shape[0] else Image.Resampling.NEAREST
    return np.asarray(Image.fromarray(image).resize((width, height), method))


def resize_labels(labels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize labels (H, W), uint8, to a height and width by nearest neighbors."""
    height, width = size
    return np.asarray(Image.fromarray(labels).resize((width, height), Image.Resampling.NEAREST))


def fit(size: Sequence[int], longest: int) -> tuple[int, int]:
    """Return a height and width with the ratio of `size` whose longer side is `longest`."""
    factor = longest / max(size)
    return max(round(size[0] * factor), 1), max(round(size[1] * factor), 1)


def row(images: Sequence[np.ndarray]) -> np.ndarray:
    """Put images (H, W, 3) side by side, at the top of the row."""
    return _join([_pad(image, max(other.shape[0] for other in images), image.shape[1]) for image in images], 1)


def column(images: Sequence[np.ndarray]) -> np.ndarray:
    """Put images (H, W, 3) below each other, at the left of the column."""
    return _join([_pad(image, image.shape[0], max(other.shape[1] for other in images)) for image in images], 0)


def grid(images: Sequence[np.ndarray], columns: int) -> np.ndarray:
    """Put images (H, W, 3) in rows of `columns`."""
    return column([row(images[first : first + columns]) for first in range(0, len(images), columns)])


def caption(image: np.ndarray, text: str, color: tuple[int, int, int] = NEUTRAL) -> np.ndarray:
    """Put a line of text above an image, which ends where the image does."""
    return column([label(text, image.shape[1], color), image])


def label(text: str, width: int | None = None, color: tuple[int, int, int] = NEUTRAL) -> np.ndarray:
    """Draw a line of text, (LINE, width, 3); without a width, as wide as it is."""
    font = ImageFont.load_default(FONT_SIZE)
    canvas = Image.new("RGB", (width or int(font.getlength(text)) + 1, LINE), (BACKGROUND,) * 3)
    ImageDraw.Draw(canvas).text((0, LINE // 2), text, color, font, anchor="lm")
    return np.asarray(canvas)


def _pad(image: np.ndarray, height: int, width: int) -> np.ndarray:
    below, right = height - image.shape[0], width - image.shape[1]
    return np.pad(image, ((0, below), (0, right), (0, 0)), constant_values=BACKGROUND)


def _join(images: Sequence[np.ndarray], axis: int) -> np.ndarray:
    shape = list(images[0].shape)
    shape[axis] = GAP
    gap = np.full(shape, BACKGROUND, np.uint8)
    return np.concatenate([part for image in images for part in (gap, image)][1:], axis)
