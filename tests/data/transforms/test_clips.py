"""Geometry of the crops against numbers computed by hand."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data.transforms import clips

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


@pytest.mark.parametrize(
    "height, width, expected",
    [
        (240, 320, (256, 341)),  # 341.33
        (320, 240, (341, 256)),
        (360, 640, (256, 455)),  # 455.11
        (100, 199, (256, 509)),  # 509.44
        (256, 340, (256, 340)),
        (300, 300, (256, 256)),
        (64, 48, (341, 256)),
    ],
)
def test_resize_short_truncates_the_long_side(height, width, expected):
    assert clips.resize_short(clip(1, height, width), 256, False).shape == (1, *expected, 3)


@settings(max_examples=60, deadline=None)
@given(width=st.integers(2, 60), height=st.integers(2, 60), short_side=st.integers(8, 40))
def test_resize_short_keeps_the_aspect_ratio(width, height, short_side):
    out = clips.resize_short(np.zeros((1, height, width, 3), np.uint8), short_side, True)
    small, large = sorted((width, height))
    assert min(out.shape[1:3]) == short_side and max(out.shape[1:3]) == short_side * large // small
    assert (out.shape[2] > out.shape[1]) <= (width > height)


@pytest.mark.parametrize(
    "antialias, expected",
    [
        (False, [5, 25, 45, 65]),  # the mean of the two nearest pixels
        # Weights 1/8 3/8 3/8 1/8 of four; at the borders the outer one is left out: (3 * 0 + 3 * 10 + 20) / 7
        (True, [7, 25, 45, 63]),
    ],
)
def test_resize_is_bilinear_with_half_pixel_centers(antialias, expected):
    ramp = np.tile(np.arange(8, dtype=np.uint8)[None, None, :, None] * 10, (2, 4, 1, 3))
    out = clips.resize(ramp, 4, 4, antialias)
    assert out.shape == (2, 4, 4, 3) and out[0, 0, :, 0].tolist() == expected
    assert clips.resize(ramp, 8, 4, antialias) is ramp


@pytest.mark.parametrize("width, height", [(17, 11), (60, 40), (9, 33)])
def test_frames_of_a_crop_equal_those_of_opencv_and_pillow(width, height):
    """Up and down; the frames are views of larger ones, whose other pixels must not count."""
    video = clip(3, 30, 40)[:, 4:24, 5:35]
    plain, antialiased = (clips.resize(video, width, height, antialias) for antialias in (False, True))
    for index, frame in enumerate(np.ascontiguousarray(video)):
        opencv = cv2.resize(frame, (width, height), interpolation=cv2.INTER_LINEAR)
        pillow = Image.fromarray(frame).resize((width, height), Image.Resampling.BILINEAR)
        assert np.array_equal(plain[index], opencv) and np.array_equal(antialiased[index], np.asarray(pillow))


def test_shrinking_with_antialias_averages_and_without_keeps_single_pixels():
    stripes = np.tile(np.array([0, 255], np.uint8)[None, None, :, None], (1, 90, 60, 3))
    assert np.ptp(clips.resize(stripes, 40, 30, True)[0, :, 1:-1]) < 40
    assert np.ptp(clips.resize(stripes, 40, 30, False)) == 255


def test_crop_takes_left_top_width_height():
    video = clip(2, 10, 12)
    assert np.array_equal(clips.crop(video, (3, 1, 5, 7)), video[:, 1:8, 3:8])


def test_flip_is_horizontal_and_its_own_inverse():
    video = clip(2, 5, 7)
    assert np.array_equal(clips.flip(video)[:, :, 0], video[:, :, 6])
    assert np.array_equal(clips.flip(clips.flip(video)), video)


def test_one_view_is_the_center():
    video = clip(2, 32, 43)
    (only,) = clips.views(video, 28, 1)
    assert np.array_equal(only, video[:, 2:30, 8:36])  # 7.5 rounds to 8


def test_three_views_are_left_right_center():
    video = clip(2, 32, 45)
    views = clips.views(video, 32, 3)
    assert len(views) == 3
    for view, left in zip(views, (0, 12, 6)):  # steps of 13 // 4 = 3
        assert np.array_equal(view, video[:, :, left : left + 32])
    small = clips.views(video, 28, 3)  # vertical step 4 // 4 = 1, horizontal 17 // 4 = 4
    for view, left in zip(small, (0, 16, 8)):
        assert np.array_equal(view, video[:, 2:30, left : left + 28])


def test_three_views_of_a_portrait_clip_are_the_same():
    video = clip(2, 50, 32)
    first, second, third = clips.views(video, 32, 3)
    assert np.array_equal(first, second) and np.array_equal(first, third)
    assert np.array_equal(first, video[:, 8:40])  # 2 * (18 // 4)


def test_ten_views_are_corners_and_center_each_with_its_flip():
    video = clip(2, 32, 45)
    views = clips.views(video, 28, 10)
    assert len(views) == 10
    for number, (left, top) in enumerate([(0, 0), (16, 0), (0, 4), (16, 4), (8, 2)]):
        expected = video[:, top : top + 28, left : left + 28]
        assert np.array_equal(views[2 * number], expected)
        assert np.array_equal(views[2 * number + 1], expected[:, :, ::-1])


@pytest.mark.parametrize(
    "transform",
    [
        lambda x: clips.resize(x, 9, 9, True),
        lambda x: clips.resize(x, 9, 9, False),
        lambda x: clips.resize_short(x, 8, True),
        lambda x: clips.crop(x, (1, 2, 3, 4)),
        lambda x: clips.flip(x),
        lambda x: np.stack(clips.views(x, 8, 10)),
    ],
)
def test_transforms_are_deterministic_and_keep_their_input(transform):
    video = clip(2, 12, 14)
    original = video.copy()
    first, second = transform(video).copy(), transform(video)
    assert np.array_equal(video, original) and np.array_equal(first, second)
