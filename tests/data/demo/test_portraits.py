"""The portraits: recorded pixels, correct pairs of unseen persons, and identities that pixels do not give away."""

import hashlib
import os

import numpy as np

from zoo.data import order
from zoo.data.datasets import faces
from zoo.data.demo import portrait_drawing as portrait
from zoo.data.demo import portraits
from zoo.data.demo.portrait_drawing import render
from zoo.tasks.face import Metric

PIXELS = "e42e4ec394cc25cd4767bb06165558b5"


def rng(number=0):
    return order.generator(0, "test", number)


def draw(identity, shot, size=48, variation=1.0):
    random = order.generator(0, f"shot of {identity}", shot)
    return render(portrait.random_person(rng(identity)), portrait.random_view(random, variation), random, size)


def verification_accuracy(shots, feature):
    """Return the accuracy on 120 pairs of 30 persons, images (30, 4, H, W, 3), by the distance of a feature."""
    same = np.array([[feature(image).ravel() for image in images] for images in shots.astype(float)])
    others = np.roll(same, 7, 0)
    pairs = [
        (same[identity, first], candidates[identity, second])
        for identity in range(30)
        for candidates, first, second in ((same, 0, 1), (others, 0, 0), (same, 2, 3), (others, 1, 1))
    ]
    metric = Metric(type("Pairs", (), {"sets": (("all", 0, 120),), "__len__": lambda _: 120})())
    metric.update(
        np.array(pairs, np.float32).reshape(240, 1, -1),
        {"label": np.tile([1, 0], 60), "pair": np.arange(120), "valid": np.ones(120)},
    )
    return metric.result(metric.state)["accuracy"]


def raw_pixels(image):
    return image / 127.5 - 1


def standardized_pixels(image):
    """Every color with the same mean and contrast."""
    return (image - image.mean((0, 1))) / image.std((0, 1))


def mean_color(image):
    return raw_pixels(image).mean((0, 1))


def test_recorded_pixels():
    pixels = b"".join(draw(identity, shot).tobytes() for identity in range(4) for shot in range(3))
    assert hashlib.md5(pixels).hexdigest() == PIXELS


def test_pixelwise_comparison_hardly_identifies_anyone():
    """It is the baseline of the demo's model; without pose, light and expression the same comparison succeeds."""
    shots, frontal = (
        np.array([[draw(identity, shot, variation=variation) for shot in range(4)] for identity in range(30)])
        for variation in (1.0, 0.0)
    )
    for feature in (raw_pixels, standardized_pixels, mean_color):
        assert verification_accuracy(shots, feature) < 0.8, feature
    assert verification_accuracy(frontal[:, :, 10:40, 10:38], standardized_pixels) > 0.95


def test_light_and_background_do_not_depend_on_the_person():
    corners = np.array([[draw(identity, shot)[:6, :6].mean((0, 1)) for shot in range(12)] for identity in range(12)])
    between = corners.mean(1).var(0)
    assert (between < 2.5 * corners.var(1).mean(0) / 12).all() and (corners.std(1).mean(0) > 30).all()


def test_persons_differ_in_the_same_view():
    view = portrait.random_view(rng(), 0.0)
    images = np.array([render(portrait.random_person(rng(number)), view, rng(), 48) for number in range(12)], float)
    differences = np.abs(images[:, None] - images[None]).mean((2, 3, 4))
    assert differences[~np.eye(12, dtype=bool)].min() > 4 and np.diag(differences).max() == 0


def test_pairs_are_balanced_distinct_and_of_unseen_persons(demo_set, read_files):
    root = demo_set("portraits").root
    with open(os.path.join(root, "unseen.txt"), encoding="utf-8") as file:
        lines = [line.split() for line in file]
    assert len(lines) == 20 and [line[2] for line in lines] == ["1", "0"] * 10
    assert len({tuple(sorted(line[:2])) for line in lines}) == 20
    for first, second, same in lines:
        assert first != second and (os.path.dirname(first) == os.path.dirname(second)) == (same == "1")
        assert all(path.startswith("unseen/") and os.path.isfile(os.path.join(root, path)) for path in (first, second))
    assert sum(path.endswith(".jpg") for path in read_files(root)) == 3 * 2 + 4 * 3


def test_the_largest_number_of_pairs(demo_set):
    """All 12 pairs of the same person of 4 persons with 3 images, once each."""
    settings = demo_set("portraits").settings(val_pairs=24)
    same = {line[:2] for line in portraits._pairs(settings) if line[2] == "1"}
    assert len(same) == 12 == len(set(portraits._pairs(settings))) / 2


def test_the_set_loads_as_faces(demo_set):
    train, val = demo_set("portraits").load(flip=False)
    assert isinstance(train, faces.FaceSplit) and isinstance(val, faces.VerificationPairs)
    assert (len(train), len(train.classes), len(val)) == (6, 3, 20) and val.sets == (("unseen", 0, 20),)
    assert [int(train.sample(index, rng())["label"]) for index in range(6)] == [0, 0, 1, 1, 2, 2]
    sample = val.sample(1, rng())
    assert sample["image"].shape == (2, 24, 24, 3) and int(sample["label"]) == 0
    random = order.generator(portraits.SEED, "train 1", 0)
    person = portrait.random_person(order.generator(portraits.SEED, "train person", 1))
    rendered = render(person, portrait.random_view(random, 1.0), random, 24)
    stored = train.sample(2, rng())["image"]
    assert np.abs(stored.astype(int) - rendered).mean() < 6  # of 255, lost by JPEG
