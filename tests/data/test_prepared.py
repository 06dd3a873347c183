"""Splits of prepared data, whose samples are those of their source."""

import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.data.loaders import sets
from tests.helpers import clips
from tests.helpers.prepared import all_samples, assert_equal_samples, image_folders, serial_prepare
from zoo.data import order, stages
from zoo.data.datasets import cityscapes, imagenet, kinetics
from zoo.data.datasets.common import prepared_splits
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import images, regular
from zoo.data.formats.lists import LabeledPath
from zoo.data.packs.prepared import PreparedSplit
from zoo.data.stream import open_training


class Settings(NamedTuple):
    root: str
    cache: str | None = None
    cache_gb: float = 100.0


NOTHING = {"names": None, "suffix": ""}


@pytest.fixture
def serial(monkeypatch):
    return serial_prepare(monkeypatch)


def test_both_splits_of_images(tmp_path, serial):
    root = image_folders(tmp_path / "set")
    assert prepared_splits(Settings(str(root)), "image", NOTHING) is None
    assert serial("imagenet", root, "--out", tmp_path / "out") == 0
    train, val = prepared_splits(Settings(str(tmp_path / "out")), "image", NOTHING)
    assert (len(train), len(val), val.split) == (10, 4, "val")
    assert val.labeled_paths()[2] == LabeledPath("val/dog/0.png", 1)
    assert val.info.classes == ("cat", "dog")
    assert val.bytes[2] == os.path.getsize(root / "val/dog/0.png")


def test_a_split_without_samples(tmp_path, serial):
    root = image_folders(tmp_path / "set", counts=(2, 1))
    for path in (root / "val").rglob("*.png"):
        path.write_bytes(b"")
    assert serial("folder", root, "--out", tmp_path / "out") == 1
    assert len(PreparedSplit(str(tmp_path / "out"), "val")) == 0
    with pytest.raises(UserError, match="there is no readable sample in the split val; see unreadable.csv"):
        prepared_splits(Settings(str(tmp_path / "out")), "image", NOTHING)


def test_threads_share_a_split(tmp_path, serial):
    root = image_folders(tmp_path / "set")
    assert serial("imagenet", root, "--pack", "--out", tmp_path / "out") == 0
    train = PreparedSplit(str(tmp_path / "out"), "train")
    wanted = [(root / train.name(index)).read_bytes() for index in range(10)]

    def read(index):
        with train.open(index) as path, open(path, "rb") as file:
            return file.read()

    order = np.random.default_rng(0).integers(0, 10, 400)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, order)) == [wanted[index] for index in order]


def test_files_that_are_read_count_as_reading(tmp_path, serial, monkeypatch):
    root, seconds = image_folders(tmp_path / "set"), [0.0]
    assert serial("imagenet", root, "--out", tmp_path / "out") == 0
    train, read = PreparedSplit(str(tmp_path / "out"), "train"), regular.read

    def slowly(path):
        seconds[0] += 5
        return read(path)

    monkeypatch.setattr(regular, "read", slowly)
    with stages.measure(lambda: seconds[0]) as measured:
        train.content(0)
    assert measured[stages.READ] == 5


def assert_same_samples(left, right):
    assert len(left) == len(right) and left.classes == right.classes
    assert [*map(left.name, range(len(left)))] == [*map(right.name, range(len(right)))]
    assert_equal_samples(all_samples([right]), all_samples([left]))


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


def test_raw_scenes_have_the_bytes_of_the_source(tmp_path, serial):
    """Also of masks with a palette and with 16 bits, and of images in gray; the source is not needed any more."""
    write_scenes(tmp_path / "set")
    folders = [tmp_path / "set" / name / "train/bonn" for name in ("leftImg8bit", "gtFine")]
    image, *_ = sorted(folders[0].iterdir())
    cv2.imwrite(str(image), cv2.imread(str(image), cv2.IMREAD_GRAYSCALE))
    first, second = sorted(folders[1].iterdir())
    values = np.random.default_rng(0).integers(7, 12, (48, 64)).astype(np.uint8)
    indexed = Image.fromarray(values, "P")
    indexed.putpalette(list(range(255, -1, -1)) * 3)
    indexed.save(first)
    cv2.imwrite(str(second), values.astype(np.uint16))
    keys = {"crop": (32, 40), "void_masks": True}
    source = cityscapes.load(cityscapes.Settings(root=str(tmp_path / "set"), **keys))
    expected = all_samples(source)
    assert serial("cityscapes", tmp_path / "set", "--raw", "--out", tmp_path / "out") == 0
    shutil.rmtree(tmp_path / "set")
    packed = cityscapes.load(cityscapes.Settings(root=str(tmp_path / "out"), **keys))
    assert_equal_samples(all_samples(packed), expected)
    content = packed[0].prepared.mask(0)
    assert content.startswith(b"P5\n64 48\n255\n") and content.endswith(values.tobytes())


def test_a_raw_file_that_is_cut_is_refused():
    content = images.raw_file(sets.smooth(64, 48, 0))
    assert images.decode_stored(images.parse(content)).shape == (48, 64, 3)
    with pytest.raises(BadSample):
        images.decode_stored(images.parse(content[:-1]))
    with pytest.raises(BadSample):
        images.parse(b"P6\n99999 99999\n255\n" + content)


@pytest.mark.parametrize("option", ["--reencode", "--frames"])
def test_clips_in_another_form_need_no_source(option, tmp_path, serial):
    write_clips(tmp_path / "set")
    settings = {"size": 32, "segments": 4, "workers": 0}
    source, _ = kinetics.load(kinetics.Settings(root=str(tmp_path / "set"), **settings))
    assert serial("k400", tmp_path / "set", option, "--short-side", 72, "--out", tmp_path / "out") == 0
    wanted = all_samples([source])
    shutil.rmtree(tmp_path / "set")
    train, val = kinetics.load(kinetics.Settings(root=str(tmp_path / "out"), **settings))
    for given, sample in zip(all_samples([train]), wanted, strict=True):
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
