"""Samples of files of all forms and sizes: DALI's pixels are nearly those of the reference loader, the rest equal."""

import numpy as np
import pytest

from tests.data.loaders import odd_files
from tests.data.loaders.odd_files import DECODED, FORMS, SIZES, encode, needs_dali, put
from tests.data.loaders.sets import settings
from tests.helpers import packs
from zoo.data import order
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics

pytestmark = needs_dali
MAX_MEAN_DIFFERENCE = 0.2  # of 255, over a set
MAX_DIFFERENCE = 1  # of 255, of any value: both filters compute the same, and round in another way


def check(split, purpose, field, seeds, max_mean=MAX_MEAN_DIFFERENCE):
    """Compare all samples of a split; return how many DALI decoded."""
    differences = []
    for seed in seeds:
        for index in range(len(split)):
            expected = split.sample(index, order.generator(seed, purpose, index))
            given, reason, pending = odd_files.read_by_dali(split, index, order.generator(seed, purpose, index))
            assert reason is None and given.keys() == expected.keys()
            for name, array in expected.items():
                assert array.shape == given[name].shape and array.dtype == given[name].dtype
                assert np.array_equal(array, given[name]) or (name == field and pending and max_mean), split.name(index)
            if pending:
                difference = np.abs(expected[field].astype(int) - given[field])
                assert difference.max() <= MAX_DIFFERENCE, split.name(index)
                differences.append(difference.mean())
    assert np.mean(differences) <= max_mean
    return len(differences) / len(seeds)


def is_decoded_by_dali(form):
    return form not in DECODED


@pytest.fixture(scope="module")
def image_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for number, form in enumerate(FORMS):
        for width, height in SIZES:
            content = encode(form, width, height, number)
            for split in ("train", "val"):
                put(root / split / "ab"[number % 2] / f"{form}_{width}x{height}.jpg", content)
    return root


@pytest.mark.parametrize("size", [64, 150])
@pytest.mark.parametrize("antialias", [True, False])
def test_images(image_root, antialias, size):
    keys = {"size": size, "antialias": antialias, "reduce": False}
    train, val = imagenet.load(imagenet.Settings(root=str(image_root), **settings(), **keys))
    expected = len(SIZES) * sum(map(is_decoded_by_dali, FORMS))
    assert check(train, "augment", "image", (0, 1)) == check(val, "evaluate", "image", (0,)) == expected


def test_images_that_are_decoded_at_a_fraction_of_their_size_are_equal(tmp_path):
    """The reference loader decodes these."""
    for split in ("train", "val"):
        for number, form in enumerate(("plain", "progressive", "gray")):
            put(tmp_path / split / "ab"[number % 2] / f"{number}.jpg", encode(form, 333, 250, number))
    train, _ = imagenet.load(imagenet.Settings(root=str(tmp_path), size=20, scale=(0.8, 1.0), **settings()))
    for index in range(3):
        sample, _, pending = odd_files.read_by_dali(train, index, order.generator(0, "augment", index))
        expected = train.sample(index, order.generator(0, "augment", index))
        assert not pending and np.array_equal(sample["image"], expected["image"])


@pytest.fixture(scope="module")
def scene_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("scenes")
    for number, form in enumerate(FORMS):
        for width, height in ((1, 1), (3, 5), (33, 31), (97, 64), (17, 201)):
            mask = np.random.default_rng(number).integers(0, 3, (height, width), dtype=np.uint8)
            for split in ("train", "val"):
                put(root / "images" / split / f"{form}_{width}.png", encode(form, width, height, number))
                put(root / "masks" / split / f"{form}_{width}.png", packs.encode(mask))
    return root


@pytest.mark.parametrize(
    "keys",
    [
        {"crop": (48, 80)},
        {"crop": (48, 80), "base_size": (50, 100), "scale": (0.2, 3.0)},
        {"crop": (33, 33), "base_size": (100, 60), "max_share": 1.0, "flip": False},
    ],
    ids=str,
)
def test_scenes(scene_root, keys):
    train, val = cityscapes.load(
        cityscapes.Settings(root=str(scene_root), num_classes=3, photometric=False, **settings(), **keys)
    )
    expected = 5 * sum(map(is_decoded_by_dali, FORMS))
    assert check(train, "augment", "image", (0, 1)) == check(val, "evaluate", "image", (0,)) == expected


@pytest.fixture(scope="module")
def frame_root(tmp_path_factory):
    root, lines = tmp_path_factory.mktemp("frames"), []
    for number, form in enumerate(form for form in FORMS if form not in ("GIF",)):
        for width, height in ((3, 5), (33, 31), (97, 64)):
            for frame in range(1, 9):
                put(root / f"{number}_{width}" / f"img_{frame:05d}.jpg", encode(form, width, height, number + frame))
            lines.append(f"{number}_{width} 8 {number % 3}")
    for frame, form in enumerate(("plain", "progressive", "gray", "4:1:1", "poor", "RGB", "4:2:2", "plain"), 1):
        put(root / "mixed" / f"img_{frame:05d}.jpg", encode(form, 64, 48, frame))
        if frame not in (3, 6):
            put(root / "gap" / f"img_{frame:05d}.jpg", encode(form, 64, 48, frame))
    lines += ["mixed 8 0", "gap 8 1"]
    for name in ("train.list", "val.list"):
        (root / name).write_text("\n".join(lines) + "\n")
    return root


@pytest.mark.parametrize("sampling", ["uniform", "dense"])
@pytest.mark.parametrize("antialias", [True, False])
def test_frames(frame_root, antialias, sampling):
    keys = {"size": 56, "segments": 4, "antialias": antialias, "sampling": sampling}
    train, val = kinetics.load(kinetics.Settings(root=str(frame_root), **settings(), **keys))
    # The header of a frame is not searched for its orientation, so files with any EXIF are not left to DALI.
    expected = 3 * sum(form not in (*DECODED, "PNG", "orientation 1") for form in FORMS) + 2
    assert check(train, "augment", "video", (0, 1)) == check(val, "evaluate", "video", (0,)) == expected


@pytest.mark.parametrize("layout", ["folders", "pack"])
def test_faces_are_equal(tmp_path, layout):
    identities = [[encode(form, 112, 112, number) for number in range(2)] for form in FORMS]
    if layout == "pack":
        packs.write(tmp_path, packs.face_pack(identities))
    else:
        for number, images in enumerate(identities):
            for image, content in enumerate(images):
                put(tmp_path / "train" / f"{number:02d}" / f"{image}.jpg", content)
    train, val = faces.load(faces.Settings(root=str(tmp_path), val_fraction=0.4, val_pairs=20, **settings()))
    plain = [is_decoded_by_dali(form) and form not in ("PNG", "orientation 1") for form in FORMS]
    assert check(train, "augment", "image", (0, 1), 0) == 2 * sum(plain[: len(train.classes)]) > 0
    check(train, "augment", "image", (2,), 0)
    for index in range(len(val)):
        given, reason, _ = odd_files.read_by_dali(val, index, order.generator(0, "evaluate", index))
        assert reason is None and np.array_equal(given["image"], val.sample(index, None)["image"])


def test_another_filter_is_noticed(image_root):
    """The comparison can fail: plain and antialiased resizing differ by more than its bound."""
    (_, split), (_, other) = (
        imagenet.load(imagenet.Settings(root=str(image_root), size=30, reduce=False, antialias=antialias, **settings()))
        for antialias in (True, False)
    )
    split.plan = other.plan
    with pytest.raises(AssertionError, match=r"_121x90.jpg\nassert [2-9] <= 1"):
        check(split, "evaluate", "image", (0,))
