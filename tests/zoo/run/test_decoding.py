"""Decoding of a stream's batches on the way to the trainer, and the batches that DALI cannot decode."""

import numpy as np
import pytest

from data.loaders.dali_device import DeviceDecoder
from data.stream import evaluation_reader, open_evaluation, open_training, training_reader
from tests.data.loaders import sets
from tests.data.loaders.test_dali import needs_dali
from zoo.run import decoding
from zoo.run.decoding import DeviceDecoding
from zoo.run.prefetch import Prefetcher

BROKEN = 5  # index of a file that the plan does not know to be broken


class Trainer:
    """Copies batches to NumPy arrays."""

    def to_device(self, batch, images):
        return {**batch, **{name: value.on_host() for name, value in images.items()}}


def damage(split, monkeypatch):
    """Let DALI find a truncated file in place of one that the reference loader can read."""
    plan = type(split).plan

    def damaged(self, index, rng):
        sample = plan(self, index, rng)
        if index == BROKEN:
            sample["image"] = sample["image"]._replace(files=(sample["image"].files[0][:300],))
        return sample

    monkeypatch.setattr(type(split), "plan", damaged)


def decode(stream, decoding):
    decoded = [decoding(loaded) for loaded in stream]
    return [(Trainer().to_device(each.batch, each.images), each.unreadable) for each in decoded]


def assert_equal(left, right):
    for (a, a_unreadable), (b, b_unreadable) in zip(left, right, strict=True):
        assert a_unreadable == b_unreadable and all(np.array_equal(array, b[name]) for name, array in a.items())


def test_batches_without_encoded_images_are_kept():
    batch, unreadable = {"image": np.zeros(3)}, []
    kept = decoding.keep((batch, unreadable))
    assert kept.batch is batch and kept.unreadable is unreadable and not kept.images


@needs_dali
@pytest.mark.parametrize("first", [0, 2])
def test_a_batch_that_dali_cannot_decode_is_read_by_the_reference_loader(first, tmp_path, monkeypatch):
    train, _ = sets.image_set(tmp_path)
    expected = list(open_training(train, 3, 4, first, 6, loader="dali"))
    reference = list(open_training(train, 3, 4, first, 6, loader="reference"))
    damage(train, monkeypatch)
    read = training_reader(train, 3, 4, 0, 1, (), "reference")
    with pytest.warns(UserWarning, match=r"reference loader reads a batch that DALI cannot decode \(.+\)"):
        given = decode(
            open_training(train, 3, 4, first, 6, loader="encoded"), DeviceDecoding(DeviceDecoder(None, 1), read, first)
        )
    by_reference = 0
    for right, from_dali, from_reference in zip(given, expected, reference, strict=True):
        replaced = np.array_equal(right[0]["image"], from_reference[0]["image"])
        by_reference += replaced
        assert_equal([from_reference if replaced else from_dali], [right])
    assert 0 < by_reference < len(given)


@needs_dali
def test_evaluations_count_their_batches_anew(tmp_path, monkeypatch):
    _, val = sets.image_set(tmp_path)
    damage(val, monkeypatch)
    read = evaluation_reader(val, 3, 2, 0, 1, "reference")
    runs = []
    for _ in range(2):
        with pytest.warns(UserWarning, match="cannot decode"):
            runs.append(
                decode(open_evaluation(val, 3, 2, loader="encoded"), DeviceDecoding(DeviceDecoder(None, 1), read))
            )
    assert_equal(*runs)
    (batch, _), reference = runs[0][BROKEN // 2], read(BROKEN // 2, np.empty)[0]
    assert np.array_equal(batch["image"], reference["image"])


@needs_dali
def test_unreadable_samples_pass_with_their_batch(tmp_path):
    train, _ = sets.image_set(tmp_path)
    (tmp_path / "train" / "a" / "4.jpg").write_bytes(b"")
    expected = list(open_training(train, 3, 4, 0, 4, loader="dali"))
    assert any(unreadable for _, unreadable in expected)
    stream = open_training(train, 3, 4, 0, 4, loader="encoded")
    batches = Prefetcher(stream, Trainer(), 1, DeviceDecoding(DeviceDecoder(None, 1), None))
    found = []
    for _ in expected:
        (batch,) = batches.take()
        found.append((batch, batches.pop_unreadable()))
    batches.close()
    assert_equal(expected, found)


@needs_dali
def test_faces_of_a_pair_are_rows(tmp_path):
    """An evaluation hands views over as rows, in the order of the host's arrays."""
    from zoo.run.evaluate import _inputs, _rows

    _, val = sets.face_set(tmp_path)
    assert val.views == 2
    whole = next(open_evaluation(val, 3, 4, loader="dali"))[0]
    arrays, images = DeviceDecoder(None, 1).decode(next(open_evaluation(val, 3, 4, loader="encoded"))[0])
    expected, found = _inputs(whole, val), _rows(images, val)
    assert not _inputs(arrays, val) and expected["image"].shape[0] == 8
    assert np.array_equal(found["image"].on_host(), expected["image"])
