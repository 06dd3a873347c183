"""What holds in every data set: lists stay below data.root, and half of the training samples are mirrored."""

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.helpers.face_sets import load as load_faces
from tests.helpers.face_sets import write_set
from zoo.data.augment.steps import Pipeline
from zoo.data.datasets import faces, imagenet, kinetics, segmentation
from zoo.data.errors import UserError
from zoo.data.formats.lists import LabeledPath


def load_set(module, root, **settings):
    return module.load(module.Settings(root=str(root), **settings))


@pytest.fixture
def root(tmp_path):
    """A folder with lists whose samples lie beside it."""
    (tmp_path / "set").mkdir()
    (tmp_path / "frames").mkdir()
    for number in range(1, 25):
        for name in (f"{number}.jpg", f"frames/img_{number:05d}.jpg"):
            cv2.imwrite(str(tmp_path / name), np.full((112, 112, 3), number, np.uint8))
    return tmp_path / "set"


def write_lists(root, names, lines):
    for name in names:
        (root / name).write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("form", ["../{}", "{root}/../{}", "a/../../{}"])
@pytest.mark.parametrize(
    "module, names, files, keys",
    [
        (kinetics, ("train.list", "val.list"), "frames 8", {}),
        (imagenet, ("train_list.txt", "val_list.txt"), "1.jpg", {}),
        (faces, ("label.txt",), "1.jpg", {"val_fraction": 0.5}),
    ],
    ids=["clips", "images", "faces"],
)
def test_they_are_refused_unless_the_recipe_allows_them(root, module, names, files, keys, form):
    (root / "a").mkdir()
    files = [files] if module is not faces else [f"{number}.jpg" for number in range(1, 25)]
    lines = [f"{form.format(file, root=root)} {label // 6}" for label, file in enumerate(files)]
    write_lists(root, names, lines)
    with pytest.raises(UserError, match="may lead out of data.root; .*data.allow_outside_root=true"):
        load_set(module, root, **keys)
    train, _ = load_set(module, root, allow_outside_root=True, **keys)
    assert len(train)


def test_pairs_of_faces(root):
    write_lists(root, ["pairs.txt"], ["../1.jpg ../2.jpg 0", "../1.jpg ../1.jpg 1"] * 5)
    write_lists(root, ["label.txt"], [f"{number}.jpg {number // 2}" for number in range(8)])
    for number in range(8):
        cv2.imwrite(str(root / f"{number}.jpg"), np.zeros((112, 112, 3), np.uint8))
    with pytest.raises(UserError, match="pairs.txt: ../1.jpg may lead out"):
        load_set(faces, root, verification=("pairs.txt",))
    _, pairs = load_set(faces, root, verification=("pairs.txt",), allow_outside_root=True)
    assert len(pairs.pair_sets[0].same) == 10


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
