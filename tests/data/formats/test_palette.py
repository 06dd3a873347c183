"""The labels of Cityscapes against its own scripts, and the contrast of colors for other classes."""

import hashlib

import numpy as np
import pytest

from zoo.data.formats import masks

# md5 of id, train id, color and name of every label, a line each, as printed by cityscapesScripts 2.3.0
# (cityscapesscripts/helpers/labels.py): `7 0 128,64,128 road`; labels with train id 255 or -1 are not evaluated.
OFFICIAL = "32a1d8ad9877604dd6cb8b7bee9587ef"
OFFICIAL_COLORS = {label.name: label.color for label in masks.EVALUATED}


def min_distance(colors):
    """Return the smallest distance of two colors in RGB."""
    colors = colors.astype(float)
    distances = np.linalg.norm(colors[:, None] - colors[None], axis=-1)
    return distances[~np.eye(len(colors), dtype=bool)].min()


def test_the_labels_are_those_of_the_official_scripts():
    lines = []
    for number, name, train_id, color in masks.LABELS:
        shown = 255 if train_id is None and number >= 0 else number if train_id is None else train_id
        lines.append(f"{number} {shown} {','.join(map(str, color))} {name}")
    assert hashlib.md5("\n".join(lines).encode()).hexdigest() == OFFICIAL


def test_the_table_maps_ids_to_train_ids_in_their_order():
    expected = np.full(256, 255)
    for label in masks.EVALUATED:
        expected[label.id] = label.train_id
    assert np.array_equal(masks.TRAIN_IDS, expected) and masks.TRAIN_IDS.dtype == np.uint8
    assert [label.train_id for label in masks.EVALUATED] == list(range(19))
    assert tuple(OFFICIAL_COLORS) == masks.TRAIN_CLASSES


def test_official_colors_for_official_names_anywhere():
    colors = masks.class_colors(masks.TRAIN_CLASSES)
    assert colors.shape == (19, 3) and colors.dtype == np.uint8
    assert list(map(tuple, colors)) == list(OFFICIAL_COLORS.values())
    mixed = masks.class_colors(("cat", "car", "dog", "road"))
    assert tuple(mixed[1]) == OFFICIAL_COLORS["car"] and tuple(mixed[3]) == OFFICIAL_COLORS["road"]
    many = masks.class_colors(masks.TRAIN_CLASSES + tuple(f"own {label}" for label in range(20))).astype(float)
    assert np.linalg.norm(many[:19, None] - many[None, 19:], axis=-1).min() > 60


@pytest.mark.parametrize("count, min_expected", [(2, 255), (20, 80), (254, 30)])
def test_other_colors_differ_clearly_from_each_other_and_from_black_and_white(count, min_expected):
    colors = masks.class_colors([f"class {label}" for label in range(count)])
    assert colors.shape == (count, 3) and colors.dtype == np.uint8
    assert min_distance(np.concatenate([colors, [[0, 0, 0], [255, 255, 255]]])) >= min_expected


def test_colors_are_deterministic_and_do_not_change_when_classes_are_added():
    few, many = masks.class_colors(["a", "b", "c"]), masks.class_colors(["a", "b", "c", "d", "e"])
    assert np.array_equal(few, many[:3]) and np.array_equal(many, masks.class_colors(["v", "w", "x", "y", "z"]))
    assert masks.class_colors([]).shape == (0, 3)
    assert masks.class_colors(["same"] * 1000).shape == (1000, 3)
