"""Streams that are decoded on the way to the trainer, and the batches that DALI cannot decode."""

import re
import threading

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.data.loaders.test_dali import needs_dali
from zoo.data import order
from zoo.data.errors import UserError
from zoo.data.loaders.dali_device import AT_A_TIME, DeviceDecoder
from zoo.data.loaders.dali_graph import Failure
from zoo.data.stream import evaluation_reader, open_evaluation, open_training, training_reader
from zoo.run.evaluation import _inputs, _rows
from zoo.run.pipeline import DeviceStream, Prefetcher, ReadyStream

BROKEN = 5  # index of a file that the plan does not know to be broken


class Trainer:
    """Copies batches to NumPy arrays."""

    def to_device(self, batch, images):
        return {**batch, **{name: value.on_host() for name, value in images.items()}}


class Numbered:
    """A stream of numbered batches that ends with an error, and a decoder of them that takes its time."""

    def __init__(self, count, end):
        self.count, self.end, self.read, self.closed = count, end, 0, 0
        self.decoded, self.together = [], threading.Barrier(AT_A_TIME)

    def __next__(self):
        if self.read == self.count:
            raise self.end
        self.read += 1
        return {"number": self.read - 1}, []

    def close(self):
        self.closed += 1

    def decode(self, batch):
        if batch["number"] == "again":
            return batch, {}
        self.together.wait(60)  # fails unless as many batches are decoded at a time
        self.decoded.append(batch["number"])
        if batch["number"] == 2:
            raise Failure("broken")
        return batch, {}


def arrays(stream):
    return [(Trainer().to_device(each.batch, each.images), each.unreadable) for each in stream]


def order_of(split, seed, batch_size, first, last):
    """Return the indices of the samples of batches: (last - first, batch_size)."""
    positions = np.arange(first * batch_size, last * batch_size).reshape(-1, batch_size)
    return np.vectorize(lambda position: order.locate(seed, len(split), int(position))[1])(positions)


def assert_equal(left, right):
    for (a, a_unreadable), (b, b_unreadable) in zip(left, right, strict=True):
        assert a_unreadable == b_unreadable and a.keys() == b.keys()
        assert all(np.array_equal(array, b[name]) for name, array in a.items())


def test_batches_that_are_decoded_pass_as_they_are():
    stream = Numbered(2, StopIteration())
    ready = ReadyStream(stream)
    assert [(each.batch, dict(each.images), each.unreadable) for each in ready] == [
        ({"number": number}, {}, []) for number in range(2)
    ]
    ready.close()
    assert stream.closed == 1 and ready.waiting == 0


@pytest.mark.filterwarnings("ignore:data.loader")
def test_batches_are_decoded_together_and_come_in_order():
    """One that DALI cannot decode, number 7 + 2 of the run, is read again; an error comes after all batches."""
    source = Numbered(6, UserError("20 samples in a row cannot be read"))
    again = []

    def read(number, allocate):
        again.append(number)
        return {"number": "again"}, ["unreadable"]

    stream = DeviceStream(source, source, read, 7)
    found = [next(stream) for _ in range(6)]
    assert [each.batch["number"] for each in found] == [0, 1, "again", 3, 4, 5] and again == [9]
    assert [each.unreadable for each in found] == [[], [], ["unreadable"], [], [], []]
    assert sorted(source.decoded) == list(range(6)) and stream.waiting > 0
    for _ in range(2):
        with pytest.raises(UserError, match="in a row"):
            next(stream)
    stream.close()
    assert source.closed == 1
    assert not any(thread.name.startswith("decode") for thread in threading.enumerate())


def test_no_thread_is_left_when_batches_are():
    source = Numbered(6, StopIteration())
    stream = DeviceStream(source, source, None)
    next(stream)
    source.together.abort()  # nothing waits for the batches that nobody takes
    stream.close()
    assert source.read <= 1 + AT_A_TIME and source.closed == 1
    assert not any(thread.name.startswith("decode") for thread in threading.enumerate())


