"""Pixels of the direct PNG decoder against Pillow's, and which files it leaves to Pillow."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from zoo.data.formats import png

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)


def encode(image=None, **options):
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


@pytest.mark.parametrize(
    "options", [{}, {"dpi": (72, 72)}, {"pnginfo": info("Software", "x", PngInfo.add_text)}, {"compress_level": 0}]
)
def test_pixels_are_those_of_pillow(options):
    content = encode(**options)
    assert png.is_ordinary(content) and np.array_equal(png.decode(content), PIXELS)


def test_a_gamma_does_not_change_the_pixels():
    content = insert(encode(), chunk(b"gAMA", struct.pack(">I", 100_000)))
    assert png.is_ordinary(content) and np.array_equal(png.decode(content), PIXELS)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(content))), PIXELS)


def test_files_for_pillow():
    image, exif = Image.fromarray(PIXELS), Image.Exif()
    exif[0x0112] = 6
    jpeg = io.BytesIO()
    image.save(jpeg, "JPEG")
    deep = insert(encode(), b"").replace(b"\x08\x02\0\0\0", b"\x10\x02\0\0\0", 1)
    others = [b"", jpeg.getvalue(), encode() + b"x", encode()[:-1], encode(exif=exif), deep]
    others += [encode(image.convert(mode)) for mode in ("L", "P", "RGBA", "LA", "1")]
    others += [encode(transparency=(1, 2, 3)), encode(pnginfo=info("XML:com.adobe.xmp", "<x/>"))]
    others += [
        encode(pnginfo=info("Software", "x", zip=True)),
        encode(pnginfo=info("Raw profile type exif", "x", PngInfo.add_text)),
    ]
    others += [encode(save_all=True, append_images=[Image.fromarray(PIXELS[::-1])])]
    others += [insert(encode(), chunk(b"zTXt", b"Raw profile type exif\0\0abc"))]
    assert [png.is_ordinary(content) for content in others] == [False] * len(others)


def test_every_cut_is_for_pillow():
    content = encode()
    assert not any(png.is_ordinary(content[:length]) for length in range(len(content)))
    for length in range(len(content) - len(png.END)):
        assert not png.is_ordinary(content[:length] + png.END) or png.decode(content[:length] + png.END) is None


def test_what_cannot_be_decoded_is_none():
    content = bytearray(encode())
    content[len(content) // 2] ^= 0xFF  # the checksum finds it
    assert png.decode(bytes(content)) is None


def test_any_bytes_are_judged():
    rng = np.random.default_rng(1)
    for _ in range(300):
        start = (png.SIGNATURE, png.SIGNATURE + b"\0\0\0\x0dIHDR")[int(rng.integers(2))]
        assert not png.is_ordinary(start + rng.bytes(int(rng.integers(30))) + png.END)
