"""Decoding of images against Pillow's own operations, and the file formats in real data sets."""

import io
import struct

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from zoo.data.errors import BadSample
from zoo.data.formats import images, jpeg
from zoo.data.transforms.clips import center_box
from zoo.data.transforms.geometry import Geometry, short_side_size

BILINEAR = Image.Resampling.BILINEAR
pytestmark = pytest.mark.filterwarnings(r"ignore:::PIL\.")  # pytest resets the filter of data/formats/headers.py


def smooth(width=120, height=90, seed=0):
    """Return an image without edges: (height, width, 3)."""
    coarse = np.random.default_rng(seed).uniform(0, 255, (4, 5, 3)).astype(np.float32)
    return np.clip(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC), 0, 255).astype(np.uint8)


def noisy(width=120, height=90, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(folder, image, name="x.png", **keys):
    path = folder / name
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    image.save(path, **{"format": "PNG" if name.endswith("png") else "JPEG", **keys})
    return str(path)


def decode_crop(path, choose_box, size, antialias=True, reduce=False):
    """Decode a box, chosen by the size of the upright image, as a square."""
    encoded = images.read(path)
    return images.decode(encoded, Geometry(choose_box(*encoded.size), (size, size), antialias), reduce)


def decode_center(path, short_side, size, antialias=True):
    """Resize the shorter side and crop the center."""
    encoded = images.read(path)
    resized = short_side_size(encoded.size, short_side)
    return images.decode(encoded, Geometry(None, resized, antialias, center_box(*resized, size)))


def decode_all(path, size=40, **keys):
    return decode_crop(path, lambda width, height: (0, 0, width, height), size, **keys)


def reason(path):
    with pytest.raises(BadSample) as caught:
        decode_all(str(path))
    with pytest.raises(BadSample):
        decode_center(str(path), 40, 30)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def max_difference(a, b):
    return np.abs(a.astype(int) - b.astype(int)).max()


@pytest.mark.parametrize("box", [(0, 0, 120, 90), (13, 7, 61, 80), (119, 89, 1, 1), (30, 20, 40, 40), (0, 50, 100, 3)])
def test_a_box_matches_torchvisions_crop_then_resize(box, tmp_path):
    pixels = noisy()
    path, (left, top, width, height) = save(tmp_path, pixels), box
    region = Image.fromarray(pixels[top : top + height, left : left + width])
    expected = np.asarray(region.resize((40, 40), BILINEAR))
    decoded = decode_crop(path, lambda *_: box, 40)
    assert np.array_equal(decoded, expected) and decoded.dtype == np.uint8 and decoded.flags.c_contiguous


@pytest.mark.parametrize(
    "width, height, target",
    [(120, 90, (42, 32)), (90, 120, (32, 42)), (50, 50, (32, 32)), (20, 31, (32, 49)), (199, 100, (63, 32))],
)
def test_the_center_matches_torchvisions_resize_then_center_crop(width, height, target, tmp_path):
    pixels = noisy(width, height)
    resized = np.asarray(Image.fromarray(pixels).resize(target, BILINEAR))
    left, top = round((target[0] - 28) / 2.0), round((target[1] - 28) / 2.0)
    decoded = decode_center(save(tmp_path, pixels), 32, 28)
    assert np.array_equal(decoded, resized[top : top + 28, left : left + 28]) and decoded.shape == (28, 28, 3)


def test_without_antialias_pixels_are_those_of_opencvs_resize(tmp_path):
    pixels = noisy(100, 90)
    path = save(tmp_path, pixels)
    expected = cv2.resize(pixels[7:87, 13:74], (40, 40), interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(decode_crop(path, lambda *_: (13, 7, 61, 80), 40, antialias=False), expected)
    resized = cv2.resize(pixels, (35, 32), interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(decode_center(path, 32, 28, antialias=False), resized[2:30, 4:32])
    exif = Image.Exif()
    exif[images.EXIF_ORIENTATION] = 6
    rotated = decode_center(save(tmp_path, pixels, "y.png", exif=exif), 32, 28, antialias=False)
    with Image.open(tmp_path / "y.png") as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    expected = decode_center(save(tmp_path, upright, "z.png"), 32, 28, antialias=False)
    assert max_difference(rotated, expected) <= 1  # rows first or columns first: one rounding


TURNS = dict(zip(range(2, 9), (Image.Transpose(number) for number in (0, 3, 1, 5, 2, 6, 4))), strict=False)
FORMATS = {
    "PNG": {},
    "JPEG": {"quality": 98, "subsampling": 0},
    "WEBP": {"lossless": True},
    "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    **{f"TIFF {compression}": {"compression": compression} for compression in (None, "tiff_lzw", "tiff_deflate")},
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_format_is_turned_once(name, orientation):
    """Upright for most data sets, and as stored for images beside masks. Pillow turns TIFF images by itself."""
    upright, kind = smooth(60, 40), name.split()[0]
    stored = Image.fromarray(upright)
    if orientation > 1:
        stored = stored.transpose(TURNS[orientation])
    file, exif = io.BytesIO(), Image.Exif()
    exif[images.EXIF_ORIENTATION] = orientation
    keys = {"tiffinfo": {images.EXIF_ORIENTATION: orientation}} if kind == "TIFF" else {"exif": exif}
    stored.save(file, kind, **keys, **FORMATS[name])
    encoded = images.parse(file.getvalue())
    assert (encoded.size, encoded.stored) == ((60, 40), stored.size)
    tolerance = 8 if kind in ("JPEG", "AVIF") else 0
    assert max_difference(images.decode(encoded, Geometry(size=(60, 40))), upright) <= tolerance
    assert max_difference(images.decode_stored(encoded), np.asarray(stored)) <= tolerance


@pytest.mark.parametrize("orientation", [None, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_exif_orientation_is_applied(orientation, tmp_path):
    exif = Image.Exif()
    if orientation is not None:
        exif[images.EXIF_ORIENTATION] = orientation
    path = save(tmp_path, smooth(96, 64), "x.jpg", exif=exif, quality=95)
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    sizes = []
    box = (10, 20, 40, 30)
    decoded = decode_crop(path, lambda *size: sizes.append(size) or box, 30)
    assert sizes == [upright.shape[1::-1]]
    expected = Image.fromarray(upright).crop((10, 20, 50, 50)).resize((30, 30), BILINEAR)
    assert max_difference(decoded, np.asarray(expected)) <= 1  # rows first or columns first: one rounding
    short = (48, 72) if upright.shape[0] > upright.shape[1] else (72, 48)
    expected = np.asarray(Image.fromarray(upright).resize(short, BILINEAR))
    left, top = (short[0] - 40) // 2, (short[1] - 40) // 2
    assert max_difference(decode_center(path, 48, 40), expected[top : top + 40, left : left + 40]) <= 1
    reduced = decode_crop(path, lambda *_: box, 15, reduce=True)
    assert np.abs(reduced.astype(int) - decode_crop(path, lambda *_: box, 15).astype(int)).mean() < 2


def test_a_damaged_exif_block_is_ignored(tmp_path):
    path = save(tmp_path, smooth(), "x.jpg", exif=b"Exif\0\0II*\0\xff\xff\0\0garbage")
    assert max_difference(decode_all(path), decode_all(save(tmp_path, smooth(), "y.jpg"))) == 0


@pytest.mark.parametrize("max_factor, scale", [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (50, 8)])
def test_the_scale_of_a_reduced_decode(max_factor, scale, tmp_path):
    for width, height in ((160, 120), (161, 123), (167, 127)):
        encoded = images.read(save(tmp_path, smooth(width, height), "x.jpg"))
        geometry = Geometry(size=(width // max(max_factor, 1), height // max(max_factor, 1)))
        assert (
            images.jpeg_scale(encoded, geometry) == scale
            if max_factor
            else images.jpeg_scale(encoded, Geometry(size=(2 * width, height))) == 1
        )
        pillow = Image.open(tmp_path / "x.jpg")
        assert images._draft_jpeg(pillow, scale) == pytest.approx(scale)
        pixels, factor = images.decode_pixels(encoded, scale)
        assert factor == scale and pixels.shape == (-(-height // scale), -(-width // scale), 3)
        assert np.array_equal(pixels, np.asarray(pillow))


def test_a_reduced_decode_is_not_shifted(tmp_path):
    """On a slope, a shift by half a pixel differs by 0.25 with the sign of the slope; rounding has no such sign."""
    slope, differences = np.tile(np.linspace(0, 255, 512).astype(np.uint8)[None, :, None], (512, 1, 3)), {}
    for name, pixels in (("up.jpg", slope), ("down.jpg", np.ascontiguousarray(slope[:, ::-1]))):
        path = save(tmp_path, pixels, name, quality=98)
        differences[name] = np.array(
            [
                np.subtract(
                    *(
                        decode_crop(path, lambda *_: (64, 64, 400, 400), size, reduce).astype(float)
                        for reduce in (False, True)
                    )
                ).mean()
                for size in (40, 90, 200)
            ]
        )
    assert np.abs(differences["up.jpg"] - differences["down.jpg"]).max() / 2 < 0.05


def test_decodes_are_reduced_only_on_request_and_where_the_size_allows(tmp_path, monkeypatch):
    path, scales, decode = save(tmp_path, smooth(400, 300), "x.jpg"), [], images.decode_pixels
    monkeypatch.setattr(jpeg, "decode_box", lambda *_: None)
    monkeypatch.setattr(images, "decode_pixels", lambda image, scale: scales.append(scale) or decode(image, scale))
    for size, reduce in ((50, True), (100, True), (224, True), (50, False)):
        decode_crop(path, lambda *_: (0, 0, 400, 250), size, reduce=reduce)
    assert scales == [4, 2, 1, 1]


def test_modes_and_formats_of_images(tmp_path):
    pixels = smooth()
    plain, image = decode_all(save(tmp_path, pixels)), Image.fromarray(pixels)
    gray = np.asarray(image.convert("L").convert("RGB").resize((40, 40), BILINEAR))
    assert np.array_equal(decode_all(save(tmp_path, image.convert("L"))), gray)
    assert max_difference(decode_all(save(tmp_path, image.convert("L"), "x.jpg", quality=98)), gray) <= 3
    assert max_difference(decode_all(save(tmp_path, image.convert("CMYK"), "x.jpg", quality=98)), plain) <= 6
    assert max_difference(decode_all(save(tmp_path, image, "n02105855_2933.JPEG", format="PNG")), plain) == 0
    assert max_difference(decode_all(save(tmp_path, image, "x.bmp", format="BMP")), plain) == 0
    assert max_difference(decode_all(save(tmp_path, image, "x.webp", format="WEBP", lossless=True)), plain) == 0
    assert max_difference(decode_all(save(tmp_path, image, "x.tif", format="TIFF")), plain) == 0
    palette = image.quantize(64)
    expected = np.asarray(palette.convert("RGB").resize((40, 40), BILINEAR))
    assert np.array_equal(decode_all(save(tmp_path, palette)), expected)
    assert np.array_equal(decode_all(save(tmp_path, palette, "x.gif", format="GIF")), expected)
    assert set(np.unique(decode_all(save(tmp_path, image.convert("1")), 90))) <= set(range(256))


def test_transparency_is_dropped(tmp_path):
    pixels = smooth()
    alpha = np.random.default_rng(1).integers(0, 256, (90, 120, 1), dtype=np.uint8)
    path = save(tmp_path, np.concatenate([pixels, alpha], 2))
    assert np.array_equal(decode_all(path), decode_all(save(tmp_path, pixels, "y.png")))
    gray = Image.fromarray(pixels).convert("LA")
    assert np.array_equal(decode_all(save(tmp_path, gray)), decode_all(save(tmp_path, gray.convert("L"), "y.png")))


def test_16_bits_are_scaled_and_not_clipped(tmp_path):
    values = (np.arange(120 * 90, dtype=np.uint16) * 6).reshape(90, 120)
    cv2.imwrite(str(tmp_path / "gray.png"), values)
    expected = Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB").resize((40, 40), BILINEAR)
    assert np.array_equal(decode_all(str(tmp_path / "gray.png")), np.asarray(expected))
    cv2.imwrite(str(tmp_path / "color.png"), smooth()[:, :, ::-1].astype(np.uint16) * 257)
    assert max_difference(decode_all(str(tmp_path / "color.png")), decode_all(save(tmp_path, smooth()))) <= 1
    assert "32 bits" in reason(save(tmp_path, Image.new("F", (60, 50)), "x.tif", format="TIFF"))


@pytest.mark.parametrize("name", ["x.jpg", "x.png"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_truncated_file_is_a_bad_sample(name, share, tmp_path):
    path = tmp_path / name
    save(tmp_path, noisy(), name)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert reason(path)


def test_files_that_are_not_images(tmp_path):
    path = tmp_path / "x.jpg"
    assert reason(path) == "no such file"
    path.write_bytes(b"")
    assert reason(path) == "the file is empty"
    for content in (
        b"not an image\n" * 50,
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
    assert "not a regular file" in reason(tmp_path / "folder.jpg")


def test_a_wrong_color_profile_is_neither_damage_nor_printed(capfd):
    pixels, file = noisy(), io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", icc_profile=b"no profile" * 20)
    assert np.array_equal(images.decode_stored(images.parse(file.getvalue())), pixels)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["P5", "P6"])
def test_netpbm_files_of_16_bits(kind):
    """As PNG files of 16 bits: the upper byte, but for Pillow's rounding of color."""
    values = np.linspace(0, 65535, 48 * 32).astype(np.uint16).reshape(32, 48)
    pixels = values if kind == "P5" else np.stack([values] * 3, axis=-1)
    content = f"{kind}\n48 32\n65535\n".encode() + pixels.astype(">u2").tobytes()
    found = images.decode_stored(images.parse(content))
    assert max_difference(found, np.stack([values >> 8] * 3, axis=-1)) <= (kind == "P6")


def gray_tiff(values, bits, photometric):
    """Return a TIFF file of gray samples of 12 or 16 bits, not compressed; photometric: 0 if zero is white."""
    height, width = values.shape
    pairs = values.reshape(-1, 2).astype(np.uint16)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], 1)
    content = packed.astype(np.uint8).tobytes() if bits == 12 else values.astype("<u2").tobytes()
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 0, 277: 1, 278: height}
    tags = {**tags, 273: 14 + 12 * (len(tags) + 1), 279: len(content)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + content


@pytest.mark.parametrize("bits, photometric", [(12, 1), (16, 1), (16, 0)])
def test_gray_tiff_files_are_neither_dark_nor_negative(bits, photometric):
    values = np.arange(256).repeat(4).reshape(16, 64)
    encoded = images.parse(gray_tiff(values << bits - 8, bits, photometric))
    assert np.array_equal(images.decode_stored(encoded)[:, :, 1], values if photometric else 255 - values)


def tiff(bits, photometric=1, extra=(), pages=1):
    """Return a TIFF file of 8 x 8 pixels whose bands, of these bits, are zero."""
    tags = {256: (8,), 257: (8,), 258: bits, 259: (1,), 262: (photometric,), 277: (len(bits),), 278: (8,), 284: (1,)}
    size = 8 * sum(bits)
    tags |= {273: (8,), 279: (size,), **({338: extra} if extra else {})}
    content, end = bytearray(b"II*\0" + struct.pack("<I", 8 + size) + bytes(size)), 8 + size
    for page in range(pages):
        spare, rows = end + 2 + 12 * (len(tags) + 1) + 4, b""
        values = b""
        for tag, value in sorted({254: (int(page > 1),), **tags}.items()):  # the third page is a smaller copy
            packed = struct.pack(f"<{len(value)}H", *value)
            place = packed.ljust(4, b"\0") if len(packed) <= 4 else struct.pack("<I", spare + len(values))
            rows += struct.pack("<HHI", tag, 3, len(value)) + place
            values += packed if len(packed) > 4 else b""
        end = spare + len(values)
        content += struct.pack("<H", len(tags) + 1) + rows + struct.pack("<I", end * (page + 1 < pages)) + values
    return bytes(content)


@pytest.mark.parametrize(
    "content, expected",
    [
        (tiff((16, 16, 16)), "a TIFF image of 3 bands of 16 bits; write 8-bit RGB or gray, such as by gdal_translate"),
        (tiff((8,) * 13), "a TIFF image of 13 bands of 8 bits; write"),
        (tiff((64,)), "a TIFF image of 1 band of 64 bits; write"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a pointer of Git LFS; fetch"),
        (b"\n<!DOCTYPE html><html>", "a page of a web site; download"),
        (b"\0\0\0\x18ftypheic" + bytes(40), "an image of HEIC, as phones write it; convert"),
        (bytes(128) + b"DICM" + bytes(9), "an image of DICOM; convert"),
    ],
)
def test_what_a_file_is_that_is_no_image_of_a_supported_format(content, expected):
    with pytest.raises(BadSample) as caught:
        images.parse(content)
    assert str(caught.value).startswith(f"not an image of a supported format, but {expected}")


def encoded_by_pillow(pixels, kind, **keys):
    image = Image.fromarray(pixels)
    image.save(buffer := io.BytesIO(), kind, **keys)
    return buffer.getvalue()


LEVELS = np.arange(48 * 48, dtype=np.uint16).reshape(48, 48)
MANY = [Image.fromarray(noisy(seed=seed)) for seed in range(1, 3)]


@pytest.mark.parametrize(
    "content, expected",
    [
        (encoded_by_pillow(LEVELS, "PNG"), "its 16-bit levels become 0 to 8 of 255: set data.levels, or scale them"),
        (
            encoded_by_pillow(LEVELS + 30000, "TIFF"),
            "its 16-bit levels become 117 to 126 of 255: set data.levels, or scale them over 8 bits",
        ),
        (cv2.imencode(".png", np.dstack([LEVELS] * 3))[1].tobytes(), "its 16-bit levels become 0 to 8 of 255"),
        (b"P5\n48 48\n65535\n" + LEVELS.astype(">u2").tobytes(), "its 16-bit levels become 0 to 8 of 255"),
        (encoded_by_pillow(LEVELS * 28, "PNG"), ""),
        (encoded_by_pillow(noisy(), "GIF", save_all=True, append_images=MANY), "it has 3 pages or frames, of which"),
        (encoded_by_pillow(noisy(), "PNG", save_all=True, append_images=MANY), "it has 3 pages or frames, of which"),
        (tiff((8, 8, 8), 2, pages=2), "it has 2 pages or frames, of which the first is read"),
        (tiff((8, 8, 8), 2, pages=3), "it has 2 pages or frames, of which the first is read"),
        (tiff((8,) * 4, 2, (0,)), "it has 4 bands, of which the first 3 are read"),
        (tiff((8,) * 4, 2, (2,)), ""),  # transparency, as documented
        (tiff((8,), 1), ""),
        (encoded_by_pillow(noisy(), "PNG"), ""),
        (encoded_by_pillow(noisy(), "JPEG"), ""),
        (encoded_by_pillow(noisy()[..., 0], "WEBP"), ""),
    ],
)
def test_what_of_an_image_is_left_out_or_lost(content, expected):
    assert images.remark(images.parse(content)).startswith(expected)
    assert expected or not images.remark(images.parse(content))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("upright", [True, False])
@pytest.mark.parametrize("orientation", [1, 6])
def test_images_of_pillow_have_the_pixels_of_their_files(kind, upright, orientation):
    exif = Image.Exif()
    exif[images.EXIF_ORIENTATION] = orientation
    for pixels in (LEVELS[:40] * 28, noisy(48, 40), noisy(48, 40)[..., 0]):
        content = encoded_by_pillow(pixels, kind, **({} if kind == "PPM" else {"exif": exif}))
        encoded = images.parse(content)
        stored = images.decode_stored(encoded)
        expected = encoded.upright(stored) if upright else stored
        assert np.array_equal(images.from_pillow(Image.open(io.BytesIO(content)), upright), expected)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PGM"])
def test_levels_become_black_and_white(kind):
    """By the rule of three, rounded; those outside are black and white."""
    if kind == "PGM":
        content = b"P5\n48 48\n65535\n" + LEVELS.astype(">u2").tobytes()
    else:
        content = encoded_by_pillow(LEVELS, kind)
    encoded = images.parse(content)._replace(levels=(500.0, 1500.0))
    expected = np.rint(np.clip((LEVELS.astype(float) - 500) * 0.255, 0, 255))
    assert np.array_equal(images.decode_stored(encoded), np.dstack([expected] * 3)) and not images.remark(encoded)
    assert np.array_equal(images.from_pillow(Image.open(io.BytesIO(content)), True, encoded.levels)[..., 0], expected)


@pytest.mark.parametrize("first", [100, 3_000_000_000])
def test_levels_of_32_bits(first):
    """Unsigned, which Pillow reads as signed."""
    values = (first + np.arange(64, dtype=np.int64).reshape(8, 8)).astype("<u4")
    tags = {256: 8, 257: 8, 258: 32, 259: 1, 262: 1, 273: 8, 277: 1, 278: 8, 279: values.nbytes, 339: 1}
    rows = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    content = b"II*\0" + struct.pack("<I", 8 + values.nbytes) + values.tobytes() + struct.pack("<H", len(tags)) + rows
    encoded = images.parse(content + bytes(4))._replace(levels=(first, first + 63.0))
    assert np.array_equal(images.decode_stored(encoded)[..., 0].ravel(), np.rint(np.arange(64) * (255 / 63)))


def test_levels_of_a_pgm_file_with_another_maximum():
    values = np.arange(48 * 48).reshape(48, 48)
    encoded = images.parse(b"P5\n48 48\n4095\n" + values.astype(">u2").tobytes())._replace(levels=(0.0, 2303.0))
    assert np.array_equal(images.decode_stored(encoded)[..., 0], np.rint(values * (255 / 2303)))


def test_float_images_that_become_black_are_named():
    content = encoded_by_pillow(np.linspace(0, 1, 24 * 24, dtype=np.float32).reshape(24, 24), "TIFF")
    remark = images.remark(images.parse(content)._replace(levels=(0.0, 65535.0)))
    assert remark == "its levels become 0 to 0 of 255: set data.levels, or scale them over 8 bits"


def test_levels_of_other_files():
    values = np.linspace(-2, 2, 24 * 24, dtype=np.float32).reshape(24, 24)
    values[0, 0] = np.nan
    gray = images.decode_stored(images.parse(encoded_by_pillow(values, "TIFF"))._replace(levels=(-1.0, 1.0)))[..., 0]
    assert np.array_equal(gray.ravel()[1:], np.rint(np.clip((values.ravel()[1:].astype(float) + 1) * 127.5, 0, 255)))
    eight = images.parse(encoded_by_pillow(noisy()[..., 0], "PNG"))
    assert np.array_equal(images.decode_stored(eight._replace(levels=(0.0, 9.0))), images.decode_stored(eight))


def test_an_image_of_pillow_without_a_known_range_is_refused():
    for image in (Image.fromarray(np.full((4, 4), 0.5, np.float32)), Image.fromarray(np.full((4, 4), 70000, np.int32))):
        with pytest.raises(
            BadSample, match=f"mode {image.mode}, signed or of 32 bits, have no known range; set data.levels, or"
        ):
            images.from_pillow(image, True)


UNIT = np.linspace(0, 1, 5 * 7 * 3).reshape(5, 7, 3)


@pytest.mark.parametrize(
    "array, expected",
    [
        (UNIT.astype(np.float32), "; give (255 * image).round().astype(np.uint8)"),
        (UNIT * 255, "; give image.round().astype(np.uint8)"),
        (UNIT.transpose(2, 0, 1), "; give (255 * image.transpose(1, 2, 0)).round().astype(np.uint8)"),
        (np.zeros((3, 5, 7), np.uint8), "; give image.transpose(1, 2, 0)"),
        (np.zeros((5, 7), np.uint8), "; give np.dstack([image] * 3)"),
        (np.zeros((5, 7, 1), np.uint8), "; give np.dstack([image] * 3)"),
        (np.zeros((1, 5, 7), np.uint8), "; give np.dstack([image.transpose(1, 2, 0)] * 3)"),
        (np.zeros((5, 7, 4), np.uint8), "; give image[..., :3]"),
        (UNIT > 0.5, "; give (255 * image).astype(np.uint8)"),
        (np.zeros((5, 7, 3), np.int64), "; give image.astype(np.uint8)"),
        ((UNIT * 4095).astype(np.uint16), "; scale its levels, which are from 0 to 4095, to 0 to 255"),
        ((UNIT - 0.5) * 4, "; scale its levels, which are from -2 to 2, to 0 to 255"),
        (np.zeros((2, 5, 7, 3), np.uint8), "; give several as a list"),
        (np.zeros((0, 7, 3), np.uint8), "; give several as a list"),
        (np.full((5, 7, 3), "x"), "; give several as a list"),
    ],
)
def test_how_to_make_an_image_of_an_array(array, expected):
    assert images.explain_array(array) == expected
    if expected.startswith("; give image") or "(255" in expected or "dstack" in expected:
        made = eval(expected.removeprefix("; give "), {"np": np, "image": array})
        assert (made.shape, made.dtype) == ((5, 7, 3), np.uint8)
