"""The labels of Cityscapes as its own scripts define them, and colours to draw class maps with."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

IGNORE_INDEX = 255  # in a label: this pixel is of no class and does not count
LEVELS = 9  # of red, green and blue in the colours made up for other classes


class Label(NamedTuple):
    """One of 35. id is its value in *_labelIds.png, train_id in *_labelTrainIds.png (None: 255, not evaluated)."""

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
    Label(-1, "license plate", None, (0, 0, 142)),  # in polygons only: a mask shows the car below it
)
EVALUATED = tuple(label for label in LABELS if label.train_id is not None)  # in the order of their train ids
TRAIN_CLASSES = tuple(label.name for label in EVALUATED)

TRAIN_IDS = np.full(256, IGNORE_INDEX, np.uint8)  # id -> train id
TRAIN_IDS[[label.id for label in EVALUATED]] = [label.train_id for label in EVALUATED]


def colours(classes: Sequence[str]) -> np.ndarray:
    """A colour for every class: uint8 (K, 3) RGB, always the same for the same names.

    The 19 evaluated classes of Cityscapes have their official ones. Every other class gets, in turn, the one of a grid
    of colours that is farthest from all before it, and from black and white, which are left to ignored pixels and text.
    """
    official = {label.name: label.color for label in EVALUATED}
    grid = np.indices((LEVELS,) * 3).reshape(3, -1).T * 255 // (LEVELS - 1)
    taken = [(0, 0, 0), (255, 255, 255)] + [official[name] for name in classes if name in official]
    distance = np.min([_apart(grid, color) for color in taken], axis=0)
    found = []
    for name in classes:
        color = official.get(name)
        if color is None:
            color = grid[distance.argmax()]
            distance = np.minimum(distance, _apart(grid, color))
        found.append(color)
    return np.array(found, np.uint8).reshape(-1, 3)


def _apart(colors: np.ndarray, color: Sequence[int]) -> np.ndarray:
    """Squared distances, in whole numbers; green weighs most and red least, as eyes see it."""
    return ((colors - np.asarray(color)) ** 2) @ np.array([2, 4, 3])
