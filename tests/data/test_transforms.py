"""Boxes, frames and steps of a geometry against numbers computed by hand, Pillow, OpenCV and numpy."""

import math
from fractions import Fraction

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from zoo.data.errors import BadSample
from zoo.data.transforms import clips
from zoo.data.transforms.geometry import Geometry, random_box, short_side_size
from zoo.data.transforms.pixels import apply, finish, flip, pad, resize, scale

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


@settings(max_examples=300)
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


def test_three_views_are_left_right_center():
    video = clip(2, 32, 45)
    views = views_of(video, 32, 3)
    assert len(views) == 3
    for view, left in zip(views, (0, 12, 6)):  # steps of 13 // 4 = 3
        assert np.array_equal(view, video[:, :, left : left + 32])
    small = views_of(video, 28, 3)  # vertical step 4 // 4 = 1, horizontal 17 // 4 = 4
    for view, left in zip(small, (0, 16, 8)):
        assert np.array_equal(view, video[:, 2:30, left : left + 28])


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
        return next(self.uniforms, 1e-9)  # no box at all, where there are too few

    def integers(self, high):
        self.calls.append(high)
        return next(self.positions)


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


@settings(max_examples=150)
@given(width=st.integers(1, 800), height=st.integers(1, 800), seed=st.integers(0, 999))
def test_a_random_box_lies_in_the_image(width, height, seed):
    left, top, w, h = random_box(width, height, SCALE, RATIO, np.random.default_rng(seed))
    assert left >= 0 and top >= 0 and w >= 1 and h >= 1 and left + w <= width and top + h <= height


LENGTHS = st.integers(1, 400)
COUNTS = st.integers(1, 32)


def middles(n, t):
    """Return floor((k + 1/2) n / t) in exact arithmetic."""
    return [math.floor(Fraction(n, t) * (k + Fraction(1, 2))) for k in range(t)]


def draw_many(function, n, t, times):
    generator = rng()
    return np.stack([function(n, t, generator) for _ in range(times)])


