"""Samples decoded by DALI, and plans of the data sets, against those of the reference loader."""

import copy
import dataclasses
import re
import struct

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.data.loaders.sets import DAMAGES, DECODED_FORMS, FORMS, SIZES, encode_form, needs_dali, put
from zoo.data import loaders, order
from zoo.data.dataset import Pending
from zoo.data.datasets import imagenet, synthetic
from zoo.data.errors import UserError
from zoo.data.formats import images
from zoo.data.loaders.packed import Failure
from zoo.data.stream import open_evaluation, open_training
from zoo.data.transforms import pixels

EXACT = ("faces", *sets.DECODED)
MAX_MEAN_DIFFERENCE = 0.2  # of 255, over a set
MAX_DIFFERENCE = 1  # of 255, of any value: both filters compute the same, and round in another way
BYTE, SHORT = 1, 3  # types of EXIF values; an orientation is a SHORT


def batches(split, first=0, last=4, batch_size=4):
    return list(open_training(split, 3, batch_size, first, last))


def images_of(found):
    return [image for batch, _ in found for image in batch["image"]]


def with_dali(split):
    """Return a copy of a split whose images DALI decodes."""
    other = copy.copy(split)
    other.settings = dataclasses.replace(split.settings, loader="dali")
    return other


def compare(expected, given, exact=False):
    """Assert that batches are equal but for pixels, and these nearly so."""
    assert len(expected) == len(given)
    for (left, left_unreadable), (right, right_unreadable) in zip(expected, given):
        assert left.keys() == right.keys() and left_unreadable == right_unreadable
        for name, array in left.items():
            assert array.shape == right[name].shape and array.dtype == right[name].dtype
            if name == "label" or array.ndim < 4 or exact:
                assert np.array_equal(array, right[name]), name
            else:
                assert np.abs(array.astype(int) - right[name]).mean() <= MAX_MEAN_DIFFERENCE, name


@needs_dali
@pytest.mark.parametrize("name", sets.SETS)
def test_batches_are_those_of_the_reference_loader(name, tmp_path):
    train, val = sets.SETS[name](tmp_path)
    dali_train, dali_val = with_dali(train), with_dali(val)
    compare(batches(train), batches(dali_train), name in EXACT)
    compare(list(open_evaluation(val, 3, 1)), list(open_evaluation(dali_val, 3, 1)), name in EXACT)


def load_images(root, **keys):
    return imagenet.load(imagenet.Settings(root=str(root), reduce=False, **sets.settings(), **keys))


def read_both(split, index, seed, purpose):
    """Return what the two loaders give, as sets.read and sets.read_by_dali."""
    reference = sets.read(split.sample, index, order.generator(seed, purpose, index))
    return reference, sets.read_by_dali(split, index, order.generator(seed, purpose, index))


@pytest.fixture(scope="module")
def image_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for number, form in enumerate(FORMS):
        for width, height in SIZES:
            content = encode_form(form, width, height, number)
            for split in ("train", "val"):
                put(root / split / "ab"[number % 2] / f"{form}_{width}x{height}.jpg", content)
    return root


@needs_dali
@pytest.mark.parametrize("antialias", [True, False])
def test_images_of_all_forms_and_sizes(image_root, antialias):
    for split, purpose in zip(load_images(image_root, size=64, antialias=antialias), ("augment", "evaluate")):
        means = []
        for index in range(len(split)):
            (expected, _), (found, reason, pending) = read_both(split, index, 0, purpose)
            assert reason is None and found["label"] == expected["label"]
            assert found["image"].shape == expected["image"].shape and found["image"].dtype == np.uint8
            differences = np.abs(expected["image"].astype(int) - found["image"])
            assert differences.max() <= (MAX_DIFFERENCE if pending else 0), split.name(index)
            means += [differences.mean()] if pending else []
        assert np.mean(means) <= MAX_MEAN_DIFFERENCE and len(means) == len(SIZES) * (len(FORMS) - len(DECODED_FORMS))


@needs_dali
@pytest.mark.parametrize("damage", DAMAGES)
def test_dali_neither_accepts_nor_refuses_other_damaged_files(damage, tmp_path):
    for path in ("train/a/0.jpg", "train/b/0.jpg", "val/a/0.jpg", "val/b/0.jpg"):
        put(tmp_path / path, encode_form("plain", 40, 30))
    split, _ = load_images(tmp_path, size=48)
    for seed, form in enumerate(("plain", "progressive", "gray", "restart markers", "PNG", "CMYK", "orientation 6")):
        (tmp_path / "train/a/0.jpg").write_bytes(DAMAGES[damage](encode_form(form, 120, 90, seed)))
        (expected, reason), (found, refusal, _) = read_both(split, 0, seed, "augment")
        if refusal != "DALI":  # then the reference loader reads it again
            assert refusal == reason and (not found or found["image"].shape == expected["image"].shape)


