"""Small data sets of every task with ordinary and odd files, for the tests of loaders."""

import io
import os

import cv2
import numpy as np
from PIL import Image

from tests.helpers.clips import encode
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics

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
