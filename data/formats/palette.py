"""The labels of Cityscapes, as its own scripts define them, and colors to draw class maps with."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

IGNORE_INDEX = 255  # label of pixels that belong to no class and are ignored
GRID_LEVELS = 9  # values of red, green and blue in the grid of colors for other classes


class Label(NamedTuple):
    """One of Cityscapes' 35 labels.

    id is its value in *_labelIds.png, train_id its value in *_labelTrainIds.png (None: 255, not evaluated).
    """

    id: int
    name: str
    train_id: int | None
    color: tuple[int, int, int]


LABELS = (
    Label(0, "unlabeled", None, (0, 0, 0)),
    Label(1, "ego vehicle", None, (0, 0, 0)),
    Label(2, "rectification border", None, (0, 0, 0)),
    Label(3, "out of roi", None, (0, 0, 0)),
    Label(4, "static", None, (0, 0, 0)),
    Label(5, "dynamic", None, (111, 74, 0)),
    Label(6, "ground", None, (81, 0, 81)),
    Label(7, "road", 0, (128, 64, 128)),
    Label(8, "sidewalk", 1, (244, 35, 232)),
    Label(9, "parking", None, (250, 170, 160)),
    Label(10, "rail track", None, (230, 150, 140)),
    Label(11, "building", 2, (70, 70, 70)),
    Label(12, "wall", 3, (102, 102, 156)),
    Label(13, "fence", 4, (190, 153, 153)),
    Label(14, "guard rail", None, (180, 165, 180)),
    Label(15, "bridge", None, (150, 100, 100)),
    Label(16, "tunnel", None, (150, 120, 90)),
    Label(17, "pole", 5, (153, 153, 153)),
    Label(18, "polegroup", None, (153, 153, 153)),
    Label(19, "traffic light", 6, (250, 170, 30)),
    Label(20, "traffic sign", 7, (220, 220, 0)),
    Label(21, "vegetation", 8, (107, 142, 35)),
    Label(22, "terrain", 9, (152, 251, 152)),
    Label(23, "sky", 10, (70, 130, 180)),
    Label(24, "person", 11, (220, 20, 60)),
    Label(25, "rider", 12, (255, 0, 0)),
    Label(26, "car", 13, (0, 0, 142)),
    Label(27, "truck", 14, (0, 0, 70)),
    Label(28, "bus", 15, (0, 60, 100)),
    Label(29, "caravan", None, (0, 0, 90)),
    Label(30, "trailer", None, (0, 0, 110)),
    Label(31, "train", 16, (0, 80, 100)),
    Label(32, "motorcycle", 17, (0, 0, 230)),
    Label(33, "bicycle", 18, (119, 11, 32)),
    Label(-1, "license plate", None, (0, 0, 142)),  # in polygons only: masks have the car behind it
)
EVALUATED = tuple(label for label in LABELS if label.train_id is not None)  # in the order of their train ids
TRAIN_CLASSES = tuple(label.name for label in EVALUATED)

TRAIN_IDS = np.full(256, IGNORE_INDEX, np.uint8)  # id -> train id
TRAIN_IDS[[label.id for label in EVALUATED]] = [label.train_id for label in EVALUATED]


def class_colors(classes: Sequence[str]) -> np.ndarray:
    """Choose a color for every class, always the same for the same names.

    The 19 evaluated classes of Cityscapes have their official colors. Every other class, in turn, gets the color of a
    grid that is farthest from all earlier ones, and from black and white, which stand for ignored pixels and text.

    Args:
        classes: K class names.

    Returns:
        uint8 RGB (K, 3).
    """
    official = {label.name: label.color for label in EVALUATED}
    grid = np.indices((GRID_LEVELS,) * 3).reshape(3, -1).T * 255 // (GRID_LEVELS - 1)
    taken = [(0, 0, 0), (255, 255, 255)] + [official[name] for name in classes if name in official]
    distances = np.min([_distances(grid, color) for color in taken], axis=0)
    colors: list[Sequence[int]] = []
    for name in classes:
        color: Sequence[int] | None = official.get(name)
        if color is None:
            color = grid[distances.argmax()]
            distances = np.minimum(distances, _distances(grid, color))
        colors.append(color)
    return np.array(colors, np.uint8).reshape(-1, 3)


def _distances(colors: np.ndarray, color: Sequence[int]) -> np.ndarray:
    """Squared distances as integers, weighted like human vision: green most, blue next, red least."""
    return ((colors - np.asarray(color)) ** 2) @ np.array([2, 4, 3])