@needs_dali
@pytest.mark.filterwarnings("ignore:data.loader")
@pytest.mark.parametrize("first", [0, 2])
def test_a_sample_that_dali_cannot_decode_is_read_by_the_reference_loader(first, tmp_path, monkeypatch):
    train, _ = sets.image_set(tmp_path)
    expected = list(open_training(train, 3, 4, first, 6, loader="dali"))
    reference = list(open_training(train, 3, 4, first, 6, loader="reference"))
    sets.hide_part(train, BROKEN, monkeypatch)
    decoder = DeviceDecoder(None, 1)
    read = training_reader(train, 3, 4, 0, 1, (), decoder.check)
    stream = open_training(train, 3, 4, first, 6, loader="encoded")
    by_reference = 0
    for (right, unreadable), (from_dali, _), (from_reference, _) in zip(
        arrays(DeviceStream(stream, decoder, read, first)), expected, reference, strict=True
    ):
        replaced = [not np.array_equal(a, b) for a, b in zip(right["image"], from_dali["image"])]
        by_reference += sum(replaced)
        assert np.array_equal(right["image"][replaced], from_reference["image"][replaced]) and not unreadable
        assert np.array_equal(right["label"], from_dali["label"])
    assert by_reference == np.sum(order_of(train, 3, 4, first, 6) == BROKEN)


@needs_dali
def test_a_warning_names_the_file_and_the_reason(tmp_path, monkeypatch):
    train, _ = sets.image_set(tmp_path)
    sets.hide_part(train, BROKEN, monkeypatch)
    stream = open_training(train, 3, 10, 0, 1, loader="encoded")
    decoder = DeviceDecoder(None, 1)
    read = training_reader(train, 3, 10, 0, 1, (), decoder.check)
    name = re.escape(train.name(BROKEN))
    with pytest.warns(UserWarning, match=rf"reference loader reads {name}, which DALI cannot decode \(.+\)"):
        next(DeviceStream(stream, decoder, read))


@needs_dali
def test_a_batch_that_fails_as_a_whole_is_an_error():
    class Small(DeviceDecoder):
        def decode(self, batch):
            raise Failure("out of memory")

    with pytest.raises(UserError, match=r"not all at once \(out of memory\).*data.dali_device=cpu"):
        next(DeviceStream(Numbered(1, StopIteration()), Small(None, 1), lambda number, allocate: ({}, [])))


@needs_dali
@pytest.mark.filterwarnings("ignore:data.loader")
def test_evaluations_count_their_batches_anew(tmp_path, monkeypatch):
    _, val = sets.image_set(tmp_path)
    sets.hide_part(val, BROKEN, monkeypatch)
    decoder = DeviceDecoder(None, 1)
    read = evaluation_reader(val, 3, 2, 0, 1, decoder.check)
    runs = [arrays(DeviceStream(open_evaluation(val, 3, 2, loader="encoded"), decoder, read)) for _ in range(2)]
    assert_equal(*runs)
    (batch, _), reference = runs[0][BROKEN // 2], evaluation_reader(val, 3, 2, 0, 1, "reference")(BROKEN // 2, np.empty)
    assert np.array_equal(batch["image"][BROKEN % 2], reference[0]["image"][BROKEN % 2])


@needs_dali
def test_unreadable_samples_pass_with_their_batch(tmp_path):
    train, _ = sets.image_set(tmp_path)
    (tmp_path / "train" / "a" / "4.jpg").write_bytes(b"")
    expected = list(open_training(train, 3, 4, 0, 6, loader="dali"))
    assert any(unreadable for _, unreadable in expected)
    stream = open_training(train, 3, 4, 0, 6, loader="encoded")
    batches = Prefetcher(stream, Trainer(), 1, lambda stream: DeviceStream(stream, DeviceDecoder(None, 1), None))
    found = []
    for _ in expected:
        (batch,) = batches.take()
        found.append((batch, batches.pop_unreadable()))
    assert batches.copying > 0
    batches.close()
    assert_equal(expected, found)


@needs_dali
def test_faces_of_a_pair_are_rows(tmp_path):
    """An evaluation hands views over as rows, in the order of the host's arrays."""
    _, val = sets.face_set(tmp_path)
    assert val.views == 2
    whole = next(open_evaluation(val, 3, 4, loader="dali"))[0]
    host, images = DeviceDecoder(None, 1).decode(next(open_evaluation(val, 3, 4, loader="encoded"))[0])
    expected, found = _inputs(whole, val), _rows(images, val)
    assert not _inputs(host, val) and expected["image"].shape[0] == 8
    assert np.array_equal(found["image"].on_host(), expected["image"])
