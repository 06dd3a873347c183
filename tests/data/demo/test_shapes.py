"""The shapes: recorded pixels, and classes that can be learned from shapes but not from colors."""

import hashlib
import os

import numpy as np

from zoo.data import order
from zoo.data.demo import shapes

PIXELS = "708ac0f29a66080b3b7bb8392d3cd6d4"


def render(name, count, seed=0):
    return [shapes.render(name, order.generator(seed, "test", number)) for number in range(count)]


def test_recorded_pixels():
    pixels = b"".join(image.tobytes() for name in shapes.CLASSES for image in render(name, 4))
    assert hashlib.md5(pixels).hexdigest() == PIXELS


def test_shapes_of_different_classes_differ_in_every_rotation():
    v, u = np.mgrid[-1.25:1.25:80j, -1.25:1.25:80j]
    masks = {name: shapes.signed_distance(name, u, v) < 0 for name in shapes.CLASSES}
    for name, mask in masks.items():
        assert 1.2 < mask.mean() * 2.5**2 < 2.1  # similar areas
        for angle in np.radians(np.arange(0, 360, 6)):
            rotated_u, rotated_v = np.cos(angle) * u + np.sin(angle) * v, np.cos(angle) * v - np.sin(angle) * u
            for other in set(masks) - {name}:
                rotated = shapes.signed_distance(other, rotated_u, rotated_v) < 0
                assert (mask & rotated).sum() < 0.9 * (mask | rotated).sum(), (name, other, angle)


def test_the_shape_is_visible_and_inside_the_image():
    for name in shapes.CLASSES:
        for image in render(name, 6):
            assert image.dtype == np.uint8 and image.shape[2] == 3
            assert min(image.shape[:2]) >= 64 and max(image.shape[:2]) <= 80
            border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]]).astype(float)
            assert np.abs(image - border.mean(0)).max() > 30
    for name in ("square", "cross"):
        for image in render(name, 20):
            height, width = image.shape[:2]
            edges = np.abs(np.diff(image.astype(float).mean(2), axis=1))
            strongest = np.argwhere(edges > 0.6 * edges.max())
            assert (np.abs(strongest - (height / 2, width / 2)) < (0.46 * height, 0.46 * width)).all()


def test_colors_do_not_identify_the_class():
    """The nearest mean color, estimated from 40 images per class, is hardly better than chance."""
    means = {
        name: np.array([image.reshape(-1, 3).mean(0) for image in render(name, 60, seed=number)])
        for number, name in enumerate(shapes.CLASSES)
    }
    centers = np.stack([means[name][:40].mean(0) for name in shapes.CLASSES])
    correct = [
        np.argmin(np.abs(centers - mean).sum(1)) == label
        for label, name in enumerate(shapes.CLASSES)
        for mean in means[name][40:]
    ]
    assert np.mean(correct) < 0.25  # 1 / 8 by chance


def test_classes_are_balanced_and_in_their_folders(demo_set):
    train, val = demo_set("shapes").load()
    assert train.classes == val.classes == shapes.CLASSES == tuple(sorted(shapes.CLASSES))
    assert np.bincount(train.labels).tolist() == [4] * 8 and np.bincount(val.labels).tolist() == [2] * 8
    for index in range(len(val)):
        assert val.name(index).split(os.sep)[1] == val.classes[val.labels[index]]
