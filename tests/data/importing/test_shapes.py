"""Shapes against analytic facts, and compressed runs against those of pycocotools."""

import numpy as np
import pytest

from zoo.data.errors import BadSample
from zoo.data.importing import shapes
from zoo.data.importing.shapes import CIRCLE, SQUARE, Region, Shape

# Of pycocotools 2.0.11, encode() and frPyObjects(); the first is the mask of 5 x 7 pixels below.
GOLDEN, GOLDEN_LENGTHS = ";32NO012004", [11, 3, 2, 1, 1, 1, 2, 3, 2, 3, 6]


def drawn(region: Region, height: int, width: int) -> np.ndarray:
    mask = np.zeros((height, width), bool)
    top, left, inside = region
    mask[top : top + inside.shape[0], left : left + inside.shape[1]] = inside
    return mask


def inside_by_angles(points: np.ndarray, height: int, width: int) -> np.ndarray:
    """Whether the winding number of a polygon around each center is odd: the sum of angles, not of crossings."""
    y, x = np.mgrid[:height, :width] + 0.5
    ray = points[:, None, None, 0] - x + 1j * (points[:, None, None, 1] - y)
    turns = np.angle(np.roll(ray, -1, axis=0) / ray).sum(axis=0) / (2 * np.pi)
    return np.rint(turns).astype(int) % 2 == 1


def test_a_polygon_has_the_pixels_whose_centers_lie_inside():
    rng = np.random.default_rng(0)
    for _ in range(200):
        points = rng.uniform(-8, 32, (rng.integers(3, 9), 2))  # many cross themselves, and the border
        mask = drawn(shapes.polygon(points, 21, 24), 21, 24)
        np.testing.assert_array_equal(mask, inside_by_angles(points, 21, 24))


def test_polygons_with_a_common_edge_neither_overlap_nor_leave_a_gap():
    rng = np.random.default_rng(1)
    center, corners = np.array([10.5, 9.5]), np.array([(0, 0), (7.5, 0), (20, 0), (20, 18), (3.5, 18), (0, 18)], float)
    for start in (center, rng.uniform(3, 15, 2)):
        fan = [np.stack([start, corner, following]) for corner, following in zip(corners, np.roll(corners, -1, axis=0))]
        covered = sum(drawn(shapes.polygon(part, 18, 20), 18, 20).astype(int) for part in fan)
        np.testing.assert_array_equal(covered, np.ones((18, 20)))


def test_boxes_and_ellipses():
    box = shapes.outline(SQUARE, np.array([(2, 3), (8, 7)]))
    expected = np.zeros((10, 12), bool)
    expected[3:7, 2:8] = True
    np.testing.assert_array_equal(drawn(shapes.polygon(box, 10, 12), 10, 12), expected)
    # A quarter turn clockwise about its center (5, 5); an eighth moves the upper left corner straight up.
    np.testing.assert_allclose(shapes.outline(SQUARE, np.array([(2, 3), (8, 7)]), 90)[0], (7, 2), atol=1e-12)
    np.testing.assert_allclose(shapes.outline(SQUARE, np.array([(4, 4), (6, 6)]), 45)[0], (5, 5 - 2**0.5), atol=1e-12)
    ellipse = shapes.polygon(shapes.outline(CIRCLE, np.array([(10.2, 20.1), (90.2, 60.1)])), 80, 100)
    y, x = np.mgrid[:80, :100] + 0.5
    equation = ((x - 50.2) / 40) ** 2 + ((y - 40.1) / 20) ** 2
    decided = abs(equation - 1) > 1e-4
    np.testing.assert_array_equal(drawn(ellipse, 80, 100)[decided], (equation < 1)[decided])


def test_compressed_runs_are_those_of_pycocotools():
    mask = np.zeros((5, 7), bool)
    mask[1:4, 2:6] = True
    mask[2, 3] = False
    lengths = shapes.decode_counts(GOLDEN)
    assert lengths.tolist() == GOLDEN_LENGTHS
    for counts in (GOLDEN, GOLDEN_LENGTHS):
        np.testing.assert_array_equal(shapes.coco_runs(counts, [5, 7], 5, 7).inside, mask)
    assert shapes.decode_counts("5le0X1dX1?hWN").tolist() == [5, 700, 40, 2000, 55, 200]
    assert shapes.decode_counts("0PXRj31oknRN").tolist() == [0, 4_000_000, 1, 1_999_999]


@pytest.mark.parametrize("text", ["", "`", "0\x00", "~~", ";32NO0120040", "o" * 9 + "0", "O00", "é"])
def test_damaged_runs_are_bad_samples(text):
    with pytest.raises(BadSample):
        shapes.coco_runs(text, [5, 7], 5, 7)


def test_runs_may_not_claim_a_mask_without_end():
    with pytest.raises(BadSample, match="limit"):
        shapes.runs([10**10], (10**5, 10**5))


def test_later_and_higher_shapes_lie_above():
    def box(label, x0, y0, x1, y1, order=0.0):
        points = shapes.outline(SQUARE, np.array([(x0, y0), (x1, y1)], float))
        return Shape(label, lambda height, width: shapes.polygon(points, height, width), order)

    values = {"a": 1, "b": 2, "c": 255}
    found = [
        box("c", 2, 0, 4, 2, 1),
        box("a", 0, 0, 3, 2),
        box("b", 1, 0, 4, 1),
        box("a", 9, 9, 12, 12),
        box("d", 0, 0, 1, 1),
    ]
    mask, lost = shapes.paint([*found, box("a", 2.4, 0, 4, 2)], (5, 2), values, 0)
    assert mask.tolist() == [[1, 2, 255, 255, 0], [1, 1, 255, 255, 0]]
    assert lost == [
        "shape outside of the image, or without the center of a pixel",
        "shape of d, which --classes leaves out",
        "shape covered by others",
    ]
    window = Shape("a", lambda *_: Region(-1, -2, np.ones((3, 4), bool)))
    assert shapes.paint([window], (5, 2), values, 0)[0].tolist() == [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0]]


@pytest.mark.parametrize("points", [[[0, 0], [1e30, 0], [0, 1]], [[float("nan"), 0], [1, 0], [0, 1]]])
def test_coordinates_must_be_pixels(points):
    with pytest.raises(BadSample, match="no pixels"):
        shapes.as_points(points)


def test_edges_may_not_cross_rows_without_end():
    points = np.array([(0, 0), (1, 9000)] * 300, float)
    with pytest.raises(BadSample, match="the limit is"):
        shapes.polygon(points, 9000, 2)