def exif(orientation, kind=SHORT, length=None):
    """Return a metadata segment whose last entry is the orientation, cut to a length."""
    entry = struct.pack("<HHI", 0x112, kind, 1) + struct.pack("<HH", orientation, 0)
    block = (b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4))[:length]
    return b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block


@needs_dali
@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_orientations_that_decoders_read_differently(tmp_path):
    """DALI rotates nothing, because what it gets is stored upright."""
    content = encode_form("4:4:4", 97, 64)
    scan = content.index(b"\xff\xda")
    segments = [*(exif(number, BYTE) for number in (2, 3, 6)), exif(3, length=26), exif(1) + exif(3), exif(9)]
    files = [content[:2] + segment + content[2:] for segment in segments]
    for number, file in enumerate([*files, content[:scan] + exif(3) + content[scan:]]):
        for split in ("train", "val"):
            put(tmp_path / split / "ab"[number % 2] / f"{number}.jpg", file)
    split, _ = load_images(tmp_path, size=48)
    for index in range(len(split)):
        (expected, _), (found, reason, _) = read_both(split, index, 0, "augment")
        assert reason is None and np.abs(expected["image"].astype(int) - found["image"]).mean() <= 1, split.name(index)


@needs_dali
def test_a_sample_that_dali_cannot_decode_is_read_by_the_reference_loader(tmp_path, monkeypatch):
    """It alone: pixels do not depend on the batch that a sample is in."""
    train, _ = sets.image_set(tmp_path, loader="dali")
    reference, _ = sets.image_set(tmp_path, loader="reference")
    working, broken = batches(train), 5
    sets.hide_part(train, broken, monkeypatch)
    name = re.escape(train.name(broken))
    with pytest.warns(UserWarning, match=rf"reference loader reads {name}, which DALI cannot decode \(.+\)"):
        given = batches(train)
    compare(batches(reference), given)
    monkeypatch.undo()
    positions = [order.locate(3, len(train), position)[1] for position in range(16)]
    pairs = zip(images_of(given), images_of(working), images_of(batches(reference)), positions, strict=True)
    for image, from_dali, from_reference, index in pairs:
        assert np.array_equal(image, from_reference if index == broken else from_dali)
    assert broken in positions
    assert all(np.array_equal(a[0]["image"], b[0]["image"]) for a, b in zip(working, batches(train)))


@needs_dali
def test_images_that_fail_together_are_decoded_one_by_one(tmp_path, monkeypatch):
    train, _ = sets.face_set(tmp_path, loader="dali")
    expected, decode, sizes = batches(train), loaders.decode_here, []

    def small(samples):
        sizes.append(len(samples))
        if len(samples) > 1:
            raise Failure("out of memory")
        return decode(samples)

    monkeypatch.setattr(loaders, "decode_here", small)
    compare(expected, batches(train), exact=True)
    assert {1, 4} <= set(sizes)


def test_without_dali_a_run_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setattr(loaders.extras, "is_installed", lambda package: False)
    train, val = sets.face_set(tmp_path, loader="dali")
    for open_stream in (lambda: open_training(train, 0, 2, 0, 1), lambda: open_evaluation(val, 0, 2)):
        with pytest.raises(UserError, match=r"data.loader: dali .* data.loader=reference"):
            open_stream()


def decode(value, tmp_path):
    if not isinstance(value, Pending):
        return value
    decoded = []
    for number, content in enumerate(value.files):
        path = tmp_path / str(number)
        path.write_bytes(content)
        decoded.append(pixels.apply(images.decode_stored(images.read(str(path))), value.geometry))
    return np.stack(decoded) if value.stacked else decoded[0]


@pytest.mark.parametrize("name", sets.SETS)
@pytest.mark.parametrize("training", [True, False])
def test_a_plan_is_the_sample_undecoded(name, training, tmp_path):
    split = sets.SETS[name](tmp_path / "set")[0 if training else 1]
    pending = 0
    for index in range(len(split)):
        sample, plan = (read(index, order.generator(0, "augment", index)) for read in (split.sample, split.plan))
        assert sample.keys() == plan.keys()
        pending += any(isinstance(value, Pending) for value in plan.values())
        for field in sample:
            assert np.array_equal(sample[field], decode(plan[field], tmp_path)), (index, field)
    assert pending >= len(split) // 2 if name not in sets.DECODED else pending == 0


def test_synthetic_samples_have_no_files():
    train, _ = synthetic.load(synthetic.Settings(num_classes=5, train_samples=4, size=8))
    sample, plan = (read(1, order.generator(0, "augment", 1)) for read in (train.sample, train.plan))
    assert np.array_equal(sample["image"], plan["image"])
