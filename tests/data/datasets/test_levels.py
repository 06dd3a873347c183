"""data.levels: images of 16 bits whose levels are a part of them, in data sets, predictions and protocol ids."""

import os

import numpy as np
import pytest

from tests.helpers import prepared
from zoo.data.datasets import cityscapes, imagenet
from zoo.data.errors import UserError
from zoo.data.extras import Image
from zoo.data.fields import SettingError
from zoo.predict import classify, segment

LEVELS = (0.0, 4095.0)


def write(path, seed):
    os.makedirs(path.parent, exist_ok=True)
    levels = np.random.default_rng(seed).integers(0, 4096, (64, 64)).astype(np.uint16)
    Image.fromarray(levels).save(path, "PNG")
    return np.dstack([np.rint(levels / 4095 * 255).astype(np.uint8)] * 3)


@pytest.fixture
def classes(tmp_path):
    root = tmp_path / "classes"
    pixels = [
        write(root / split / name / "0.png", seed)
        for split in ("train", "val")
        for seed, name in enumerate(("cat", "dog"))
    ]
    return root, pixels


def settings(root, **keys):
    return imagenet.Settings(root=str(root), size=64, eval_resize=64, augment=None, flip=False, **keys)


def test_images_of_classes(classes):
    root, pixels = classes
    for keys in ({"levels": LEVELS}, {}):
        _, val = imagenet.load(settings(root, **keys))
        image = val.sample(1, np.random.default_rng(0))["image"]
        assert np.array_equal(image, pixels[1]) == bool(keys) and (image.max() > 15) == bool(keys)
    path = str(root / "val/dog/0.png")
    split = classify.image_split(settings(root, levels=LEVELS), ("cat", "dog"), path)
    assert np.array_equal(split.sample(0, np.random.default_rng(0))["image"], pixels[1])


def test_scenes(tmp_path):
    for split in ("train", "val"):
        pixels = write(tmp_path / "images" / split / "0.png", 3)
        os.makedirs(tmp_path / "masks" / split)
        Image.fromarray(np.eye(64, dtype=np.uint8)).save(tmp_path / "masks" / split / "0.png")
    keys = {"root": str(tmp_path), "num_classes": 2, "crop": (64, 64), "levels": LEVELS}
    _, val = cityscapes.load(cityscapes.Settings(**keys))
    assert np.array_equal(val.sample(0, np.random.default_rng(0))["image"], pixels)
    assert val.protocol.views.endswith("#0-4095")
    sample = segment.read(val.settings, 0, str(tmp_path / "images/val/0.png"), 0)
    assert np.array_equal(sample.image, pixels)


def test_the_protocol_id_names_them(classes):
    ids = [imagenet.load(settings(classes[0], **keys))[1].protocol for keys in ({}, {"levels": LEVELS})]
    assert ids[1].views == f"{ids[0].views}#0-4095"


@pytest.mark.parametrize("levels", [(3.0, 3.0), (float("-inf"), 1.0), (0.0, float("nan"))])
def test_levels_that_do_not_ascend_are_refused(levels):
    with pytest.raises(SettingError, match="the first must be below the second"):
        imagenet.Settings(levels=levels)


def test_a_prepared_set_is_refused(tmp_path, monkeypatch):
    prepared.image_folders(tmp_path / "data")
    assert prepared.serial_prepare(monkeypatch)("imagenet", tmp_path / "data", "--out", tmp_path / "out") == 0
    with pytest.raises(UserError, match="a prepared set may have 8 bits by now"):
        imagenet.load(settings(tmp_path / "out", levels=LEVELS))
