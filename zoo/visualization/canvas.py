"""Images side by side and below each other, with lines of text."""

import base64
import io
from collections.abc import Sequence

import numpy as np

from zoo.data.extras import Image, ImageDraw, ImageFont

GAP = 4  # pixels between images
FONT_SIZE, LINE = 14, 20  # pixels
QUALITY = 88  # of JPEG
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


def data_address(image: np.ndarray) -> str:
    """Return an image (H, W, 3) as an address for HTML, which holds it as JPEG."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def _pad(image: np.ndarray, height: int, width: int) -> np.ndarray:
    below, right = height - image.shape[0], width - image.shape[1]
    return np.pad(image, ((0, below), (0, right), (0, 0)), constant_values=BACKGROUND)


def _join(images: Sequence[np.ndarray], axis: int) -> np.ndarray:
    shape = list(images[0].shape)
    shape[axis] = GAP
    gap = np.full(shape, BACKGROUND, np.uint8)
    return np.concatenate([part for image in images for part in (gap, image)][1:], axis)


SIDE = 640  # pixels that the cells of few classes fill
MAX_NAMED = 32  # classes with names beside their rows and columns
MAX_NAME_LENGTH = 20  # letters
MIN_CELL = LINE  # pixels, where there are names
NO_SAMPLE, WHITE, BLUE = np.array([230] * 3), np.array([255] * 3), np.array([8, 48, 107])
OTHER = "(none of them)"


def confusion_matrix(confusion: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Draw a confusion matrix; that of more than MAX_NAMED classes has no text, and a pixel per cell at least.

    Args:
        confusion: counts (K, K + 1); the last column, which is drawn if it is not empty, has predictions that are none
            of the classes.

    Returns:
        uint8 (H, W, 3).
    """
    whole = [str(name) for name in names]
    names = [name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 1] + "…" for name in whole]
    columns = [*names, OTHER] if confusion[:, -1].any() else names
    counts = confusion[:, : len(columns)].astype(np.float64)
    totals = confusion.sum(1, dtype=np.float64)[:, None]
    shares = (counts / np.maximum(totals, 1))[..., None]
    colors = np.where(totals[..., None] > 0, WHITE + shares * (BLUE - WHITE), NO_SAMPLE)
    cell = max(SIDE // len(columns), 1)
    if len(names) > MAX_NAMED:
        return _cells(colors, cell)
    cell = max(cell, MIN_CELL)
    beside, above = _labels(names, cell), np.rot90(_labels(columns, cell))
    left = np.pad(beside, ((len(above), 0), (0, 0), (0, 0)), constant_values=BACKGROUND)
    right = np.concatenate([above, _cells(colors, cell)])
    return caption(row([left, right]), "rows: labels, columns: predictions")


def _cells(colors: np.ndarray, cell: int) -> np.ndarray:
    return np.rint(colors).astype(np.uint8).repeat(cell, 0).repeat(cell, 1)


def _labels(names: Sequence[str], cell: int) -> np.ndarray:
    """Draw names below each other, `cell` pixels apart: (cell * K, W, 3)."""
    lines = [label(name) for name in names]
    image = np.full((cell * len(names), max(line.shape[1] for line in lines), 3), BACKGROUND, np.uint8)
    for number, line in enumerate(lines):
        top = number * cell + (cell - LINE) // 2
        image[top : top + LINE, : line.shape[1]] = line
    return image
