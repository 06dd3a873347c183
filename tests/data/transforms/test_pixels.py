"""Steps of a geometry, each against numpy, and in their order."""

import cv2
import numpy as np
import pytest

from data.transforms.geometry import Geometry, short_side_size
from data.transforms.pixels import apply, finish, flip, pad, scale

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


@pytest.mark.parametrize("size, expected", [((340, 256), (339, 256)), ((256, 341), (256, 341)), ((50, 50), (256, 256))])
def test_the_shorter_side_is_given_and_the_longer_truncated(size, expected):
    short = short_side_size(size, 256)
    assert short == (int(256 * size[0] / min(size)), int(256 * size[1] / min(size))) and min(short) == 256
    assert abs(short[0] - expected[0]) <= 1 and abs(short[1] - expected[1]) <= 1
