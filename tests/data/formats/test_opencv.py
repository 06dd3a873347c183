"""Pixels decoded by versions of OpenCV that know RGB and by older ones."""

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from zoo.data.formats import opencv

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)


def encode(image_format, mode="RGB", **options):
    content = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(content, image_format, **options)
    return content.getvalue()


@pytest.mark.parametrize("rgb", [opencv.RGB, 0])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_are_rgb(monkeypatch, rgb, mode):
    monkeypatch.setattr(opencv, "RGB", rgb)
    for image_format in ("PNG", "JPEG"):
        content = encode(image_format, mode)
        assert np.array_equal(opencv.decode(content), Image.open(io.BytesIO(content)).convert("RGB"))


@pytest.mark.parametrize("flag", [cv2.IMREAD_REDUCED_COLOR_2, cv2.IMREAD_REDUCED_COLOR_8])
def test_flags_of_either_kind_give_the_same_pixels(monkeypatch, flag):
    content = encode("JPEG")
    pixels = opencv.decode(content, flag)
    monkeypatch.setattr(opencv, "RGB", 0)
    assert len(pixels) < len(PIXELS) and np.array_equal(opencv.decode(content, flag), pixels)


def test_what_is_no_image_is_none():
    assert opencv.decode(b"") is None and opencv.decode(b"no image") is None
