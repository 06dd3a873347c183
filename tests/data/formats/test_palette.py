"""The labels of Cityscapes against its own scripts, and the contrast of colors for other classes."""

import numpy as np
import pytest

from zoo.data.formats import masks

# id, train id and color of every label as printed by cityscapesScripts 2.3.0 (cityscapesscripts/helpers/labels.py);
# labels with train id 255 or -1 are not evaluated.
OFFICIAL = """\
0 255 0,0,0 unlabeled
1 255 0,0,0 ego vehicle
2 255 0,0,0 rectification border
3 255 0,0,0 out of roi
4 255 0,0,0 static
5 255 111,74,0 dynamic
6 255 81,0,81 ground
7 0 128,64,128 road
8 1 244,35,232 sidewalk
9 255 250,170,160 parking
10 255 230,150,140 rail track
11 2 70,70,70 building
12 3 102,102,156 wall
13 4 190,153,153 fence
14 255 180,165,180 guard rail
15 255 150,100,100 bridge
16 255 150,120,90 tunnel
17 5 153,153,153 pole
18 255 153,153,153 polegroup
19 6 250,170,30 traffic light
20 7 220,220,0 traffic sign
21 8 107,142,35 vegetation
22 9 152,251,152 terrain
23 10 70,130,180 sky
24 11 220,20,60 person
25 12 255,0,0 rider
26 13 0,0,142 car
27 14 0,0,70 truck
28 15 0,60,100 bus
29 255 0,0,90 caravan
30 255 0,0,110 trailer
31 16 0,80,100 train
32 17 0,0,230 motorcycle
33 18 119,11,32 bicycle
-1 -1 0,0,142 license plate"""


def official_labels():
    for line in OFFICIAL.splitlines():
        number, train_id, color, name = line.split(" ", 3)
        yield (
            int(number),
            name,
            int(train_id) if 0 <= int(train_id) < 255 else None,
            tuple(int(value) for value in color.split(",")),
        )


def min_distance(colors):
    """Return the smallest distance of two colors in RGB."""
    colors = colors.astype(float)
    distances = np.linalg.norm(colors[:, None] - colors[None], axis=-1)
    return distances[~np.eye(len(colors), dtype=bool)].min()


def test_the_labels_are_those_of_the_official_scripts():
    assert [tuple(label) for label in masks.LABELS] == list(official_labels())


def test_the_table_maps_ids_to_train_ids():
    expected = np.full(256, 255)
    for number, _, train_id, _ in official_labels():
        if train_id is not None:
            expected[number] = train_id
    assert np.array_equal(masks.TRAIN_IDS, expected) and masks.TRAIN_IDS.dtype == np.uint8
    assert sorted(set(expected)) == list(range(19)) + [255]


def test_the_19_classes_in_the_order_of_their_train_ids():
    names = {train_id: name for _, name, train_id, _ in official_labels() if train_id is not None}
    assert tuple(names[train_id] for train_id in range(19)) == masks.TRAIN_CLASSES


def test_official_colors_for_official_names_anywhere():
    official = {name: color for _, name, train_id, color in official_labels() if train_id is not None}
    colors = masks.class_colors(masks.TRAIN_CLASSES)
    assert colors.shape == (19, 3) and colors.dtype == np.uint8
    assert [tuple(color) for color in colors] == [official[name] for name in masks.TRAIN_CLASSES]
    mixed = masks.class_colors(("cat", "car", "dog", "road"))
    assert tuple(mixed[1]) == official["car"] and tuple(mixed[3]) == official["road"]
    many = masks.class_colors(masks.TRAIN_CLASSES + tuple(f"own {label}" for label in range(20))).astype(float)
    assert np.linalg.norm(many[:19, None] - many[None, 19:], axis=-1).min() > 60


@pytest.mark.parametrize("count, min_expected", [(2, 255), (6, 150), (20, 80), (60, 60), (150, 40), (254, 30)])
def test_other_colors_differ_clearly_from_each_other_and_from_black_and_white(count, min_expected):
    colors = masks.class_colors([f"class {label}" for label in range(count)])
    assert colors.shape == (count, 3) and colors.dtype == np.uint8
    assert min_distance(np.concatenate([colors, [[0, 0, 0], [255, 255, 255]]])) >= min_expected


def test_colors_are_deterministic_and_do_not_change_when_classes_are_added():
    few, many = masks.class_colors(["a", "b", "c"]), masks.class_colors(["a", "b", "c", "d", "e"])
    assert np.array_equal(few, many[:3]) and np.array_equal(many, masks.class_colors(["v", "w", "x", "y", "z"]))
    assert masks.class_colors([]).shape == (0, 3)
    assert masks.class_colors(["same"] * 1000).shape == (1000, 3)
