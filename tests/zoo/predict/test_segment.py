"""Class maps with a trainer that segments by color."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.helpers import clips as encoded
from zoo.data.datasets import cityscapes
from zoo.predict import overlay
from zoo.predict.results import TrainedModel
from zoo.predict.segment import segment

NAMES = ("red", "green", "blue")


class ByColor:
    """A trainer that labels each pixel with its strongest color, in whatever size is asked for."""

    def to_device(self, batch):
        return batch["image"]

    def predict(self, images, size):
        assert images.shape[1:3] == size
        return images.argmax(3).astype(np.uint8)


@pytest.fixture
def model():
    return TrainedModel(SimpleNamespace(data=cityscapes.Settings(base_size=None)), ByColor(), NAMES, {})


def blocks(height, width):
    """Return an image whose left quarter is red and whose other pixels are blue."""
    image = np.zeros((height, width, 3), np.uint8)
    image[:, : width // 4, 0] = 200
    image[:, width // 4 :, 2] = 200
    return image


def test_an_image_is_segmented(model, tmp_path):
    Image.fromarray(blocks(30, 40)).save(tmp_path / "a.png")
    prediction = segment(model, str(tmp_path / "a.png"), 0, None, str(tmp_path / "out"))
    assert prediction.line == "blue 75.0 %, red 25.0 %" and prediction.row["shares"] == [0.25, 0, 0.75]
    assert segment(model, str(tmp_path / "a.png"), 0, 1, str(tmp_path / "out")).line == "blue 75.0 %"
    labels = np.asarray(Image.open(prediction.row["written"]["labels"]))
    assert labels.shape == (30, 40) and (labels[:, :10] == 0).all() and (labels[:, 10:] == 2).all()
    assert set(prediction.row["written"]) == {"classes", "labels", "overlay"}


def test_a_video_is_segmented(model, tmp_path):
    encoded.encode(tmp_path / "a.mp4", np.stack([blocks(48, 64)] * 4), rate=10)
    prediction = segment(model, str(tmp_path / "a.mp4"), 0, None, str(tmp_path / "out"))
    assert prediction.row["frames"] == 4 and prediction.row["shares"] == pytest.approx([0.25, 0, 0.75], abs=0.03)
    frames = list(overlay.read_video(prediction.row["written"]["overlay"]))
    assert len(frames) == 4 and {rate for _, rate in frames} == {10}
