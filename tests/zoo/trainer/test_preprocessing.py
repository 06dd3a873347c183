"""Constants of the pixel normalization."""

import numpy as np
import pytest

from zoo.data.batch import Field
from zoo.trainer.pixels import channels_first, scale_and_offset

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_scale_and_offset_normalize_pixels():
    scale, offset = scale_and_offset(Field("image", (4, 4, 3), "uint8", MEAN, STD))
    assert scale.dtype == offset.dtype == np.float32 and scale.shape == offset.shape == (3,)
    pixels = np.arange(256, dtype=np.float32)[:, None].repeat(3, 1)
    expected = (pixels.astype(np.float64) / 255 - MEAN) / STD
    np.testing.assert_allclose(pixels * scale + offset, expected, atol=1e-6)


def test_a_field_without_pixels_has_no_constants():
    assert scale_and_offset(Field("features", (4,), "float32")) is None


@pytest.mark.parametrize("shape", [(2, 5, 6, 3), (2, 4, 5, 6, 3)])
def test_channels_come_first(shape):
    array = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(array.transpose(channels_first(array.ndim)), np.moveaxis(array, -1, -3))
