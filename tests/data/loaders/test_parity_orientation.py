"""Files whose orientation decoders read differently: DALI rotates nothing, because what it gets is stored upright."""

import struct

import cv2
import numpy as np
import pytest

from tests.data.loaders import odd_files
from tests.data.loaders.odd_files import encode, needs_dali, put
from tests.data.loaders.sets import settings
from zoo.data import order
from zoo.data.datasets import cityscapes, faces, imagenet

pytestmark = [needs_dali, pytest.mark.filterwarnings("ignore:Corrupt EXIF")]
BYTE, SHORT = 1, 3  # types of EXIF values; an orientation is a SHORT
SCAN = b"\xff\xda"


def exif(orientation, kind=SHORT, length=None):
    """Return a metadata segment whose last entry is the orientation, cut to a length."""
    entry = struct.pack("<HHI", 0x112, kind, 1) + struct.pack("<HH", orientation, 0)
    block = (b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4))[:length]
    return b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block


SEGMENTS = {
    **{f"orientation {number} of another type": exif(number, BYTE) for number in (2, 3, 6)},
    "cut within the entry": exif(3, length=26),
    "two blocks": exif(1) + exif(3),
    "no orientation": exif(9),
}


def files(width, height):
    """Return JPEG files by their peculiarity: metadata in front, and metadata behind the frame's header."""
    content = encode("4:4:4", width, height)
    at = content.index(SCAN)
    files = {name: content[:2] + segment + content[2:] for name, segment in SEGMENTS.items()}
    return {**files, "late": content[:at] + exif(3) + content[at:]}


def check(split):
    for index in range(len(split)):
        expected = split.sample(index, order.generator(0, "augment", index))["image"]
        given, reason, _ = odd_files.read_by_dali(split, index, order.generator(0, "augment", index))
        assert reason is None, split.name(index)
        assert np.abs(expected.astype(int) - given["image"]).mean() <= 1, split.name(index)


@pytest.mark.parametrize("kind", ["images", "scenes", "faces"])
def test_orientation(kind, tmp_path):
    for name, content in files(*((112, 112) if kind == "faces" else (97, 64))).items():
        for split in ("train", "val"):
            for letter in "abcd" if kind == "faces" else "ab":
                put(tmp_path / split / (name if kind == "faces" else letter) / f"{name} {letter}.jpg", content)
            put(tmp_path / "images" / split / f"{name}.jpg", content)
            mask = np.random.default_rng(0).integers(0, 3, (64, 97), dtype=np.uint8)
            put(tmp_path / "masks" / split / f"{name}.png", cv2.imencode(".png", mask)[1].tobytes())
    common = {"root": str(tmp_path), **settings()}
    if kind == "images":
        train, _ = imagenet.load(imagenet.Settings(size=48, reduce=False, **common))
    elif kind == "scenes":
        train, _ = cityscapes.load(cityscapes.Settings(num_classes=3, photometric=False, crop=(48, 80), **common))
    else:
        train, _ = faces.load(faces.Settings(val_fraction=0.3, val_pairs=10, train="train", **common))
    check(train)
