"""Geometry of the crops against numbers computed by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.transforms import clips
from zoo.data.transforms.geometry import Geometry
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
    expected = {
        (0, 0),
        (116, 0),
        (0, 32),
        (116, 32),
        (58, 16),
        (0, 16),
        (116, 16),
        (58, 32),
        (58, 0),
        (29, 8),
        (87, 8),
        (29, 24),
        (87, 24),
    }
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


def test_snapping_applies_to_every_scale():
    # int(256 * 0.87) = 222 and int(256 * 0.88) = 225 snap, int(256 * 0.89) = 227 does not.
    assert sizes_of(draw_boxes(340, 256, scales=(0.87,), times=20)) == {(224, 224)}
    assert sizes_of(draw_boxes(340, 256, scales=(0.88,), times=20)) == {(224, 224)}
    assert sizes_of(draw_boxes(340, 256, scales=(0.89,), times=20)) == {(227, 227)}


@settings(max_examples=300, deadline=None)
@given(width=st.integers(1, 700), height=st.integers(1, 700), size=st.integers(14, 320), seed=st.integers(0, 999))
def test_the_box_lies_in_the_frame_and_is_not_empty(width, height, size, seed):
    left, top, w, h = clips.multi_scale_box(width, height, size, SCALES, rng(seed))
    assert left >= 0 and left + w <= width and top >= 0 and top + h <= height
    assert w >= 1 and h >= 1


@pytest.mark.parametrize("seed", range(5))
def test_the_same_generator_draws_the_same_box(seed):
    assert clips.multi_scale_box(340, 256, 224, SCALES, rng(seed)) == clips.multi_scale_box(
        340, 256, 224, SCALES, rng(seed)
    )


@pytest.mark.parametrize(
    "width, left", [(224, 0), (225, 0), (226, 1), (227, 2), (228, 2), (229, 2), (231, 4), (340, 58)]
)
def test_half_pixels_of_the_center_round_to_even(width, left):
    assert clips.center_box(width, 224, 224) == (left, 0, 224, 224)
    assert clips.center_box(224, width, 224) == (0, left, 224, 224)


def views_of(video, size, crops):
    """Cut the views out of every frame of a clip (T, H, W, 3)."""
    boxes = clips.view_boxes(video.shape[2], video.shape[1], size, crops)
    return [np.stack([apply(frame, Geometry(window=box, flip=flip)) for frame in video]) for box, flip in boxes]


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
