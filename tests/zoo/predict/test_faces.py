"""Embeddings and searches with a trainer whose embeddings are known."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from zoo.data.errors import BadSample
from zoo.predict import faces
from zoo.predict.results import TrainedModel

SETTINGS = SimpleNamespace(size=2, resize=False)


class FirstPixel:
    """A trainer whose embedding is the color of the first pixel, and of the last one for the mirror image."""

    def to_device(self, batch):
        return batch["image"]

    def predict(self, images):
        return np.stack([images[:, 0, 0], images[:, 0, -1]], 1).astype(np.float32)


def write_image(path, first, last):
    Image.fromarray(np.array([[first, last]] * 2, np.uint8)).save(path)
    return str(path)


def test_embeddings_are_added_and_normalized():
    images = np.array([[[[3, 0, 0], [0, 4, 0]]], [[[0, 0, 0], [0, 0, 0]]]], np.uint8)
    units, norms = faces.embed(FirstPixel(), images)
    np.testing.assert_allclose(units[0], [0.6, 0.8, 0], atol=1e-15)
    assert np.isnan(units[1]).all() and norms.tolist() == [3.5, 0]


def test_a_search_returns_cosines_and_failures(tmp_path):
    album = [
        write_image(tmp_path / "a.png", (0, 0, 0), (0, 0, 0)),
        write_image(tmp_path / "b.png", (0, 9, 0), (0, 9, 0)),
        write_image(tmp_path / "c.png", (30, 0, 0), (0, 40, 0)),
        str(tmp_path / "lost.png"),
    ]
    paths, cosines, failures = faces.search(FirstPixel(), SETTINGS, np.array([[0.6, 0.8, 0]]), album)
    assert paths == album[1:3] and [failure.path for failure in failures] == [album[3], album[0]]
    assert failures[1].reason == faces.NO_DIRECTION
    np.testing.assert_allclose(cosines, [[0.8, 1.0]], atol=1e-15)


def test_a_face_without_direction_is_a_bad_sample(tmp_path):
    model = TrainedModel(SimpleNamespace(data=SETTINGS), FirstPixel(), (), {})
    path = write_image(tmp_path / "a.png", (0, 0, 0), (0, 0, 0))
    with pytest.raises(BadSample, match="its embedding is zero"):
        faces.embed_file(model, path, 0, None, "")
