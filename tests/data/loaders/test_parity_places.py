"""DALI gives the same bytes wherever files lie: in folders, in packs of zoo data prepare, in data.cache."""

import numpy as np
import pytest

from tests.data.loaders.odd_files import FORMS, encode, needs_dali, put
from tests.data.loaders.sets import settings
from tests.helpers import packs
from tests.helpers.prepared import serial_prepare
from zoo.data.datasets import cityscapes, imagenet, kinetics
from zoo.data.stream import open_evaluation, open_training

pytestmark = needs_dali
SIZE = (97, 64)
BATCH = 4


def write_images(root):
    for number, form in enumerate(FORMS):
        for split in ("train", "val"):
            put(root / split / "ab"[number % 2] / f"{number:02d}.jpg", encode(form, *SIZE, number))


def write_frames(root):
    for clip in range(3):
        for frame in range(1, 9):
            put(root / f"clip{clip}" / f"img_{frame:05d}.jpg", encode("plain", *SIZE, 10 * clip + frame))
    for name in ("train.list", "val.list"):
        (root / name).write_text("".join(f"clip{clip} 8 {clip}\n" for clip in range(3)))


def write_scenes(root):
    for split in ("train", "val"):
        for number in range(4):
            name = f"{split}/bonn/bonn_{number:06d}_000019"
            mask = np.random.default_rng(number).integers(7, 12, SIZE[::-1], dtype=np.uint8)
            put(root / f"leftImg8bit/{name}_leftImg8bit.png", encode("PNG", *SIZE, number))
            put(root / f"gtFine/{name}_gtFine_labelIds.png", packs.encode(mask))


KINDS = {
    "imagenet": (write_images, imagenet, {"size": 48, "reduce": False}),
    "k400": (write_frames, kinetics, {"size": 32, "segments": 4}),
    "cityscapes": (write_scenes, cityscapes, {"crop": (48, 80), "photometric": False}),
}


def load(kind, root, **keys):
    _, module, fixed = KINDS[kind]
    return module.load(module.Settings(root=str(root), **fixed, **settings(), **keys))


def batches(splits, loader):
    """Return the batches of two epochs and those of an evaluation."""
    train, val = splits
    count = 2 * len(train) // BATCH
    streams = (open_training(train, 7, BATCH, 0, count, loader=loader), open_evaluation(val, 7, 1, loader=loader))
    return [{name: array.copy() for name, array in batch.items()} for stream in streams for batch, _ in stream]


def assert_same(expected, given):
    assert len(expected) == len(given) > 1
    for left, right in zip(expected, given):
        assert left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.fixture(params=KINDS)
def kind(request, tmp_path):
    KINDS[request.param][0](tmp_path / "set")
    return request.param


def test_packs(kind, tmp_path, monkeypatch):
    run = serial_prepare(monkeypatch)
    assert run(kind, tmp_path / "set", "--pack", "--out", tmp_path / "out") == 0
    assert_same(batches(load(kind, tmp_path / "set"), "dali"), batches(load(kind, tmp_path / "out"), "dali"))


@pytest.mark.parametrize("loader", ["reference", "dali"])
def test_cache(kind, tmp_path, loader):
    expected = batches(load(kind, tmp_path / "set"), loader)
    for _ in ("copied", "read from the copies"):
        splits = load(kind, tmp_path / "set", cache=str(tmp_path / "cache"))
        assert_same(expected, batches(splits, loader))
    assert any((tmp_path / "cache").rglob("*.*"))
