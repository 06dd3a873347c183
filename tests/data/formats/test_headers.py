"""Ordinary JPEG and PNG files, whose pixels and boxes are those of Pillow, and those that are left to Pillow."""

import io
import os
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.data.formats.test_images import smooth
from zoo.data.errors import BadSample
from zoo.data.formats import headers, images, jpeg
from zoo.data.formats.headers import JPEG_END, JPEG_START, PNG_END
from zoo.data.transforms.geometry import Geometry

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)


def encode_jpeg(width, height, mode="RGB", **options):
    coarse = np.random.default_rng(width).uniform(0, 255, (5, 6, 3)).astype(np.float32)
    pixels = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    noisy = np.clip(pixels + np.random.default_rng(1).normal(0, 9, pixels.shape), 0, 255).astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(noisy).convert(mode).save(content, "JPEG", **{"quality": 88, **options})
    return content.getvalue()


def encode_png(image=None, **options):
    content = io.BytesIO()
    (image or Image.fromarray(PIXELS)).save(content, "PNG", **options)
    return content.getvalue()


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def insert(encoded, *chunks):
    """Insert chunks after the header."""
    end = encoded.index(b"IDAT") - 4
    return encoded[:end] + b"".join(chunks) + encoded[end:]


def info(keyword, text, add=PngInfo.add_itxt, **options):
    metadata = PngInfo()
    add(metadata, keyword, text, **options)
    return metadata


