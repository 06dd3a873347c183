"""Splits of prepared data as data sets open them."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest

from tests.helpers import clips
from tests.helpers.prepared import image_folders, serial_prepare
from zoo.data.errors import UserError
from zoo.data.formats.lists import LabeledPath
from zoo.data.packs.prepared import PreparedSplit, open_splits


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
    assert open_splits(Settings(str(root)), "image", NOTHING) is None
    assert serial("imagenet", root, "--out", tmp_path / "out") == 0
    train, val = open_splits(Settings(str(tmp_path / "out")), "image", NOTHING)
    assert (len(train), len(val), val.split) == (10, 4, "val")
    assert val.labeled_paths()[2] == LabeledPath("val/dog/0.png", 1)
    assert val.info.classes == ("cat", "dog") and val.sizes.tolist() == [[24, 24]] * 4
    assert val.bytes[2] == os.path.getsize(root / "val/dog/0.png")


@pytest.mark.parametrize("form, count", [("--frames", 5), ("--reencode", None)])
def test_only_packed_frames_have_a_number_of_files(tmp_path, serial, form, count):
    for split in ("train", "val"):
        os.makedirs(tmp_path / "set" / split / "a")
        clips.encode(tmp_path / "set" / split / "a" / "x.mp4", clips.numbered(5))
    assert serial("k400", tmp_path / "set", form, "--out", tmp_path / "out") == 0
    train, _ = open_splits(Settings(str(tmp_path / "out")), "video", NOTHING)
    assert train.labeled_paths() == [LabeledPath("train/a/x.mp4", 0, count)] and train.frames.tolist() == [5]


def test_what_does_not_fit_is_refused(tmp_path, serial):
    root, out = image_folders(tmp_path / "set", counts=(2, 1)), str(tmp_path / "out")
    assert serial("imagenet", root, "--out", out) == 0
    with pytest.raises(UserError, match="prepared images there, not clips; see data.name"):
        open_splits(Settings(out), "video", NOTHING)
    with pytest.raises(UserError, match=r"^data.names: decided when .*out was prepared; leave it out"):
        open_splits(Settings(out), "image", {"names": "a.txt", "suffix": ""})


def test_a_split_without_samples(tmp_path, serial):
    root = image_folders(tmp_path / "set", counts=(2, 1))
    for path in (root / "val").rglob("*.png"):
        path.write_bytes(b"")
    assert serial("folder", root, "--out", tmp_path / "out") == 1
    assert len(PreparedSplit(str(tmp_path / "out"), "val")) == 0
    with pytest.raises(UserError, match="there is no readable sample in the split val; see unreadable.csv"):
        open_splits(Settings(str(tmp_path / "out")), "image", NOTHING)


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
