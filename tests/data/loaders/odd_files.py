"""Encoded images of all forms that real sets hold, and the ways in which files are damaged, for the tests of parity."""

import importlib.util
import io

import numpy as np
import pytest
from PIL import Image

from tests.data.loaders.sets import ORIENTATION, smooth
from zoo.data import loaders
from zoo.data.dataset import Pending
from zoo.data.errors import BadSample
from zoo.data.loaders.dali_graph import Failure

needs_dali = pytest.mark.skipif(
    not (importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali")),
    reason="NVIDIA DALI is not installed (extra `dali`)",
)
SIZES = ((1, 1), (1, 40), (3, 5), (17, 15), (33, 31), (64, 48), (17, 401), (121, 90))
END = b"\xff\xd9"  # of a JPEG file
JPEG = {  # files that are left to DALI, form -> options of Pillow
    "plain": {},
    "poor": {"quality": 20},
    "4:4:4": {"quality": 100, "subsampling": "4:4:4"},
    "4:2:2": {"subsampling": "4:2:2"},
    "4:1:1": {"subsampling": "4:1:1"},
    "progressive": {"progressive": True},
    "progressive 4:2:2": {"progressive": True, "subsampling": "4:2:2"},
    "restart markers": {"restart_marker_blocks": 2},
    "gray": {"mode": "L"},
    "gray progressive": {"mode": "L", "progressive": True},
    "RGB": {"keep_rgb": True},
    "comment with markers": {"comment": b"\xff\xd9 \xff\xda"},
    "orientation 1": {"orientation": 1},
}
DECODED = {  # files that the data set decodes itself
    **{f"orientation {number}": {"orientation": number} for number in range(2, 9)},
    "gray orientation 6": {"mode": "L", "orientation": 6},
    "CMYK": {"mode": "CMYK"},
    "CMYK orientation 8": {"mode": "CMYK", "orientation": 8},
    "PNG gray": {"kind": "PNG", "mode": "L"},
    "PNG palette": {"kind": "PNG", "mode": "P"},
    "PNG alpha": {"kind": "PNG", "mode": "RGBA"},
    "PNG gray alpha": {"kind": "PNG", "mode": "LA"},
    "PNG 1 bit": {"kind": "PNG", "mode": "1"},
    "PNG 16 bits": {"kind": "PNG", "mode": "I;16"},
    "PNG transparent color": {"kind": "PNG", "transparency": (1, 2, 3)},
    "PNG orientation 6": {"kind": "PNG", "orientation": 6},
    "BMP": {"kind": "BMP"},
    "GIF": {"kind": "GIF"},
    "TIFF": {"kind": "TIFF", "compression": "tiff_lzw"},
    "WebP": {"kind": "WEBP"},
}
FORMS = {**JPEG, "PNG": {"kind": "PNG"}, **DECODED}
DAMAGES = {
    "empty": lambda content: b"",
    "one byte": lambda content: content[:1],
    "header only": lambda content: content[:200],
    "cut": lambda content: content[: len(content) // 2],
    "cut at the end": lambda content: content[:-2],
    "cut and ended": lambda content: content[: len(content) // 2] + END,
    "header ended": lambda content: content[:200] + END,
    "zeros after the end": lambda content: content + bytes(512),
    "last third zeros": lambda content: content[: -len(content) // 3] + bytes(len(content) // 3),
    "last third zeros, ended": lambda content: content[: -len(content) // 3] + bytes(len(content) // 3) + END,
    "zeros in the middle": lambda content: content[: len(content) // 2] + bytes(30) + content[len(content) // 2 + 30 :],
    "text after the end": lambda content: content + b"trailing",
    "twice": lambda content: content * 2,
    "page": lambda content: b"<html>404 Not Found</html>",
    "zeros": lambda content: bytes(3000),
    "another byte in front": lambda content: b"\xff" + content,
    "bits flipped": lambda content: flip_bits(content, len(content)),
}


def encode(form, width, height, seed=0):
    """Return an image of one of FORMS as the content of a file."""
    options = dict(FORMS[form])
    kind, mode, orientation = options.pop("kind", "JPEG"), options.pop("mode", "RGB"), options.pop("orientation", None)
    pixels = smooth(width, height, seed)
    image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(pixels)
    image = image if mode == "I;16" else image.convert(mode)
    if orientation:
        options["exif"] = Image.Exif()
        options["exif"][ORIENTATION] = orientation
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def flip_bits(content, seed, count=5):
    """Flip some bits of a file."""
    rng, damaged = np.random.default_rng(seed), bytearray(content)
    for at in rng.integers(0, len(damaged), count):
        damaged[at] ^= 1 << rng.integers(8)
    return bytes(damaged)


def put(path, content):
    """Write a file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def read(method, index, rng):
    """Return a sample and None, or None and the reason why it is unreadable."""
    try:
        return method(index, rng), None
    except BadSample as error:
        return None, str(error)


def read_by_dali(split, index, rng):
    """Read one sample by DALI.

    Returns:
        The sample, None if it cannot be read.
        The reason why not, "DALI" if that is DALI's and the reference loader would read the sample again.
        Whether DALI decoded an image of the sample.
    """
    sample, reason = read(split.plan, index, rng)
    if sample is None:
        return None, reason, False
    pending = any(isinstance(value, Pending) for value in sample.values())
    try:
        loaders.decode_here([sample])
    except Failure:
        return None, "DALI", pending
    return sample, None, pending
