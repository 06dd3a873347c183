"""A training sample is mirrored with probability 1/2, in every data set: seen at draws next to 1/2."""

import numpy as np
import pytest
from PIL import Image

from tests.helpers.face_sets import load as load_faces
from tests.helpers.face_sets import write_set
from zoo.data.augment.steps import Pipeline
from zoo.data.datasets import imagenet, kinetics, segmentation
from zoo.data.formats.lists import LabeledPath

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)


class GivenDraw:
    """A random generator whose random() returns a given number; everything else is that of seed 0."""

    def __init__(self, value):
        self.value, self.rng = value, np.random.default_rng(0)

    def random(self):
        return self.value

    def __getattr__(self, name):
        return getattr(self.rng, name)


def image_of_imagenet(folder, rng):
    Image.fromarray(PIXELS).save(folder / "x.png")
    settings = imagenet.Settings(root=str(folder), size=16, workers=0)
    split = imagenet.ImageSplit(settings, [LabeledPath("x.png", 0)], ("a",), True)
    return split.sample(0, rng)["image"]


def clip_of_kinetics(folder, rng):
    split = kinetics.ClipSplit(kinetics.Settings(segments=2, size=16), [LabeledPath("x", 0)], ("a",), True)
    split._read = lambda clip, pick: np.stack([PIXELS, PIXELS[::-1]])
    return split.sample(0, rng)["video"]


def face(folder, rng):
    return load_faces(write_set(folder, "rec"))[0].sample(3, rng)["image"]


def street(folder, rng):
    settings = segmentation.SegmentationSettings(crop=(16, 16), photometric=False)
    pipeline = Pipeline(settings, segmentation.standard_steps(settings))
    return segmentation.augment(PIXELS, PIXELS[..., 0], settings, rng, pipeline)[0]


@pytest.mark.parametrize("sample", [image_of_imagenet, clip_of_kinetics, face, street])
def test_half_of_the_draws_mirror(sample, tmp_path):
    images = []
    for number, value in enumerate((0.0, 0.499, 0.5, 0.999)):
        (tmp_path / str(number)).mkdir()
        images.append(sample(tmp_path / str(number), GivenDraw(value)))
    mirrored = np.flip(images[0], -2)
    assert not np.array_equal(images[0], mirrored)
    for image, expected in zip(images, (images[0], images[0], mirrored, mirrored)):
        np.testing.assert_array_equal(image, expected)
