"""Steps of a geometry, each against numpy, and in their order."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from zoo.data.errors import BadSample
from zoo.data.transforms.geometry import Geometry, short_side_size
from zoo.data.transforms.pixels import apply, finish, flip, pad, resize, scale

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


@settings(max_examples=60, deadline=None)
@given(width=st.integers(2, 60), height=st.integers(2, 60), short_side=st.integers(8, 40))
def test_the_aspect_ratio_is_kept(width, height, short_side):
    size = short_side_size((width, height), short_side)
    small, large = sorted((width, height))
    assert min(size) == short_side and max(size) == short_side * large // small
    assert (size[0] > size[1]) <= (width > height)


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


def test_shrinking_with_antialias_averages_and_without_keeps_single_pixels():
    stripes = np.tile(np.array([0, 255], np.uint8)[None, :, None], (90, 60, 3))
    assert np.ptp(apply(stripes, Geometry(size=(40, 30), antialias=True))[:, 1:-1]) < 40
    assert np.ptp(apply(stripes, Geometry(size=(40, 30)))) == 255


def test_the_input_is_kept():
    original = IMAGE.copy()
    for geometry in (Geometry(flip=True), Geometry(window=(1, 2, 3, 4)), Geometry((0, 0, 9, 9), (5, 5), True)):
        first, second = apply(IMAGE, geometry).copy(), apply(IMAGE, geometry)
        assert np.array_equal(first, second) and np.array_equal(IMAGE, original)


@pytest.mark.parametrize("antialias", [True, False])
def test_a_strip_is_not_enlarged_to_billions_of_pixels(antialias):
    with pytest.raises(BadSample, match="its 1x60000 pixels would become 256x15360000; the limit is 67108864 in all"):
        resize(np.zeros((60000, 1, 3), np.uint8), 256, 256 * 60000, antialias)
