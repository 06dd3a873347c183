"""Boxes of random crops and views against numbers computed by hand, and their distributions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.transforms import clips
from zoo.data.transforms.geometry import Geometry, random_box
from zoo.data.transforms.pixels import apply

SCALES = (1.0, 0.875, 0.75, 0.66)


def rng(seed=0):
    return np.random.default_rng(seed)


def clip(t, height, width, seed=0):
    return rng(seed).integers(0, 256, (t, height, width, 3), dtype=np.uint8)


def draw_boxes(width, height, size=224, times=4000, scales=SCALES):
    generator = rng()
    return [clips.multi_scale_box(width, height, size, scales, generator) for _ in range(times)]


def sizes_of(drawn):
    return {(w, h) for _, _, w, h in drawn}


def test_ten_pairs_of_neighboring_scales():
    sides = (256, 224, 192, 168)  # int(256 * scale)
    expected = {(sides[i], sides[j]) for i in range(4) for j in range(4) if abs(i - j) <= 1}
    drawn = draw_boxes(340, 256)
    assert sizes_of(drawn) == expected and len(expected) == 10
    counts = [sum(box[2:] == pair for box in drawn) for pair in expected]
    assert max(abs(count - 400) for count in counts) < 5 * (4000 * 0.1 * 0.9) ** 0.5  # a tenth of the draws each


def test_thirteen_positions_are_equally_frequent():
    drawn = [box[:2] for box in draw_boxes(340, 256) if box[2:] == (224, 224)]
    expected = {(x, y) for x in (0, 58, 116) for y in (0, 16, 32)} | {(x, y) for x in (29, 87) for y in (8, 24)}
    assert set(drawn) == expected == set(clips.grid_corners(340, 256, 224, 224)) and len(expected) == 13
    share = len(drawn) / 13
    assert max(abs(drawn.count(point) - share) for point in expected) < 5 * share**0.5


def test_steps_of_the_grid_round_down():
    points = clips.grid_corners(341, 259, 224, 224)  # steps 117 // 4 = 29 and 35 // 4 = 8
    assert points[3] == (116, 32) and points[4] == (58, 16) and points[-1] == (87, 24)


@pytest.mark.parametrize(
    "base, side", [(221, 221), (222, 224), (223, 224), (224, 224), (225, 224), (226, 224), (227, 227)]
)
def test_a_side_within_two_pixels_of_the_size_snaps(base, side):
    assert sizes_of(draw_boxes(400, base, times=20, scales=(1.0,))) == {(side, min(side, base))}
    assert sizes_of(draw_boxes(base, 400, times=20, scales=(1.0,))) == {(min(side, base), side)}


@settings(max_examples=300, deadline=None)
@given(width=st.integers(1, 700), height=st.integers(1, 700), size=st.integers(14, 320), seed=st.integers(0, 999))
def test_the_box_lies_in_the_frame_and_is_not_empty(width, height, size, seed):
    left, top, w, h = clips.multi_scale_box(width, height, size, SCALES, rng(seed))
    assert left >= 0 and left + w <= width and top >= 0 and top + h <= height
    assert w >= 1 and h >= 1


@pytest.mark.parametrize(
    "width, left", [(224, 0), (225, 0), (226, 1), (227, 2), (228, 2), (229, 2), (231, 4), (340, 58)]
)
def test_half_pixels_of_the_center_round_to_even(width, left):
    assert clips.center_box(width, 224, 224) == (left, 0, 224, 224)
    assert clips.center_box(224, width, 224) == (0, left, 224, 224)


def views_of(video, size, crops):
    """Cut the views out of every frame of a clip (T, H, W, 3)."""
    views = clips.view_boxes(video.shape[2], video.shape[1], size, crops)
    return [np.stack([apply(frame, Geometry(window=box, flip=flip)) for frame in video]) for box, flip in views]


def test_one_view_is_the_center():
    video = clip(2, 32, 43)
    (only,) = views_of(video, 28, 1)
    assert np.array_equal(only, video[:, 2:30, 8:36])  # 7.5 rounds to 8


def test_three_views_are_left_right_center():
    video = clip(2, 32, 45)
    views = views_of(video, 32, 3)
    assert len(views) == 3
    for view, left in zip(views, (0, 12, 6)):  # steps of 13 // 4 = 3
        assert np.array_equal(view, video[:, :, left : left + 32])
    small = views_of(video, 28, 3)  # vertical step 4 // 4 = 1, horizontal 17 // 4 = 4
    for view, left in zip(small, (0, 16, 8)):
        assert np.array_equal(view, video[:, 2:30, left : left + 28])


def test_three_views_of_a_portrait_clip_are_the_same():
    video = clip(2, 50, 32)
    first, second, third = views_of(video, 32, 3)
    assert np.array_equal(first, second) and np.array_equal(first, third)
    assert np.array_equal(first, video[:, 8:40])  # 2 * (18 // 4)


def test_ten_views_are_corners_and_center_each_with_its_flip():
    video = clip(2, 32, 45)
    views = views_of(video, 28, 10)
    assert len(views) == 10
    for number, (left, top) in enumerate([(0, 0), (16, 0), (0, 4), (16, 4), (8, 2)]):
        expected = video[:, top : top + 28, left : left + 28]
        assert np.array_equal(views[2 * number], expected)
        assert np.array_equal(views[2 * number + 1], expected[:, :, ::-1])


SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


class ScriptedGenerator:
    """A random generator that returns given values and records the arguments."""

    def __init__(self, uniforms, integers=()):
        self.uniforms, self.positions, self.calls = iter(uniforms), iter(integers), []

    def uniform(self, low, high):
        self.calls.append((low, high))
        return next(self.uniforms)

    def integers(self, high):
        self.calls.append(high)
        return next(self.positions)


def draw_random_boxes(width=500, height=375, times=3000, **keys):
    rng = np.random.default_rng(0)
    return np.array(
        [random_box(width, height, keys.get("scale", SCALE), keys.get("ratio", RATIO), rng) for _ in range(times)]
    )


def test_a_draw_by_hand():
    # area 0.5 * 400 * 300 = 60000, aspect ratio exp(0.2):
    # w = sqrt(60000 e^0.2) = 270.71, h = sqrt(60000 / e^0.2) = 221.64
    rng = ScriptedGenerator([0.5, 0.2], [11, 22])
    assert random_box(400, 300, SCALE, RATIO, rng) == (22, 11, 271, 222)  # the row is drawn first
    assert rng.calls == [(0.08, 1.0), (math.log(3 / 4), math.log(4 / 3)), 300 - 222 + 1, 400 - 271 + 1]


def test_a_box_that_exceeds_the_image_is_drawn_again():
    # 0.99 of 400 x 300 at 0.75: w = sqrt(118800 * 0.75) = 298.5, h = sqrt(118800 / 0.75) = 398 > 300
    rng = ScriptedGenerator([0.99, math.log(0.75), 1.0, math.log(4 / 3)], [0, 0])
    assert random_box(400, 300, SCALE, RATIO, rng) == (0, 0, 400, 300)
    rng = ScriptedGenerator([0.1, 0.0] * 10)  # rounds to no pixel at all
    assert random_box(1, 1, (0.08, 0.2), RATIO, rng) == (0, 0, 1, 1)


@pytest.mark.parametrize(
    "width, height, box",
    [
        (600, 100, (233, 0, 133, 100)),  # 100 * 4 / 3 = 133.3; (600 - 133) // 2
        (100, 600, (0, 233, 100, 133)),
        (400, 300, (0, 0, 400, 300)),
        (301, 400, (0, 0, 301, 400)),  # allowed aspect ratio: the whole image
        (299, 400, (0, 0, 299, 399)),
        (402, 301, (0, 0, 401, 301)),
    ],
)
def test_after_ten_failures_the_largest_central_box(width, height, box):
    aspect = math.log(3 / 4) if width >= height else math.log(4 / 3)
    rng = ScriptedGenerator([1.0, aspect] * 10 + [pytest.fail])
    assert random_box(width, height, SCALE, RATIO, rng) == box and len(rng.calls) == 20


@settings(max_examples=150, deadline=None)
@given(width=st.integers(1, 800), height=st.integers(1, 800), seed=st.integers(0, 999))
def test_a_random_box_lies_in_the_image(width, height, seed):
    left, top, w, h = random_box(width, height, SCALE, RATIO, np.random.default_rng(seed))
    assert left >= 0 and top >= 0 and w >= 1 and h >= 1 and left + w <= width and top + h <= height


def test_areas_are_uniform_and_aspect_ratios_log_uniform():
    boxes = draw_random_boxes(1000, 1000, scale=(0.08, 0.5))  # none of these can exceed the image
    areas, ratios = boxes[:, 2] * boxes[:, 3] / 1e6, np.log(boxes[:, 2] / boxes[:, 3])
    for values, low, high in ((areas, 0.08, 0.5), (ratios, -math.log(4 / 3), math.log(4 / 3))):
        fractions = np.sort((values - low) / (high - low))
        assert fractions[0] > -0.01 and fractions[-1] < 1.01
        assert np.abs(fractions - (np.arange(3000) + 0.5) / 3000).max() < 1.63 / 3000**0.5  # Kolmogorov-Smirnov, 1 %


def test_positions_are_uniform():
    boxes = draw_random_boxes(1000, 1000, scale=(0.25, 0.25), ratio=(1.0, 1.0))
    assert set(map(tuple, boxes[:, 2:])) == {(500, 500)}
    for positions in (boxes[:, 0], boxes[:, 1]):
        assert np.abs(np.sort(positions) / 500 - (np.arange(3000) + 0.5) / 3000).max() < 1.63 / 3000**0.5
    assert abs(np.corrcoef(boxes[:, 0], boxes[:, 1])[0, 1]) < 0.08
