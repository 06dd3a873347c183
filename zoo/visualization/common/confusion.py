"""Confusion matrix as an image: rows are labels, columns predictions, darker cells larger shares of the label."""

from collections.abc import Sequence

import numpy as np

from zoo.visualization.common import canvas

SIDE = 640  # pixels that the cells of few classes fill
MAX_NAMED = 32  # classes with names beside their rows and columns
MAX_NAME_LENGTH = 20  # letters
MIN_CELL = canvas.LINE  # pixels, where there are names
NO_SAMPLE, WHITE, BLUE = np.array([230] * 3), np.array([255] * 3), np.array([8, 48, 107])
OTHER = "(none of them)"


def draw(confusion: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Draw a confusion matrix; that of more than MAX_NAMED classes has no text, and a pixel per cell at least.

    Args:
        confusion: counts (K, K + 1); the last column, which is drawn if it is not empty, has predictions that are none
            of the classes.
        names: of the classes.

    Returns:
        uint8 (H, W, 3).
    """
    names = [_shorten(str(name)) for name in names]
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
    left = np.pad(beside, ((len(above), 0), (0, 0), (0, 0)), constant_values=canvas.BACKGROUND)
    right = np.concatenate([above, _cells(colors, cell)])
    return canvas.caption(canvas.row([left, right]), "rows: labels, columns: predictions")


def _cells(colors: np.ndarray, cell: int) -> np.ndarray:
    return np.rint(colors).astype(np.uint8).repeat(cell, 0).repeat(cell, 1)


def _labels(names: Sequence[str], cell: int) -> np.ndarray:
    """Draw names below each other, `cell` pixels apart: (cell * K, W, 3)."""
    lines = [canvas.label(name) for name in names]
    image = np.full((cell * len(names), max(line.shape[1] for line in lines), 3), canvas.BACKGROUND, np.uint8)
    for number, line in enumerate(lines):
        top = number * cell + (cell - canvas.LINE) // 2
        image[top : top + canvas.LINE, : line.shape[1]] = line
    return image


def _shorten(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 1] + "…"
