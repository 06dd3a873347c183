"""The bare loops read what the recipes ask for: right shapes, and an image's own pixels where nothing is random."""

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.helpers import face_sets, packs
from zoo.bench.bare import loading
from zoo.data.datasets import synthetic
from zoo.data.formats import images


@pytest.mark.parametrize("name", ["images", "plain_images", "frames", "antialiased_frames", "videos", "faces"])
def test_samples_have_the_shape_of_the_recipe(name, tmp_path):
    train, _ = sets.SETS[name](tmp_path)
    read = loading.reader(train)
    for index in range(2):  # a frame of the third clip is rotated
        pixels = read(index)
        assert pixels.shape == train.fields[0].shape and pixels.dtype == np.uint8


def test_scenes_come_with_their_masks(tmp_path):
    train, _ = sets.scene_set(tmp_path, photometric=True, scale=(1.5, 2.0))
    image, label = loading.reader(train)(0)
    assert image.shape == (*train.settings.crop, 3) and label.shape == train.settings.crop


def test_pixels_are_those_of_the_file_in_rgb(tmp_path, monkeypatch):
    monkeypatch.setattr(loading.random, "random", lambda: 0.9)  # no flip
    train, _ = sets.face_set(tmp_path)
    assert np.array_equal(loading.reader(train)(0), images.decode_stored(images.read(train.source.encoded(0))))


def test_faces_of_a_pack(tmp_path):
    face_sets.add_bin(tmp_path)
    packs.write(tmp_path, packs.face_pack(face_sets.PACK))
    train, _ = face_sets.load(tmp_path)
    read = loading.reader(train)
    assert [int(read(index).mean()) for index in range(len(train))] == [
        int(train.sample(index, np.random.default_rng(0))["image"].mean()) for index in range(len(train))
    ]


def test_a_split_without_files_has_no_loop():
    train, _ = synthetic.load(synthetic.Settings(num_classes=5, train_samples=4, size=8))
    assert loading.reader(train) is None
