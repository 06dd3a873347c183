"""Batches decoded by DALI against those of the reference loader: order, labels, replacements and pixels."""

import copy
import dataclasses
import importlib.util
import re

import numpy as np
import pytest

from tests.data.loaders import sets
from zoo.data import loaders, order
from zoo.data.errors import UserError
from zoo.data.loaders.dali_graph import Failure
from zoo.data.stream import open_evaluation, open_training

needs_dali = pytest.mark.skipif(
    not (importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali")),
    reason="NVIDIA DALI is not installed (extra `dali`)",
)
EXACT = ("faces", *sets.DECODED)
MAX_MEAN_DIFFERENCE = 0.2  # of 255


def batches(split, first=0, last=4, batch_size=4):
    return list(open_training(split, 3, batch_size, first, last))


def images(found):
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


@needs_dali
def test_broken_files_are_replaced_as_by_the_reference_loader(tmp_path):
    splits = [sets.image_set(tmp_path, loader=loader)[0] for loader in ("reference", "dali")]
    paths = sorted((tmp_path / "train").rglob("*.jpg"))
    contents = [path.read_bytes() for path in paths]
    paths[0].write_bytes(b"")
    paths[1].write_bytes(contents[1][: len(contents[1]) // 2])  # truncated
    paths[2].write_bytes(contents[2][:400] + b"\xff\xd9")  # an image that ends before its pixels
    middle = len(contents[3]) // 2
    paths[3].write_bytes(contents[3][:middle] + bytes(30) + contents[3][middle + 30 :])
    expected, given = (batches(split) for split in splits)
    assert any(unreadable for _, unreadable in expected)
    compare(expected, given)


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
    pairs = zip(images(given), images(working), images(batches(reference)), positions, strict=True)
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
    assert sorted(set(sizes)) == [1, 4]


def test_without_dali_a_run_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setattr(loaders.importlib.util, "find_spec", lambda name: None)
    train, val = sets.face_set(tmp_path, loader="dali")
    for open_stream in (lambda: open_training(train, 0, 2, 0, 1), lambda: open_evaluation(val, 0, 2)):
        with pytest.raises(UserError, match=r"data.loader: dali .* data.loader=reference"):
            open_stream()
