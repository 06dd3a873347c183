"""Data of an evaluation: classes are found by name, and a training split is not needed."""

import pickle

import numpy as np
import pytest
from PIL import Image

from zoo.data.dataset import Relabeled
from zoo.data.datasets import cityscapes, imagenet
from zoo.data.errors import UserError
from zoo.run import dataset
from zoo.weights.recorded import Recorded

CLASSES = ("cat", "dog", "owl")


def load(monkeypatch, root, trained, module=imagenet, **keys):
    """Return the splits that an evaluation of weights, which were trained on some classes, reads."""
    monkeypatch.setattr(dataset.recorded, "read", lambda path: Recorded("resnet", {}, {}, trained))
    return dataset._load_for_evaluation(module, module.Settings(root=str(root), **keys), "some/weights")


def write(root, *classes, splits=("train", "val")):
    for split in splits:
        for number, name in enumerate(classes):
            folder = root / split / name
            folder.mkdir(parents=True)
            Image.new("RGB", (40, 40), (number, 0, 0)).save(folder / "a.png")


def labels(split):
    return [int(split.sample(index, np.random.default_rng())["label"]) for index in range(len(split))]


@pytest.mark.parametrize(
    "classes, trained, expected",
    [
        (("cat", "dog", "owl"), CLASSES, [0, 1, 2]),
        (("dog", "owl"), CLASSES, [1, 2]),
        (("cat", "dog", "owl"), ("owl", "cat", "dog"), [1, 2, 0]),
        (("cat", "dog"), (), [0, 1]),  # weights without names
        (("katze", "hund", "eule"), CLASSES, [0, 1, 2]),  # as many by other names: weights.py warns
    ],
)
def test_labels_are_those_of_the_weights(classes, trained, expected, tmp_path, monkeypatch):
    write(tmp_path, *classes)
    train, val = load(monkeypatch, tmp_path, trained)
    assert labels(val) == expected == labels(pickle.loads(pickle.dumps(val)))
    assert val.classes == (trained if isinstance(val, Relabeled) else tuple(sorted(classes)))
    assert val.name(0) == f"val/{sorted(classes)[0]}/a.png" and train.notes == ()
    planned = val.plan(0, np.random.default_rng())
    assert planned["label"] == expected[0] and planned["label"].dtype == np.int64


def test_a_class_that_the_weights_do_not_know_is_refused(tmp_path, monkeypatch):
    write(tmp_path, "dog", "owls")
    with pytest.raises(UserError, match="not trained on the class 'owls' .*did you mean owl"):
        load(monkeypatch, tmp_path, CLASSES)


def test_a_new_name_that_moves_the_others_is_refused(tmp_path, monkeypatch):
    """By number, a dog would be a cat."""
    write(tmp_path, "dog", "kitten")
    with pytest.raises(UserError, match="not trained on the class 'kitten'"):
        load(monkeypatch, tmp_path, ("cat", "dog"))


def test_a_mistake_in_a_data_set_is_none_of_the_user(monkeypatch, tmp_path):
    """And no sign that it has one way to load its splits."""

    def broken(settings, splits=("train", "val")):
        if splits == ("val",):
            raise TypeError("a mistake")
        raise UserError("no training split")

    monkeypatch.setattr(imagenet, "load", broken)
    with pytest.raises(TypeError, match="a mistake"):
        load(monkeypatch, tmp_path, CLASSES)
    monkeypatch.setattr(imagenet, "load", lambda settings: broken(settings))
    with pytest.raises(UserError, match="no training split"):
        load(monkeypatch, tmp_path, CLASSES)


def test_the_validation_split_alone(tmp_path, monkeypatch):
    write(tmp_path, "dog", "owl", splits=["val"])
    train, val = load(monkeypatch, tmp_path, CLASSES)
    assert labels(val) == [1, 2] and len(train) == 2
    assert train.notes[0].startswith("without a training split: ") and "train_list.txt" in train.notes[0]
    (tmp_path / "val").rename(tmp_path / "test")
    with pytest.raises(UserError, match="train_list.txt"):  # what the data set said first
        load(monkeypatch, tmp_path, CLASSES)


def test_classes_of_masks(tmp_path, monkeypatch):
    for split in ("train", "val"):
        for kind in ("images", "masks"):
            (tmp_path / kind / split).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / split / "a.png")
        mask = np.resize(np.array([0, 1, 255], np.uint8), (8, 8))
        Image.fromarray(mask).save(tmp_path / "masks" / split / "a.png")
    (tmp_path / "classes.txt").write_text("dog\nowl\n")
    _, val = load(monkeypatch, tmp_path, CLASSES, cityscapes, crop=(8, 8))
    found = val.sample(0, np.random.default_rng())["label"]
    assert found.dtype == np.uint8 and np.array_equal(found, np.resize(np.array([1, 2, 255], np.uint8), (8, 8)))
