"""Read-ahead of micro-batches, and the record of unreadable samples."""

from types import SimpleNamespace

import numpy as np
import pytest

from data.errors import BadSample, UserError
from data.stream import UnreadableSample
from zoo.run.prefetch import BadSampleTracker, Prefetcher


class Loader:
    """A stream of numbered batches and a trainer that notes when they are copied."""

    def __init__(self, count, unreadable=()):
        self.count, self.unreadable, self.log = count, dict(unreadable), []

    def stream(self):
        for number in range(self.count):
            self.log.append(f"load {number}")
            yield {"x": np.array([number])}, self.unreadable.get(number, [])

    def to_device(self, batch):
        self.log.append(f"copy {batch['x'][0]}")
        return int(batch["x"][0])


def unreadable(name, epoch=0):
    return UnreadableSample(epoch, name, "the file is empty", "another")


def test_one_update_is_read_ahead_and_the_next_one_only_when_asked():
    loader = Loader(6)
    batches = Prefetcher(loader.stream(), loader, accumulate=2)
    assert loader.log == ["load 0", "copy 0", "load 1", "copy 1"]
    assert batches.take() == [0, 1] and len(loader.log) == 4  # a step can be launched before anything is loaded
    batches.prefetch()
    assert loader.log[4:] == ["load 2", "copy 2", "load 3", "copy 3"]
    batches.prefetch()  # what is there already is not loaded again
    assert len(loader.log) == 8 and batches.take() == [2, 3]


def test_the_end_of_the_stream():
    loader = Loader(2)
    batches = Prefetcher(loader.stream(), loader)
    assert batches.take() == [0]
    batches.prefetch()
    assert batches.take() == [1]
    batches.prefetch()
    with pytest.raises(StopIteration):
        batches.take()


def test_unreadable_samples_are_handed_out_once():
    bad = [unreadable("a"), unreadable("b")]
    loader = Loader(3, {0: bad[:1], 1: bad[1:]})
    batches = Prefetcher(loader.stream(), loader)
    assert batches.pop_unreadable() == bad[:1] and batches.pop_unreadable() == []
    batches.take()
    batches.prefetch()
    assert batches.pop_unreadable() == bad[1:]


def dataset(size, max_bad, broken=()):
    def sample(index, _rng):
        if index in broken:
            raise BadSample("the file is empty")

    names = SimpleNamespace(max_bad=max_bad)
    split = SimpleNamespace(settings=names, name=lambda index: f"file {index}", sample=sample)

    class Split:
        settings, name, sample = names, staticmethod(split.name), staticmethod(split.sample)

        def __len__(self):
            return size

    return Split()


def test_a_sample_is_reported_once_per_run():
    reported = []
    tracker = BadSampleTracker(dataset(10, 0.5), reported.append)
    tracker.add([unreadable("a"), unreadable("b"), unreadable("a", epoch=1)])
    assert [sample.name for sample in reported] == ["a", "b"] and list(tracker.reasons) == ["a", "b"]


def test_the_limit_holds_per_epoch_and_further_files_are_searched():
    tracker = BadSampleTracker(dataset(10, 0.2, broken=(7,)), lambda _: None)
    for epoch in range(3):
        tracker.add([unreadable("a", epoch), unreadable("b", epoch)])
    with pytest.raises(UserError, match=r"3 of 10 \(30.00%\) so far in epoch 3, data.max_bad is 0.2") as caught:
        tracker.add([unreadable("c", 2)])
    assert all(f"  {name}: the file is empty" in str(caught.value) for name in ("a", "b", "c", "file 7"))
    assert "10 of 10 files opened" in str(caught.value)
