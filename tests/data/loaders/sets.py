"""Small data sets of every task with ordinary and odd files, and the ways in which files are damaged."""

import importlib.util
import io
import os

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.helpers.clips import encode
from zoo.data import loaders
from zoo.data.dataset import Pending
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics
from zoo.data.errors import BadSample
from zoo.data.loaders.packed import Failure

DECODED = ("distorted_scenes", "videos", "views")  # sets whose plans leave nothing to the loader
ORIENTATION = 0x0112


def smooth(width, height, seed=0):
    """Return an image with structure and some noise: (height, width, 3)."""
    rng = np.random.default_rng(seed)
    coarse = cv2.resize(rng.uniform(0, 255, (5, 6, 3)), (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(coarse + rng.normal(0, 6, coarse.shape), 0, 255).astype(np.uint8)


def write(path, pixels, form="jpeg"):
    """Write an image in one of the forms that real sets hold."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    image, options = Image.fromarray(pixels), {}
    if form == "rotated":
        options["exif"] = Image.Exif()
        options["exif"][ORIENTATION] = 6
    image = image.convert({"gray": "L", "cmyk": "CMYK"}.get(form, "RGB"))
    image.save(path, "PNG" if form == "png" else "JPEG", **options)


def encoded(pixels, form="JPEG"):
    """Return an image as the content of a file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def hide_part(split, index, monkeypatch):
    """Let DALI get a truncated file in place of an image of a split, which the reference loader can read."""
    plan = type(split).plan

    def damaged(self, number, rng):
        sample = plan(self, number, rng)
        if number == index:
            sample["image"] = sample["image"]._replace(files=(sample["image"].files[0][:300],))
        return sample

    monkeypatch.setattr(type(split), "plan", damaged)


def image_set(root, **keys):
    forms = ("jpeg", "gray", "cmyk", "rotated", "png", "jpeg", "jpeg", "jpeg", "gray", "png")
    for split in ("train", "val"):
        for number, form in enumerate(forms):
            path = f"{root}/{split}/{'ab'[number % 2]}/{number}.jpg"
            write(path, smooth(120 + 7 * number, 90 + 5 * number, number), form)
    return imagenet.load(imagenet.Settings(**{"root": str(root), "size": 64, "reduce": False, **settings(), **keys}))


def frame_set(root, **keys):
    lines = []
    for clip, (width, height) in enumerate([(96, 72), (72, 96), (90, 70)]):
        for number in range(1, 13):
            write(f"{root}/clip{clip}/img_{number:05d}.jpg", smooth(width, height, 20 * clip + number))
        lines.append(f"clip{clip} 12 {clip}")
    write(f"{root}/clip2/img_00001.jpg", smooth(90, 70), "rotated")
    for name in ("train.list", "val.list"):
        (root / name).write_text("\n".join(lines) + "\n")
    sizes = {"size": 56, "segments": 4}
    return kinetics.load(kinetics.Settings(**{"root": str(root), **sizes, **settings(), **keys}))


def video_set(root, **keys):
    os.makedirs(root, exist_ok=True)
    for number in range(3):
        encode(root / f"{number}.mp4", np.stack([smooth(96, 72, number)] * 12))
    for name in ("train.list", "val.list"):
        (root / name).write_text("0.mp4 0\n1.mp4 1\n2.mp4 0\n")
    return kinetics.load(kinetics.Settings(root=str(root), size=56, segments=4, **settings(), **keys))


def scene_set(root, **keys):
    for split in ("train", "val"):
        for number, form in enumerate(("png", "jpeg", "png", "cmyk")):
            extension = "png" if form == "png" else "jpg"
            write(f"{root}/images/{split}/{number}.{extension}", smooth(96, 64, number), form)
            mask = np.random.default_rng(number).integers(0, 3, (4, 6), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
            os.makedirs(f"{root}/masks/{split}", exist_ok=True)
            cv2.imwrite(f"{root}/masks/{split}/{number}.png", mask)
    sizes = {"num_classes": 3, "crop": (48, 80), "photometric": False}
    return cityscapes.load(cityscapes.Settings(**{"root": str(root), **sizes, **settings(), **keys}))


def face_set(root, **keys):
    for person in range(8):
        for number, form in enumerate(("jpeg", "gray", "jpeg", "rotated" if person == 3 else "jpeg", "jpeg")):
            write(f"{root}/train/{person:02d}/{number}.jpg", smooth(112, 112, 10 * person + number), form)
    pairs = {"val_fraction": 0.3, "val_pairs": 10}
    return faces.load(faces.Settings(**{"root": str(root), **pairs, **settings(), **keys}))


def settings():
    return {"workers": 0, "threads": 1, "max_bad": 1.0}


SETS = {
    "images": image_set,
    "plain_images": lambda root, **keys: image_set(root, antialias=False, **keys),
    "frames": frame_set,
    "antialiased_frames": lambda root, **keys: frame_set(root, antialias=True, **keys),
    "views": lambda root, **keys: video_set(root, eval_crops=3, **keys),
    "videos": video_set,
    "scenes": scene_set,
    "distorted_scenes": lambda root, **keys: scene_set(root, photometric=True, eval_scales=(1.0, 0.5), **keys),
    "faces": face_set,
}


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
DECODED_FORMS = {  # files that the data set decodes itself
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
FORMS = {**JPEG, "PNG": {"kind": "PNG"}, **DECODED_FORMS}
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


def encode_form(form, width, height, seed=0):
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