def test_known_frames_of_a_300_frame_video():
    assert clips.uniform_val(300, 8).tolist() == [18, 56, 93, 131, 168, 206, 243, 281]
    assert clips.uniform_test(300, 8).tolist() == [18, 56, 93, 131, 168, 206, 243, 281]
    assert clips.twice_test(300, 8).tolist() == [
        [18, 56, 93, 131, 168, 206, 243, 281],
        [0, 37, 75, 112, 150, 187, 225, 262],
    ]
    dense = clips.dense_test(300, 8)
    assert dense[:, 0].tolist() == [0, 26, 52, 78, 104, 131, 157, 183, 209, 236]
    assert dense[0].tolist() == [0, 8, 16, 24, 32, 40, 48, 56]
    assert dense[9].tolist() == [236, 244, 252, 260, 268, 276, 284, 292]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_fewer_frames_than_segments(n):
    assert clips.uniform_train(n, 8, rng()).tolist() == [0] * 8
    assert clips.uniform_val(n, 8).tolist() == [0] * 8
    assert clips.uniform_test(n, 8).tolist() == [(2 * k + 1) * n // 16 for k in range(8)]  # spread out
    assert clips.twice_test(n, 8)[1].tolist() == [k * n // 8 for k in range(8)]


def test_as_many_frames_as_segments():
    assert clips.uniform_val(8, 8).tolist() == [0] * 8  # as upstream does
    assert clips.uniform_test(8, 8).tolist() == list(range(8))
    assert clips.uniform_train(8, 8, rng()).tolist() == list(range(8))
    assert clips.uniform_val(9, 8).tolist() == middles(9, 8)


def test_uniform_training_draws_every_frame_but_the_tail():
    frames = draw_many(clips.uniform_train, 300, 8, 1500)  # segments of 37 frames, 296..299 are the tail
    for k in range(8):
        assert set(frames[:, k].tolist()) == set(range(37 * k, 37 * k + 37))
    assert frames.max() == 295
    # The offsets of two segments are independent.
    assert abs(np.corrcoef(frames[:, 0], frames[:, 1])[0, 1]) < 0.1


def test_dense_training_draws_every_start_but_the_last_valid_one():
    frames = draw_many(clips.dense_train, 70, 8, 1000)
    assert set(frames[:, 0].tolist()) == set(range(6))  # 0..6 are valid
    assert (frames == frames[:, :1] + np.arange(8) * 8).all()


@pytest.mark.parametrize("n, starts", [(64, {0}), (65, {0}), (66, {0, 1}), (10, {0})])
def test_dense_training_near_the_span(n, starts):
    assert set(draw_many(clips.dense_train, n, 8, 100)[:, 0].tolist()) == starts


def test_dense_sampling_wraps_around_in_a_short_video():
    assert clips.dense_train(20, 8, rng()).tolist() == [0, 8, 16, 4, 12, 0, 8, 16]
    assert clips.dense_test(20, 8).tolist() == [[0, 8, 16, 4, 12, 0, 8, 16]] * 10


@settings(max_examples=200)
@given(n=LENGTHS, t=COUNTS, seed=st.integers(0, 2**32))
def test_every_frame_lies_in_the_video(n, t, seed):
    shapes = {
        "uniform_train": (t,),
        "uniform_val": (t,),
        "uniform_test": (t,),
        "twice_test": (2, t),
        "dense_train": (t,),
        "dense_test": (10, t),
    }
    for name, shape in shapes.items():
        extra = (rng(seed),) if name.endswith("train") else ()
        frames = getattr(clips, name)(n, t, *extra)
        assert frames.shape == shape and frames.dtype == np.int64
        assert frames.min() >= 0 and frames.max() < n
        if name.startswith("uniform"):
            assert (np.diff(frames) >= 0).all()


IMAGE = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)


def test_nothing_to_do():
    assert np.array_equal(apply(IMAGE, Geometry()), IMAGE)
    assert np.array_equal(apply(IMAGE, Geometry(size=(40, 30))), IMAGE)


def test_every_step_alone():
    assert np.array_equal(apply(IMAGE, Geometry(box=(3, 2, 10, 7))), IMAGE[2:9, 3:13])
    assert np.array_equal(apply(IMAGE, Geometry(window=(3, 2, 10, 7))), IMAGE[2:9, 3:13])
    assert np.array_equal(apply(IMAGE, Geometry(flip=True)), IMAGE[:, ::-1])
    assert np.array_equal(apply(IMAGE, Geometry(size=(20, 12))), cv2.resize(IMAGE, (20, 12)))
    padded = apply(IMAGE, Geometry(canvas=(42, 33), fill=(1, 2, 3)))
    assert padded.shape == (33, 42, 3) and np.array_equal(padded[:30, :40], IMAGE)
    assert (padded[30:] == (1, 2, 3)).all() and (padded[:, 40:] == (1, 2, 3)).all()


def test_a_canvas_never_cuts():
    assert np.array_equal(apply(IMAGE, Geometry(canvas=(10, 10))), IMAGE)


@pytest.mark.parametrize("antialias", [False, True])
def test_the_order_of_the_steps(antialias):
    geometry = Geometry((4, 2, 30, 20), (45, 30), antialias, (5, 3, 20, 25), True, (24, 26), (9, 9, 9))
    resized = scale(IMAGE, geometry)
    assert resized.shape == (30, 45, 3)
    expected = resized[3:28, 5:25][:, ::-1]
    result = apply(IMAGE, geometry)
    assert result.shape == (26, 24, 3) and np.array_equal(result[:25, :20], expected)
    assert np.array_equal(finish(resized, geometry), result) and result.flags.c_contiguous


def test_masks_have_no_channels():
    mask = IMAGE[..., 0]
    assert np.array_equal(flip(mask), mask[:, ::-1])
    assert pad(mask, (50, 31), (255,)).shape == (31, 50) and pad(mask, (50, 31), (255,))[30].min() == 255


@pytest.mark.parametrize(
    "width, height, expected",
    [
        (320, 240, (341, 256)),  # 341.33
        (240, 320, (256, 341)),
        (640, 360, (455, 256)),  # 455.11
        (199, 100, (509, 256)),  # 509.44
        (340, 256, (340, 256)),
        (300, 300, (256, 256)),
        (48, 64, (256, 341)),
    ],
)
def test_the_longer_side_is_truncated(width, height, expected):
    assert short_side_size((width, height), 256) == expected


@pytest.mark.parametrize(
    "antialias, expected",
    [
        (False, [5, 25, 45, 65]),  # the mean of the two nearest pixels
        # Weights 1/8 3/8 3/8 1/8 of four; at the borders the outer one is left out: (3 * 0 + 3 * 10 + 20) / 7
        (True, [7, 25, 45, 63]),
    ],
)
def test_the_resize_is_bilinear_with_half_pixel_centers(antialias, expected):
    ramp = np.tile(np.arange(8, dtype=np.uint8)[None, :, None] * 10, (4, 1, 3))
    assert apply(ramp, Geometry(size=(4, 4), antialias=antialias))[0, :, 0].tolist() == expected
    assert scale(ramp, Geometry(size=(8, 4), antialias=antialias)) is ramp


@pytest.mark.parametrize("size", [(17, 11), (60, 40), (9, 33)])
def test_a_resized_box_equals_that_of_opencv_and_pillow(size):
    """Up and down; pixels outside of the box must not count."""
    box = np.ascontiguousarray(IMAGE[4:24, 5:35])
    pillow = np.asarray(Image.fromarray(box).resize(size, Image.Resampling.BILINEAR))
    assert np.array_equal(apply(IMAGE, Geometry((5, 4, 30, 20), size)), cv2.resize(box, size))
    assert np.array_equal(apply(IMAGE, Geometry((5, 4, 30, 20), size, antialias=True)), pillow)


def test_the_fast_resize_is_at_most_one_level_from_pillow_s():
    """Noise, up and down, whole pixels and fractions: 400 boxes of an image."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (300, 400, 3), dtype=np.uint8)
    image[:, :200] = np.where(image[:, :200] > 127, 255, 0)
    for number in range(400):
        left, top = rng.uniform(0, 150, 2) if number % 2 else rng.integers(0, 150, 2)
        edges = (left, top, left + rng.uniform(20, 240), top + rng.uniform(20, 140))
        size = tuple(map(int, rng.integers(8, 260, 2)))
        exact, fast = (resize(image, *size, True, edges, fast).astype(int) for fast in (False, True))
        assert np.abs(exact - fast).max() <= 1
        assert 0 < np.mean(exact != fast) < 0.3  # else one of them is not what it says


def test_the_input_is_kept():
    original = IMAGE.copy()
    for geometry in (Geometry(flip=True), Geometry(window=(1, 2, 3, 4)), Geometry((0, 0, 9, 9), (5, 5), True)):
        first, second = apply(IMAGE, geometry).copy(), apply(IMAGE, geometry)
        assert np.array_equal(first, second) and np.array_equal(IMAGE, original)


@pytest.mark.parametrize("antialias", [True, False])
def test_a_strip_is_not_enlarged_to_billions_of_pixels(antialias):
    with pytest.raises(BadSample, match="its 1x60000 pixels would become 256x15360000; the limit is 67108864 in all"):
        resize(np.zeros((60000, 1, 3), np.uint8), 256, 256 * 60000, antialias)
