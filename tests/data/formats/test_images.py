"""Decoding of pictures: against Pillow's own operations in torchvision's order, and every kind of file people have."""

import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from data.errors import BadSample
from data.formats import images

BILINEAR = Image.Resampling.BILINEAR
pytestmark = pytest.mark.filterwarnings(r"ignore:::PIL\.")  # pytest undoes the filter of data/formats/images.py


def smooth(width=120, height=90, seed=0):
    """A picture without an edge: (height, width, 3)."""
    coarse = np.random.default_rng(seed).uniform(0, 255, (4, 5, 3)).astype(np.float32)
    return np.clip(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC), 0, 255).astype(np.uint8)


def noisy(width=120, height=90, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def saved(folder, image, name="x.png", **keys):
    path = folder / name
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    image.save(path, **{"format": "PNG" if name.endswith("png") else "JPEG", **keys})
    return str(path)


def whole(path, size=40, **keys):
    return images.decode_crop(path, lambda width, height: (0, 0, width, height), size, **keys)


def reason(path):
    with pytest.raises(BadSample) as caught:
        whole(str(path))
    with pytest.raises(BadSample):
        images.decode_center(str(path), 40, 30)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def apart(one, other):
    return np.abs(one.astype(int) - other.astype(int)).max()


@pytest.mark.parametrize("box", [(0, 0, 120, 90), (13, 7, 61, 80), (119, 89, 1, 1), (30, 20, 40, 40), (0, 50, 100, 3)])
def test_a_region_is_torchvisions_crop_then_resize(box, tmp_path):
    pixels = noisy()
    path, (left, top, width, height) = saved(tmp_path, pixels), box
    cut = Image.fromarray(pixels[top : top + height, left : left + width])
    want = np.asarray(cut.resize((40, 40), BILINEAR))
    got = images.decode_crop(path, lambda *_: box, 40)
    assert np.array_equal(got, want) and got.dtype == np.uint8 and got.flags.c_contiguous


def test_shrinking_is_antialiased(tmp_path):
    """Stripes one pixel wide become grey; plain bilinear would show every third of them."""
    stripes = np.tile(np.array([0, 255], np.uint8)[None, :, None], (90, 60, 3))
    inner = whole(saved(tmp_path, stripes))[:, 1:-1]
    assert inner.min() > 110 and inner.max() < 145 and np.ptp(cv2.resize(stripes, (40, 40))) == 255


def test_recorded_values_of_a_ramp(tmp_path):
    """A triangle over two source pixels to either side, by hand: output pixel i has its centre at 2i + 1 of 8."""
    ramp = np.tile(np.arange(0, 80, 10, dtype=np.uint8)[None, :, None], (8, 1, 3))
    # weights 1/8 3/8 3/8 1/8 of 4 neighbours; at the borders the one outside is left out: (3 * 0 + 3 * 10 + 20) / 7
    assert whole(saved(tmp_path, ramp), 4)[0, :, 0].tolist() == [7, 25, 45, 63]


@pytest.mark.parametrize(
    "width, height, target",
    [(120, 90, (42, 32)), (90, 120, (32, 42)), (50, 50, (32, 32)), (20, 31, (32, 49)), (199, 100, (63, 32))],
)
def test_the_centre_is_torchvisions_resize_then_center_crop(width, height, target, tmp_path):
    pixels = noisy(width, height)
    resized = np.asarray(Image.fromarray(pixels).resize(target, BILINEAR))
    left, top = int(round((target[0] - 28) / 2.0)), int(round((target[1] - 28) / 2.0))
    got = images.decode_center(saved(tmp_path, pixels), 32, 28)
    assert np.array_equal(got, resized[top : top + 28, left : left + 28]) and got.shape == (28, 28, 3)


@pytest.mark.parametrize("orientation", [None, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_exif_orientation_is_obeyed(orientation, tmp_path):
    exif = Image.Exif()
    if orientation is not None:
        exif[images.EXIF_ORIENTATION] = orientation
    path = saved(tmp_path, smooth(96, 64), "x.jpg", exif=exif, quality=95)
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    seen = []
    box = (10, 20, 40, 30)
    got = images.decode_crop(path, lambda *size: seen.append(size) or box, 30)
    assert seen == [upright.shape[1::-1]]
    want = Image.fromarray(upright).crop((10, 20, 50, 50)).resize((30, 30), BILINEAR)
    assert apart(got, np.asarray(want)) <= 1  # rows first or columns first: one rounding
    short = (48, 72) if upright.shape[0] > upright.shape[1] else (72, 48)
    want = np.asarray(Image.fromarray(upright).resize(short, BILINEAR))
    left, top = (short[0] - 40) // 2, (short[1] - 40) // 2
    assert apart(images.decode_center(path, 48, 40), want[top : top + 40, left : left + 40]) <= 1
    reduced = images.decode_crop(path, lambda *_: box, 15, reduce=True)
    assert np.abs(reduced.astype(int) - images.decode_crop(path, lambda *_: box, 15).astype(int)).mean() < 2


def test_a_mark_of_orientation_in_a_broken_exif_block_is_no_reason_to_refuse(tmp_path):
    path = saved(tmp_path, smooth(), "x.jpg", exif=b"Exif\0\0II*\0\xff\xff\0\0garbage")
    assert apart(whole(path), whole(saved(tmp_path, smooth(), "y.jpg"))) == 0


@pytest.mark.parametrize("room, factor", [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (50, 8)])
def test_the_scale_of_a_reduced_decode(room, factor, tmp_path):
    for width, height in ((160, 120), (161, 123), (167, 127)):
        image = Image.open(saved(tmp_path, smooth(width, height), "x.jpg"))
        assert images._draft_jpeg(image, room) == pytest.approx(factor)
        assert image.size == (-(-width // factor), -(-height // factor))


@settings(max_examples=60, deadline=None)
@given(width=st.integers(1, 300), height=st.integers(1, 300), room=st.integers(1, 300))
def test_a_picture_never_comes_out_smaller_than_its_scale_allows(width, height, room):
    room = min(room, width, height)
    encoded = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(encoded, "JPEG")
    image = Image.open(encoded)
    factor = images._draft_jpeg(image, room)
    assert factor in (1, 2, 4, 8) and factor <= room


@pytest.mark.parametrize("box", [(0, 0, 641, 483), (101, 33, 420, 410), (37, 11, 333, 290), (639, 481, 2, 2)])
def test_a_reduced_decode_shows_the_same_region(box, tmp_path):
    path = saved(tmp_path, smooth(641, 483), "x.jpg", quality=95)
    full, reduced = (images.decode_crop(path, lambda *_: box, 48, reduce=reduce) for reduce in (False, True))
    assert apart(full, reduced) <= 4 and np.abs(full.astype(int) - reduced).mean() < 1


def test_a_reduced_decode_is_not_shifted(tmp_path):
    """On a slope, a shift by half a pixel of the file differs by 0.25, signed as the slope; rounding is not."""
    slope, differences = np.tile(np.linspace(0, 255, 512).astype(np.uint8)[None, :, None], (512, 1, 3)), {}
    for name, pixels in (("up.jpg", slope), ("down.jpg", np.ascontiguousarray(slope[:, ::-1]))):
        path = saved(tmp_path, pixels, name, quality=98)
        differences[name] = np.array(
            [
                np.subtract(
                    *(
                        images.decode_crop(path, lambda *_: (64, 64, 400, 400), size, reduce).astype(float)
                        for reduce in (False, True)
                    )
                ).mean()
                for size in (40, 90, 200)
            ]
        )
    assert np.abs(differences["up.jpg"] - differences["down.jpg"]).max() / 2 < 0.05


def test_only_where_asked_for_and_where_there_is_room(tmp_path, monkeypatch):
    path, rooms, reduced = saved(tmp_path, smooth(400, 300), "x.jpg"), [], images._draft_jpeg
    monkeypatch.setattr(images, "_draft_jpeg", lambda image, room: rooms.append(room) or reduced(image, room))
    for size, reduce in ((50, True), (100, True), (224, True), (50, False)):
        images.decode_crop(path, lambda *_: (0, 0, 400, 250), size, reduce)
    assert rooms == [5, 2, 1, 1]


def test_the_kinds_of_pictures(tmp_path):
    pixels = smooth()
    plain, image = whole(saved(tmp_path, pixels)), Image.fromarray(pixels)
    grey = np.asarray(image.convert("L").convert("RGB").resize((40, 40), BILINEAR))
    assert np.array_equal(whole(saved(tmp_path, image.convert("L"))), grey)
    assert apart(whole(saved(tmp_path, image.convert("L"), "x.jpg", quality=98)), grey) <= 3
    assert apart(whole(saved(tmp_path, image.convert("CMYK"), "x.jpg", quality=98)), plain) <= 6
    assert apart(whole(saved(tmp_path, image, "n02105855_2933.JPEG", format="PNG")), plain) == 0
    assert apart(whole(saved(tmp_path, image, "x.bmp", format="BMP")), plain) == 0
    assert apart(whole(saved(tmp_path, image, "x.webp", format="WEBP", lossless=True)), plain) == 0
    assert apart(whole(saved(tmp_path, image, "x.tif", format="TIFF")), plain) == 0
    palette = image.quantize(64)
    want = np.asarray(palette.convert("RGB").resize((40, 40), BILINEAR))
    assert np.array_equal(whole(saved(tmp_path, palette)), want)
    assert np.array_equal(whole(saved(tmp_path, palette, "x.gif", format="GIF")), want)
    assert set(np.unique(whole(saved(tmp_path, image.convert("1")), 90))) <= set(range(256))


def test_transparency_is_dropped(tmp_path):
    pixels = smooth()
    alpha = np.random.default_rng(1).integers(0, 256, (90, 120, 1), dtype=np.uint8)
    path = saved(tmp_path, np.concatenate([pixels, alpha], 2))
    assert np.array_equal(whole(path), whole(saved(tmp_path, pixels, "y.png")))
    grey = Image.fromarray(pixels).convert("LA")
    assert np.array_equal(whole(saved(tmp_path, grey)), whole(saved(tmp_path, grey.convert("L"), "y.png")))


def test_16_bits_are_scaled_and_not_clipped(tmp_path):
    values = (np.arange(120 * 90, dtype=np.uint16) * 6).reshape(90, 120)
    cv2.imwrite(str(tmp_path / "grey.png"), values)
    want = Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB").resize((40, 40), BILINEAR)
    assert np.array_equal(whole(str(tmp_path / "grey.png")), np.asarray(want))
    cv2.imwrite(str(tmp_path / "colour.png"), smooth()[:, :, ::-1].astype(np.uint16) * 257)
    assert apart(whole(str(tmp_path / "colour.png")), whole(saved(tmp_path, smooth()))) <= 1
    assert "32 bits" in reason(saved(tmp_path, Image.new("F", (60, 50)), "x.tif", format="TIFF"))


@pytest.mark.parametrize("name", ["x.jpg", "x.png"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_cut_file_is_bad(name, share, tmp_path):
    path = tmp_path / name
    saved(tmp_path, noisy(), name)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert reason(path)


@settings(max_examples=80, deadline=None)
@given(kind=st.sampled_from(["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP"]), seed=st.integers(0, 10_000))
def test_damage_gives_pixels_or_a_bad_sample_and_nothing_else(kind, seed, tmp_path_factory):
    rng, encoded = np.random.default_rng(seed), io.BytesIO()
    Image.fromarray(noisy(40, 30)).save(encoded, kind)
    content = bytearray(encoded.getvalue())
    for _ in range(int(rng.integers(1, 12))):
        content[int(rng.integers(min(len(content), 600)))] = int(rng.integers(256))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)
    try:
        assert whole(str(path), 16).shape == (16, 16, 3)
    except BadSample as error:
        assert str(error)


def test_files_that_are_no_pictures(tmp_path):
    path = tmp_path / "x.jpg"
    assert reason(path) == "no such file"
    path.write_bytes(b"")
    assert reason(path) == "the file is empty"
    for content in (
        b"not a picture\n" * 50,
        b"<html></html>",
        b"\xff\xd8\xff",
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        bytes(1000),
    ):
        path.write_bytes(content)
        assert reason(path)
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    assert reason(path) == "not an image of a supported format"  # Pillow would start a program for it
    (tmp_path / "folder.jpg").mkdir()
    assert "cannot be read" in reason(tmp_path / "folder.jpg")


def test_a_huge_header_is_refused_before_anything_is_decoded(tmp_path):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    path = tmp_path / "x.png"
    for side in (10_000, 60_000, 2_000_000):
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b""))
        assert "pixels" in reason(path) and len(reason(path)) < 200
    assert images.MAX_PIXELS > 9331 * 6530  # the largest picture of ImageNet


def test_an_error_of_the_caller_is_not_a_bad_sample(tmp_path):
    path = saved(tmp_path, smooth())
    with pytest.raises(ZeroDivisionError):
        images.decode_crop(path, lambda *_: 1 // 0, 40)


def test_the_same_pixels_give_the_same_jpeg(tmp_path):
    for name in ("a.jpg", "b.jpg"):
        images.write_jpeg(str(tmp_path / name), smooth(), 90)
    assert (tmp_path / "a.jpg").read_bytes() == (tmp_path / "b.jpg").read_bytes()
    assert apart(whole(str(tmp_path / "a.jpg")), whole(saved(tmp_path, smooth()))) < 12
