"""Data sets that zoo data prepare has prepared: the samples of the source, whatever holds them."""

import os
import pickle
import shutil

import cv2
import numpy as np
import pytest

from tests.data.loaders import sets
from tests.helpers import clips
from tests.helpers.prepared import serial_prepare
from zoo.data import order
from zoo.data.datasets import cityscapes, imagenet, kinetics
from zoo.data.errors import UserError
from zoo.data.formats import images
from zoo.data.stream import open_training


@pytest.fixture
def serial(monkeypatch):
    return serial_prepare(monkeypatch)


def assert_same_samples(left, right):
    assert len(left) == len(right) and left.classes == right.classes
    for index in range(len(left)):
        assert left.name(index) == right.name(index)
        one, other = (split.sample(index, order.generator(0, "augment", index)) for split in (left, right))
        assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one), index


def write_images(root):
    for number in range(8):
        split, name = ("train", "val")[number % 4 == 3], "ab"[number % 2]
        os.makedirs(root / split / name, exist_ok=True)
        os.makedirs(root / split / "ab"[1 - number % 2], exist_ok=True)
        sets.write(
            f"{root}/{split}/{name}/{number}.jpg",
            sets.smooth(60 + number, 50, number),
            ("jpeg", "rotated")[number == 2],
        )
    sets.write(f"{root}/val/a/8.jpg", sets.smooth(50, 50, 8))


def write_clips(root, count=12):
    for number in range(3):
        for split in ("train", "val"):
            os.makedirs(root / split / "ab"[number % 2], exist_ok=True)
            frames = np.stack([sets.smooth(96, 72, number)] * count)
            clips.encode(root / split / "ab"[number % 2] / f"{number}.mp4", frames, gop=4)


def write_scenes(root):
    for split in ("train", "val"):
        for number in range(2):
            name = f"{split}/bonn/bonn_{number:06d}_000019"
            sets.write(f"{root}/leftImg8bit/{name}_leftImg8bit.png", sets.smooth(64, 48, number), "png")
            os.makedirs(f"{root}/gtFine/{split}/bonn", exist_ok=True)
            cv2.imwrite(f"{root}/gtFine/{name}_gtFine_labelIds.png", np.full((48, 64), 7 + number, np.uint8))


@pytest.mark.parametrize("option", [[], ["--pack"]])
@pytest.mark.parametrize(
    "kind, write, module, keys",
    [
        ("imagenet", write_images, imagenet, {"size": 32}),
        ("k400", write_clips, kinetics, {"size": 32, "segments": 4}),
        ("cityscapes", write_scenes, cityscapes, {"crop": (32, 40), "void_masks": True}),
    ],
)
def test_samples_are_those_of_the_source(kind, write, module, keys, option, tmp_path, serial):
    write(tmp_path / "set")
    assert serial(kind, tmp_path / "set", *option, "--out", tmp_path / "out") == 0
    loads = [module.load(module.Settings(root=str(tmp_path / name), **keys)) for name in ("set", "out")]
    for left, right in zip(*loads):
        assert_same_samples(left, right)
        assert_same_samples(right, pickle.loads(pickle.dumps(right)))
        assert left.fields == right.fields


@pytest.mark.parametrize("option", ["--reencode", "--frames"])
def test_clips_in_another_form_need_no_source(option, tmp_path, serial):
    write_clips(tmp_path / "set")
    settings = {"size": 32, "segments": 4, "workers": 0}
    source, _ = kinetics.load(kinetics.Settings(root=str(tmp_path / "set"), **settings))
    assert serial("k400", tmp_path / "set", option, "--short-side", 72, "--out", tmp_path / "out") == 0
    wanted = [source.sample(index, order.generator(0, "augment", index)) for index in range(3)]
    shutil.rmtree(tmp_path / "set")
    train, val = kinetics.load(kinetics.Settings(root=str(tmp_path / "out"), **settings))
    for index, sample in enumerate(wanted):
        given = train.sample(index, order.generator(0, "augment", index))
        assert given["label"] == sample["label"]
        assert np.abs(given["video"].astype(int) - sample["video"]).mean() < 8
    assert len(list(open_training(train, 0, 2, 0, 3))) == 3 and val.sample(0, order.generator(0, "evaluate", 0))


def test_packed_frames_are_left_to_the_loader(tmp_path, serial):
    write_clips(tmp_path / "set")
    assert serial("k400", tmp_path / "set", "--frames", "--short-side", 72, "--out", tmp_path / "out") == 0
    train, _ = kinetics.load(kinetics.Settings(root=str(tmp_path / "out"), size=32, segments=4))
    files = train.plan(0, order.generator(0, "augment", 0))["video"].files
    assert len(files) == 4 and images.parse(files[0]).size == (96, 72)


def test_settings_that_preparing_decided(tmp_path, serial):
    write_images(tmp_path / "set")
    assert serial("imagenet", tmp_path / "set", "--out", tmp_path / "out") == 0
    with pytest.raises(UserError, match="data.names: decided when"):
        imagenet.load(imagenet.Settings(root=str(tmp_path / "out"), names="x.txt"))
    with pytest.raises(UserError, match="prepared images there, not clips"):
        kinetics.load(kinetics.Settings(root=str(tmp_path / "out")))
    write_scenes(tmp_path / "scenes")
    assert serial("cityscapes", tmp_path / "scenes", "--out", tmp_path / "masks") == 0
    with pytest.raises(UserError, match="data.labels: .* was prepared with masks such as .*_labelIds.png"):
        cityscapes.load(cityscapes.Settings(root=str(tmp_path / "masks"), labels="labelTrainIds"))