@pytest.mark.parametrize("is_old", [False, True], ids=["new OpenCV", "old OpenCV"])
@pytest.mark.parametrize("scale", [1, 2, 4, 8])
def test_pixels_of_jpeg_are_those_of_pillow(scale, is_old, monkeypatch):
    if is_old:
        monkeypatch.delattr(cv2, "IMREAD_COLOR_RGB", raising=False)
    variants = [{"subsampling": f"4:{ratio}"} for ratio in ("4:4", "2:2", "1:1")]
    variants += [{}, {"progressive": True}, {"mode": "L"}, {"restart_marker_blocks": 3}, {"keep_rgb": True}]
    for options in variants:
        for width, height in ((120, 90), (97, 65), (17, 13), (8, 16)):
            content = encode_jpeg(width, height, **options)
            assert headers.jpeg_header(content)[:3] == (width, height, False)
            image = Image.open(io.BytesIO(content))
            if scale > 1:
                image.draft(None, (max(width // scale, 1), max(height // scale, 1)))
            if image.size != (-(-width // scale), -(-height // scale)):
                continue  # Pillow takes a larger scale for tiny images
            assert np.array_equal(images.decode_ordinary(content, scale), np.asarray(image.convert("RGB"))), options


@pytest.mark.parametrize("orientation", [3, 6])
def test_an_orientation_is_reported_and_not_applied(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encode_jpeg(40, 24, exif=exif)
    assert headers.jpeg_header(content)[:3] == (40, 24, True)
    assert images.decode_ordinary(content).shape == (24, 40, 3)


def test_jpeg_files_for_pillow():
    intact = encode_jpeg(64, 48)
    scan_first = JPEG_START + b"\xff\xda\0\x02" + JPEG_END
    arithmetic = intact.replace(b"\xff\xc0\0\x11", b"\xff\xc9\0\x11")
    twelve_bits = intact.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x0c")
    empty = intact.replace(b"\xff\xc0\0\x11\x08\0\x30", b"\xff\xc0\0\x11\x08\0\0")
    endless = JPEG_START + b"\xff\xe0\0\x02" * (headers.MAX_SEGMENTS + 1) + intact[2:]
    others = [b"", encode_png(), encode_jpeg(9, 9, "CMYK"), intact + b"trailing", intact[:-2], scan_first, endless]
    others += [arithmetic, twelve_bits, empty, JPEG_START + JPEG_END, JPEG_START + b"\xff\xe0\0\0" + JPEG_END]
    assert [headers.jpeg_header(content) for content in others] == [None] * len(others)
    assert all(headers.jpeg_header(intact[:length]) is None for length in range(len(intact)))


@pytest.mark.parametrize(
    "content",
    [
        encode_png(),
        encode_png(dpi=(72, 72)),
        encode_png(pnginfo=info("Software", "x", PngInfo.add_text)),
        encode_png(compress_level=0),
        insert(encode_png(), chunk(b"gAMA", struct.pack(">I", 100_000))),
    ],
    ids=range(5),
)
def test_pixels_of_png_are_those_of_pillow(content):
    assert headers.png_size(content) == (40, 30) and np.array_equal(images.decode_ordinary(content), PIXELS)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(content))), PIXELS)


def test_png_files_for_pillow():
    image, exif, intact = Image.fromarray(PIXELS), Image.Exif(), encode_png()
    exif[0x0112] = 6
    deep = intact.replace(b"\x08\x02\0\0\0", b"\x10\x02\0\0\0", 1)
    others = [b"", encode_jpeg(9, 9), intact + b"x", encode_png(exif=exif), deep]
    others += [encode_png(image.convert(mode)) for mode in ("L", "P", "RGBA", "LA", "1")]
    others += [encode_png(transparency=(1, 2, 3)), encode_png(pnginfo=info("XML:com.adobe.xmp", "<x/>"))]
    others += [encode_png(pnginfo=info("Software", "x", zip=True))]
    others += [encode_png(pnginfo=info("Raw profile type exif", "x", PngInfo.add_text))]
    others += [encode_png(save_all=True, append_images=[Image.fromarray(PIXELS[::-1])])]
    others += [insert(intact, chunk(b"zTXt", b"Raw profile type exif\0\0abc"))]
    assert [headers.png_size(content) for content in others] == [None] * len(others)
    for length in range(len(intact) - len(PNG_END)):
        cut = intact[:length] + PNG_END
        assert not headers.png_size(intact[:length]) and (
            not headers.png_size(cut) or images.decode_ordinary(cut) is None
        )


@pytest.mark.parametrize(
    "extra",
    [
        chunk(b"sBIT", bytes(3)),
        chunk(b"gAMA", bytes(4)),
        chunk(b"cHRM", bytes(32)),
        chunk(b"tIME", b"x"),
        chunk(b"tEXt", b"Comment\0x")[:-1] + b"?",
    ],
    ids=lambda extra: extra[4:8].decode(),
)
def test_what_is_wrong_beside_the_pixels_is_not_printed(extra, capfd):
    content = insert(encode_png(), extra)
    assert headers.png_size(content) and np.array_equal(images.decode_stored(images.parse(content)), PIXELS)
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_decoded_is_none():
    damaged = bytearray(encode_png())
    damaged[len(damaged) // 2] ^= 0xFF  # the checksum finds it
    for content in (b"", b"no image", bytes(damaged), encode_jpeg(64, 48)[:200] + JPEG_END):
        assert images.decode_ordinary(content) is None


@pytest.mark.parametrize("thumbnail", [b"", b"\xff\xe1\0\x06" + JPEG_END * 2])
def test_zeros_that_a_copy_has_not_filled_are_no_pixels(thumbnail):
    """Pillow takes them for the rest of a plain image."""
    content = encode_jpeg(640, 480)
    half = JPEG_START + thumbnail + content[2 : len(content) // 2]
    broken = half + bytes(40 * len(content))
    assert np.asarray(Image.open(io.BytesIO(broken))).shape == (480, 640, 3)
    for content in (broken, half):
        with pytest.raises(BadSample, match="it breaks off"):
            images.decode_stored(images.parse(content))


def test_a_photo_with_a_video_behind_it_is_read():
    """As phones store them: bytes of the video look like many scans."""
    file = io.BytesIO()
    Image.fromarray(
        np.kron(np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8), np.ones((10, 10, 1), np.uint8))
    ).save(file, "JPEG", quality=85)
    photo, video = file.getvalue(), np.random.default_rng(0).integers(0, 256, 10 << 20, np.uint8).tobytes()
    assert (photo + video).count(headers.JPEG_SCAN) > headers.MAX_SCANS
    assert np.array_equal(images.decode_stored(images.parse(photo + video)), images.decode_stored(images.parse(photo)))


def sampled_as(ratio):
    factor = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{ratio}")
    return cv2.imencode(".jpg", smooth(97, 65), [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor])[1].tobytes()


def test_a_box_of_jpeg_is_that_of_the_whole_image():
    rng, contents = np.random.default_rng(0), [sampled_as(ratio) for ratio in (411, 420, 422, 440, 444)]
    options = ({"progressive": True}, {"mode": "L"}, {"restart_marker_blocks": 3}, {"keep_rgb": True})
    contents += [encode_jpeg(97, 65, **option) for option in options]
    for content in contents:
        whole = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
        for _ in range(50):
            left, top = int(rng.integers(97)), int(rng.integers(65))
            width, height = int(rng.integers(1, 98 - left)), int(rng.integers(1, 66 - top))
            box = jpeg.decode_box(content, (left, top, width, height))
            assert np.array_equal(box, whole[top : top + height, left : left + width])


def test_boxes_of_rotated_and_of_damaged_jpeg_files(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    whole = encode_jpeg(97, 65)
    cut = whole[: len(whole) * 3 // 4] + headers.JPEG_END
    for name, content in (("turned.jpg", encode_jpeg(97, 65, exif=exif)), ("cut.jpg", cut)):
        (tmp_path / name).write_bytes(content)
        geometry = Geometry(box=(5, 7, 40, 33), size=(32, 32), antialias=True)
        by_rows = images.decode(images.read(str(tmp_path / name)), geometry)
        with monkeypatch.context() as patch:
            patch.setattr(jpeg, "decode_box", lambda *_: None)
            assert np.array_equal(images.decode(images.read(str(tmp_path / name)), geometry), by_rows)


def test_boxes_are_decoded_by_many_threads_at_once():
    program = """
import sys, threading
from zoo.data.formats import jpeg
content, results, start = sys.stdin.buffer.read(), [], threading.Barrier(8)
threads = [threading.Thread(target=lambda: (start.wait(), results.append(jpeg.decode_box(content, (1, 2, 30, 20)))))
           for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert len(results) == 8 and all((result == results[0]).all() for result in results)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=encode_jpeg(97, 65), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_decoder_of_boxes_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv(jpeg.CODECS, "/kept")
    before = dict(os.environ)
    assert jpeg._codec.__wrapped__() and dict(os.environ) == before
