"""Training samples as an evaluation shows them."""

from dataclasses import replace

import numpy as np
import pytest

from zoo.data.dataset import TrainingSubset
from zoo.data.datasets import imagenet, kinetics, synthetic
from zoo.data.demo import motion, shapes, streets
from zoo.data.errors import BadSample, UserError

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def image_settings(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("images") / "shapes")
    shapes.load(shapes.Settings(root=root, train_images=24, val_images=24, size=32, eval_size=16))
    return imagenet.Settings(root=root, size=32, eval_size=16, mixup=0.2)


def swapped(root, tmp_path, names=("train", "val")):
    """Return a folder that has the training samples as its validation samples, too."""
    (tmp_path / "twice").mkdir()
    for name in names:
        (tmp_path / "twice" / name).symlink_to(f"{root}/{names[0]}")
    return str(tmp_path / "twice")


def check(subset, train, expected, count):
    """Compare with a validation split of the same samples."""
    places = [i * len(train) // count for i in range(count)]
    assert len(subset) == count and [subset.name(i) for i in range(count)] == [train.name(i) for i in places]
    assert (subset.fields, subset.classes, subset.views) == (expected.fields, expected.classes, expected.views)
    for i, place in enumerate(places):
        found, wanted = subset.sample(i, RNG(1)), expected.sample(place, RNG(1))
        assert found.keys() == wanted.keys() and all(np.array_equal(found[key], wanted[key]) for key in wanted)


def test_images_have_the_center_crop_and_no_mixing(image_settings, tmp_path):
    train, _ = imagenet.load(image_settings)
    _, expected = imagenet.load(replace(image_settings, root=swapped(image_settings.root, tmp_path)))
    before = train.sample(0, RNG(1))
    check(TrainingSubset(train, 5), train, expected, 5)
    after = train.sample(0, RNG(1))  # the training split shows its samples as before
    assert all(np.array_equal(before[key], after[key]) for key in before) and len(train.fields) == 3


def test_clips_have_the_views_of_an_evaluation(tmp_path):
    root = str(tmp_path / "motion")
    settings = motion.Settings(root=root, size=32, train_clips=8, val_clips=8, segments=2, eval_crops=3)
    train, _ = motion.load(settings)
    _, expected = kinetics.load(
        kinetics.Settings(root=root, size=32, segments=2, eval_crops=3, train_list=settings.train_list,
                          val_list=f"{root}/train.list")
    )  # fmt: skip
    check(TrainingSubset(train, 3), train, expected, 3)
    assert expected.views == 3


def test_scenes_are_whole(tmp_path):
    root, sizes = str(tmp_path / "streets"), {"crop": (32, 64), "base_size": (160, 320)}
    train, val = streets.load(streets.Settings(root=root, train_images=4, val_images=4, **sizes))
    subset = TrainingSubset(train, 2)
    assert subset.fields == val.fields and subset.fields[0].shape != train.fields[0].shape
    label = subset.sample(0, RNG(1))["label"]
    assert label.shape == val.fields[-1].shape and np.array_equal(label, subset.sample(0, RNG(2))["label"])


def test_noise_has_the_length_of_the_training_split():
    train, val = synthetic.load(synthetic.Settings(kind="image", train_samples=7, val_samples=3, size=8))
    subset = TrainingSubset(train, 100)
    assert len(subset) == 7 and subset.fields == val.fields


def test_an_unreadable_sample_stays_one(image_settings, monkeypatch):
    def unreadable(split, index):
        raise BadSample("broken")

    train, _ = imagenet.load(image_settings)
    subset = TrainingSubset(train, 2)
    monkeypatch.setattr(imagenet.ImageSplit, "_read", unreadable)
    for read in (subset.sample, subset.plan):
        with pytest.raises(BadSample, match="broken"):
            read(0, RNG(1))


@pytest.mark.parametrize("open_set", [synthetic.load, lambda settings: (object(), None)])
def test_what_cannot_be_evaluated_is_refused(open_set):
    train, _ = open_set(synthetic.Settings(kind="face", train_samples=7, val_samples=10))
    with pytest.raises(UserError, match=r"train.eval_train_samples: .* leave it out"):
        TrainingSubset(train, 2)
