"""Pixels of the direct JPEG decoder against Pillow's, and which files it leaves to Pillow."""

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from zoo.data.formats import jpeg


def encode(width, height, mode="RGB", **options):
    coarse = np.random.default_rng(width).uniform(0, 255, (5, 6, 3)).astype(np.float32)
    pixels = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    noisy = np.clip(pixels + np.random.default_rng(1).normal(0, 9, pixels.shape), 0, 255).astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(noisy).convert(mode).save(content, "JPEG", **{"quality": 88, **options})
    return content.getvalue()


@pytest.mark.parametrize("scale", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subsampling": "4:4:4"},
        {"subsampling": "4:2:2"},
        {"subsampling": "4:1:1"},
        {"progressive": True},
        {"mode": "L"},
        {"restart_marker_blocks": 3},
        {"keep_rgb": True},
    ],
    ids=str,
)
def test_pixels_are_those_of_pillow(options, scale):
    for width, height in ((120, 90), (97, 65), (17, 13), (8, 16)):
        content = encode(width, height, **options)
        assert jpeg.read_header(content)[:3] == (width, height, False)
        image = Image.open(io.BytesIO(content))
        if scale > 1:
            image.draft(None, (max(width // scale, 1), max(height // scale, 1)))
        if image.size != (-(-width // scale), -(-height // scale)):
            continue  # Pillow takes a larger scale for tiny images
        assert np.array_equal(jpeg.decode(content, scale), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("orientation", [3, 6])
def test_orientation_is_reported_and_not_applied(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encode(40, 24, exif=exif)
    assert jpeg.read_header(content)[:3] == (40, 24, True) and jpeg.decode(content).shape == (24, 40, 3)


def test_files_for_pillow():
    intact = encode(64, 48)
    png = io.BytesIO()
    Image.new("RGB", (4, 4)).save(png, "PNG")
    scan_first = jpeg.START + b"\xff\xda\0\x02" + jpeg.END
    arithmetic = intact.replace(b"\xff\xc0\0\x11", b"\xff\xc9\0\x11")
    twelve_bits = intact.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x0c")
    empty = intact.replace(b"\xff\xc0\0\x11\x08\0\x30", b"\xff\xc0\0\x11\x08\0\0")
    others = [b"", png.getvalue(), encode(9, 9, "CMYK"), intact + b"trailing", intact[:-2], scan_first]
    others += [arithmetic, twelve_bits, empty, jpeg.START + jpeg.END, jpeg.START + b"\xff\xe0\0\0" + jpeg.END]
    assert [jpeg.read_header(content) for content in others] == [None] * len(others)
    assert all(jpeg.read_header(intact[:length]) is None for length in range(len(intact)))


def test_a_header_of_endless_segments_is_given_up():
    content = jpeg.START + b"\xff\xe0\0\x02" * (jpeg.MAX_SEGMENTS + 1) + encode(8, 8)[2:]
    assert jpeg.read_header(content) is None


def test_what_cannot_be_decoded_is_none():
    intact = bytearray(encode(64, 48))
    assert jpeg.decode(bytes(intact[:200]) + jpeg.END) is None
