"""The streets: recorded pixels, the layout of Cityscapes, and classes that color does not identify."""

import hashlib
import os
import re

import cv2
import numpy as np
import pytest

from zoo.data import order
from zoo.data.demo import streets
from zoo.data.formats import masks

PIXELS = "bbc178629738aaadd82a7be84ae55d60"
IDS = {label.name: label.id for label in masks.LABELS}
CLASSES = (
    "road",
    "sidewalk",
    "building",
    "pole",
    "traffic light",
    "traffic sign",
    "vegetation",
    "sky",
    "person",
    "car",
)
IGNORED = ("ego vehicle", "rectification border", "static", "dynamic")


@pytest.fixture(scope="module")
def scenes():
    """Images (N, H, W, 3) and labels (N, H, W) of the first streets of the training set."""
    pairs = [streets.render(order.generator(streets.SEED, "train", number)) for number in range(40)]
    return tuple(np.stack(arrays) for arrays in zip(*pairs))


def color_mean_iou(images, labels, trained):
    """Fit labels to colors (least squares, quadratic in R, G and B) and return the mean IoU on the later images."""
    known = np.isin(labels, [IDS[name] for name in CLASSES])
    ids, target = np.unique(labels[known], return_inverse=True)
    rgb = images[known] / 255
    terms = [np.ones(len(rgb))] + list(rgb.T) + [rgb[:, i] * rgb[:, j] for i in range(3) for j in range(i, 3)]
    features, first = np.stack(terms, 1), known[:trained].sum()
    weights = np.linalg.lstsq(features[:first], np.eye(len(ids))[target[:first]], rcond=None)[0]
    predicted, truth = (features[first:] @ weights).argmax(1), target[first:]
    counts = [
        (np.sum((predicted == k) & (truth == k)), np.sum((predicted == k) | (truth == k))) for k in range(len(ids))
    ]
    return np.mean([intersection / union for intersection, union in counts])


def test_recorded_pixels(scenes):
    assert hashlib.md5(b"".join(array[:6].tobytes() for array in scenes)).hexdigest() == PIXELS


def test_layout_and_names_are_those_of_cityscapes(demo_set, read_files):
    root = demo_set("streets").root
    paths = sorted(read_files(root))
    assert [path for path in paths if not path.endswith(".png")] == ["streets.json"]
    image_paths = [path for path in paths if path.startswith("leftImg8bit/")]
    mask_paths = [path for path in paths if path.startswith("gtFine/")]
    assert len(image_paths) == len(mask_paths) == 9 and len(paths) == 19
    for path, mask_path in zip(image_paths, mask_paths):
        match = re.fullmatch(r"leftImg8bit/(train|val)/([a-z]+)/(([a-z]+)_\d{6}_\d{6})_leftImg8bit\.png", path)
        assert match and match[2] == match[4] and match[2] in streets.CITIES[match[1]], path
        assert mask_path == f"gtFine/{match[1]}/{match[2]}/{match[3]}_gtFine_labelIds.png"
        image, ids = (cv2.imread(os.path.join(root, file), cv2.IMREAD_UNCHANGED) for file in (path, mask_path))
        assert (image.shape, image.dtype) == ((128, 256, 3), np.uint8)
        assert (ids.shape, ids.dtype) == ((128, 256), np.uint8)
    assert not set(streets.CITIES["train"]) & set(streets.CITIES["val"])


def test_files_contain_the_rendered_pixels(demo_set):
    """Image 5 of the training split is the second image of the second city; channels are RGB."""
    root, stem = demo_set("streets").root, "train/fernhagen/fernhagen_000001_000019"
    image, labels = streets.render(order.generator(streets.SEED, "train", 5))
    stored = cv2.imread(os.path.join(root, f"leftImg8bit/{stem}_leftImg8bit.png"))
    assert (cv2.cvtColor(stored, cv2.COLOR_BGR2RGB) == image).all()
    assert (cv2.imread(os.path.join(root, f"gtFine/{stem}_gtFine_labelIds.png"), cv2.IMREAD_UNCHANGED) == labels).all()


def test_every_class_covers_a_share_of_the_pixels(scenes):
    labels = scenes[1]
    assert set(np.unique(labels)) == {IDS[name] for name in CLASSES + IGNORED}
    for name in CLASSES:
        occurs = labels == IDS[name]
        assert occurs.mean() > 0.005 and occurs.any((1, 2)).mean() > 0.9, name
    ignored = masks.TRAIN_IDS[labels] == masks.IGNORE_INDEX
    assert 0.02 < ignored.mean() < 0.1


def test_color_alone_does_not_identify_the_class(scenes):
    images, labels = scenes[0][:, ::2, ::2], scenes[1][:, ::2, ::2]
    assert color_mean_iou(images, labels, 30) < 0.3
    color_per_class = order.generator(0, "test", 0).integers(0, 256, (256, 3), np.uint8)[labels]
    assert color_mean_iou(color_per_class, labels, 30) > 0.99  # where color does identify it, the fit succeeds


def test_light_differs_between_images(scenes):
    means = scenes[0].mean((1, 2))
    assert means.mean(1).std() > 10 and (means[:, 0] - means[:, 2]).std() > 5


def test_the_set_loads_as_cityscapes(demo_set):
    train, val = demo_set("streets").load()
    assert (len(train), len(val), train.classes) == (6, 3, masks.TRAIN_CLASSES)
    train_ids = {masks.TRAIN_CLASSES.index(name) for name in CLASSES} | {masks.IGNORE_INDEX}
    for split in (train, val):
        sample = split.sample(1, order.generator(0, "test", 0))
        assert sample["image"].shape == (128, 256, 3) and sample["label"].shape == (128, 256)
        assert set(np.unique(sample["label"])) <= train_ids


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_raises_an_error():
    with pytest.raises(OSError, match="No space left"):
        streets.write_png("/dev/full", np.zeros((8, 8, 3), np.uint8))
