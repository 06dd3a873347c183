"""Read-ahead of micro-batches, and the record of unreadable samples."""

import contextlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from zoo.data.errors import BadSample, UserError
from zoo.data.stream import UnreadableSample
from zoo.run.pipeline import SPARE, Prefetcher
from zoo.run.stopping import BadSampleTracker


class Loader:
    """A stream of numbered batches, and a trainer that copies them."""

    def __init__(self, count, unreadable=(), error=None):
        self.count, self.unreadable, self.error = count, dict(unreadable), error
        self.read, self.copied, self.closed = 0, 0, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.read == self.count:
            raise self.error or StopIteration
        self.read += 1
        return {"x": np.array([self.read - 1])}, self.unreadable.get(self.read - 1, [])

    def close(self):
        self.closed += 1

    def to_device(self, batch, images):
        self.copied += 1
        return int(batch["x"][0])


def unreadable(name, epoch=0):
    return UnreadableSample(epoch, name, "the file is empty", "another")


def drain(batches):
    taken = []
    with contextlib.suppress(StopIteration):
        while True:
            taken.append(batches.take())
    return taken


def test_updates_in_order_up_to_the_end_of_the_stream():
    loader = Loader(8)
    batches = Prefetcher(loader, loader, accumulate=2)
    assert drain(batches) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(StopIteration):
        batches.take()
    batches.close()
    assert (loader.read, loader.copied, loader.closed) == (8, 8, 1)


def test_a_limited_number_of_batches_is_read_ahead():
    loader = Loader(100)
    batches = Prefetcher(loader, loader, accumulate=3)
    assert batches.take() == [0, 1, 2]
    batches.close()
    assert loader.copied <= 3 + 3 + SPARE and loader.closed == 1


def test_reading_goes_on_without_the_loop():
    """The step of an update need not return before the batches of the next one are read and copied."""
    loader, copied = Loader(3), threading.Semaphore(0)

    def to_device(batch, images):
        copied.release()
        return int(batch["x"][0])

    loader.to_device = to_device
    batches = Prefetcher(loader, loader)
    batches.take()
    assert all(copied.acquire(timeout=60) for _ in range(3))
    batches.close()


def test_an_error_comes_after_the_batches_before_it():
    loader = Loader(2, error=UserError("20 samples in a row cannot be read"))
    batches = Prefetcher(loader, loader)
    assert [batches.take(), batches.take()] == [[0], [1]]
    for _ in range(2):
        with pytest.raises(UserError, match="in a row"):
            batches.take()
    batches.close()
    assert loader.closed == 1


def test_an_error_of_the_copy_reaches_the_loop():
    loader = Loader(2)
    loader.to_device = None
    with pytest.raises(TypeError):
        Prefetcher(loader, loader)
    assert loader.closed == 1


def test_no_thread_is_left():
    loader = Loader(100)
    batches = Prefetcher(loader, loader)
    assert "prefetch" in {thread.name for thread in threading.enumerate()}
    batches.close()
    assert "prefetch" not in {thread.name for thread in threading.enumerate()}
    batches.close()
    assert len(drain(batches)) == 1  # the first update; what the thread had read ahead is dropped


def test_waiting_for_the_first_update_does_not_count(monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr("zoo.run.pipeline.time", SimpleNamespace(perf_counter=lambda: next(times)))
    loader = Loader(3)
    batches = Prefetcher(loader, loader)
    batches.take()
    assert batches.data_wait == 0
    batches.take()
    batches.take()
    assert batches.data_wait == 2  # one second from call to call


def test_unreadable_samples_are_handed_out_once_with_their_batch():
    bad = [unreadable("a"), unreadable("b")]
    loader = Loader(3, {0: bad[:1], 1: bad[1:]})
    batches = Prefetcher(loader, loader)
    assert batches.pop_unreadable() == []
    batches.take()
    assert batches.pop_unreadable() == bad[:1] and batches.pop_unreadable() == []
    batches.take()
    assert batches.pop_unreadable() == bad[1:]
    batches.close()


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
