"""Classification with a trainer whose logits are known."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from zoo.data.datasets import imagenet
from zoo.data.errors import BadSample
from zoo.predict.classify import classify_file, image_split, softmax
from zoo.predict.results import TrainedModel


class MeanColor:
    """A trainer whose logits are the mean color of each image, times 0.01."""

    def to_device(self, batch):
        return batch["image"]

    def predict(self, images):
        return images.mean((1, 2)).astype(np.float32) / 100


@pytest.fixture
def model():
    cfg = SimpleNamespace(data=imagenet.Settings(size=8), seed=1)
    return TrainedModel(cfg, MeanColor(), ("red", "green", "blue"), {})


def test_an_image_is_classified(model, tmp_path):
    Image.new("RGB", (20, 30), (100, 200, 0)).save(tmp_path / "a.png")
    prediction = classify_file(image_split, model, str(tmp_path / "a.png"), 0, 2, "")
    expected = np.exp([1, 2, 0]) / np.exp([1, 2, 0]).sum()
    np.testing.assert_allclose(prediction.row["probabilities"], expected, rtol=1e-6)
    assert prediction.row["top"] == ["green", "red"]
    assert prediction.line == f"green {expected[1]:.3f}, red {expected[0]:.3f}"


def test_unreadable_files_are_bad_samples(model, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(BadSample):
        classify_file(image_split, model, str(tmp_path / "a.png"), 0, None, "")


def test_logits_that_are_large_or_not_finite():
    np.testing.assert_allclose(softmax(np.array([1e4, 1e4, -1e4])), [0.5, 0.5, 0])
    for value in (np.nan, np.inf):
        with pytest.raises(BadSample, match="logits are not finite"):
            softmax(np.array([0.0, value]))
