"""The files have the size and the form of the real ones, and are the same each time."""

import os

import av
import cv2
import numpy as np
import pytest

from zoo.bench.peers import sets
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics


@pytest.fixture
def few(monkeypatch):
    small = {"IMAGES": 2, "CLASSES": 2, "CLIPS": 2, "FRAMES": 20, "PAIRS": 1, "IDENTITIES": 20, "FACES_EACH": 2}
    for name, value in small.items():
        monkeypatch.setattr(sets, name, value)


def test_images(few, tmp_path):
    for folder in ("a", "b"):
        sets.images(str(tmp_path / folder))
    train, val = imagenet.load(imagenet.Settings(root=str(tmp_path / "a")))
    assert (len(train), len(val)) == (2, 2)
    for path in sorted((tmp_path / "a").rglob("*.JPEG")):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
        assert 70_000 < path.stat().st_size < 130_000 and cv2.imread(str(path)).shape == (375, 500, 3)


def test_clips_and_their_frames(few, tmp_path):
    os.makedirs(tmp_path / "clips")
    sets.clips(str(tmp_path / "clips"))
    sets.frames(str(tmp_path / "frames"), str(tmp_path / "clips"))
    for folder in ("clips", "frames"):
        train, val = kinetics.load(kinetics.Settings(root=str(tmp_path / folder)))
        assert (len(train), len(val)) == (2, 1)
    with av.open(str(tmp_path / "clips/clip000.mp4")) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        decoded = [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
    assert len(decoded) == 20 and decoded[0].shape == (256, 340, 3)
    last = cv2.imread(str(tmp_path / "frames/clip000/img_00020.jpg"))
    assert np.abs(last.astype(int) - decoded[-1]).mean() < 4 < np.abs(last.astype(int) - decoded[0]).mean()


@pytest.mark.slow
def test_faces_are_packed(few, tmp_path):
    sets.faces(str(tmp_path / "faces"))
    train, _ = faces.load(faces.Settings(root=str(tmp_path / "faces/pack"), val_fraction=0.4))
    image = train.sample(0, np.random.default_rng(0))["image"]
    assert image.shape == (112, 112, 3) and len(train.classes) <= 20
    assert 3_000 < os.path.getsize(tmp_path / "faces/pack/train.rec") / 40 < 9_000


@pytest.mark.slow
def test_scenes(few, tmp_path):
    sets.scenes(str(tmp_path))
    train, _ = cityscapes.load(cityscapes.Settings(root=str(tmp_path), base_size=(1024, 2048)))
    sample = train.sample(0, np.random.default_rng(0))
    assert sample["image"].shape == (512, 1024, 3) and len(np.unique(sample["label"])) > 2
    (image,) = (tmp_path / "leftImg8bit/train/aachen").iterdir()
    assert 1.8e6 < image.stat().st_size < 3e6 and cv2.imread(str(image)).shape == (1024, 2048, 3)


def test_an_interrupted_folder_is_filled_anew(tmp_path):
    def fill(folder):
        (tmp_path / "set.unfinished/new").touch()

    (tmp_path / "set.unfinished").mkdir()
    (tmp_path / "set.unfinished/old").touch()
    assert sets.complete(str(tmp_path / "set"), fill) == str(tmp_path / "set")
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["new"]
    sets.complete(str(tmp_path / "set"), lambda folder: pytest.fail("filled twice"))
