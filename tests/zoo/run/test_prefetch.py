"""Read-ahead of micro-batches, decoding on the way to the device, and the record of unreadable samples."""

import contextlib
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.data.loaders.sets import needs_dali
from zoo.data import order
from zoo.data.errors import BadSample, UserError
from zoo.data.loaders import Loader
from zoo.data.loaders.dali_graph import DeviceDecoder
from zoo.data.loaders.packed import AT_A_TIME, Failure
from zoo.data.stream import EvaluationBatches, UnreadableSample, open_evaluation, open_training
from zoo.run.evaluation import _inputs, _rows
from zoo.run.pipeline import SPARE, Decoding, Prefetcher
from zoo.run.progress import Progress, parse_progress
from zoo.run.stopping import BadSampleTracker


class Source:
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


def prefetcher(stream, trainer, accumulate=1):
    batches = Prefetcher(stream, lambda *batch: trainer.to_device(*batch), accumulate + SPARE)
    batches.preload(accumulate)
    return batches


def unreadable(name, epoch=0):
    return UnreadableSample(epoch, name, "the file is empty", "another")


def drain(batches, accumulate=1):
    taken = []
    with contextlib.suppress(StopIteration):
        while True:
            taken.append(batches.take(accumulate))
    return taken


def test_updates_in_order_up_to_the_end_of_the_stream():
    loader = Source(8)
    batches = prefetcher(loader, loader, accumulate=2)
    assert drain(batches, 2) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(StopIteration):
        batches.take(2)
    batches.close()
    assert (loader.read, loader.copied, loader.closed) == (8, 8, 1)


def test_a_limited_number_of_batches_is_read_ahead():
    loader = Source(100)
    batches = prefetcher(loader, loader, accumulate=3)
    assert batches.take(3) == [0, 1, 2]
    batches.close()
    assert loader.copied <= 3 + 3 + SPARE and loader.closed == 1


def test_reading_goes_on_without_the_loop():
    """The step of an update need not return before the batches of the next one are read and copied."""
    loader, copied = Source(3), threading.Semaphore(0)

    def to_device(batch, images):
        copied.release()
        return int(batch["x"][0])

    loader.to_device = to_device
    batches = prefetcher(loader, loader)
    batches.take(1)
    assert all(copied.acquire(timeout=60) for _ in range(3))
    batches.close()


def test_an_error_comes_after_the_batches_before_it():
    loader = Source(2, error=UserError("20 samples in a row cannot be read"))
    batches = prefetcher(loader, loader)
    assert [batches.take(1), batches.take(1)] == [[0], [1]]
    for _ in range(2):
        with pytest.raises(UserError, match="in a row"):
            batches.take(1)
    batches.close()
    assert loader.closed == 1


def test_no_thread_is_left():
    loader = Source(100)
    batches = prefetcher(loader, loader)
    assert "prefetch" in {thread.name for thread in threading.enumerate()}
    batches.close()
    assert "prefetch" not in {thread.name for thread in threading.enumerate()}
    batches.close()
    assert len(drain(batches)) == 1  # the first update; what the thread had read ahead is dropped


def test_waiting_for_the_first_update_does_not_count(monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr("zoo.run.pipeline.time", SimpleNamespace(perf_counter=lambda: next(times)))
    loader = Source(3)
    batches = prefetcher(loader, loader)
    batches.take(1)
    assert batches.data_wait == 0
    batches.take(1)
    batches.take(1)
    assert batches.data_wait == 2  # one second from call to call


def test_unreadable_samples_are_handed_out_once_with_their_batch():
    bad = [unreadable("a"), unreadable("b")]
    loader = Source(3, {0: bad[:1], 1: bad[1:]})
    batches = prefetcher(loader, loader)
    assert batches.pop_unreadable() == []
    batches.take(1)
    assert batches.pop_unreadable() == bad[:1] and batches.pop_unreadable() == []
    batches.take(1)
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


def test_alternating_epochs_and_a_resume_do_not_count_anew(tmp_path):
    progress = Progress()
    tracker = BadSampleTracker(dataset(10, 0.2), lambda _: None, progress.by_epoch)
    for epoch in (0, 1, 0, 1):  # a rank that is ahead, and one that is behind
        tracker.add([unreadable(f"{epoch}", epoch)])
    assert progress.by_epoch == {0: {"0"}, 1: {"1"}}
    (tmp_path / "progress.json").write_bytes(progress.content())
    resumed = parse_progress(str(tmp_path / "progress.json"))
    assert resumed == progress
    tracker = BadSampleTracker(dataset(10, 0.2), lambda _: None, resumed.by_epoch)
    tracker.add([unreadable("1", 1), unreadable("a", 1)])  # read once more, and a further one
    with pytest.raises(UserError, match=r"3 of 10 \(30.00%\) so far in epoch 2"):
        tracker.add([unreadable("b", 1)])
    resumed.mend(["file of a"], lambda sample: [f"file of {sample}"])
    assert resumed.by_epoch[1] == {"1", "b"}


BROKEN = 5  # index of a file that the plan does not know to be broken


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

    def check(self, samples):
        raise AssertionError

    def decode(self, batch):
        if batch["number"] == "again":
            return batch, {}
        self.together.wait(60)  # fails unless as many batches are decoded at a time
        self.decoded.append(batch["number"])
        if batch["number"] == 2:
            raise Failure("broken")
        return batch, {}


@dataclass
class Again:
    """Batches that are read again, and their numbers."""

    loader: Loader = "encoded"
    numbers: list = field(default_factory=list)

    def __call__(self, number):
        self.numbers.append(number)
        return {"number": "again"}, ["unreadable"]


def decoded(stream, decoder, batches, first=0):
    return Prefetcher(stream, lambda batch, images: (batch, images), 1, Decoding(decoder, batches, first))


def test_batches_are_decoded_together_and_come_in_order():
    """One that DALI cannot decode, number 7 + 2 of the run, is read again; an error comes after all batches."""
    source, again = Numbered(6, UserError("20 samples in a row cannot be read")), Again()
    stream = decoded(source, source, again, 7)
    found = [next(stream) for _ in range(6)]
    assert [batch["number"] for (batch, _), _ in found] == [0, 1, "again", 3, 4, 5] and again.numbers == [9]
    assert [unreadable for _, unreadable in found] == [[], [], ["unreadable"], [], [], []]
    assert sorted(source.decoded) == list(range(6)) and stream.copying > 0
    for _ in range(2):
        with pytest.raises(UserError, match="in a row"):
            next(stream)
    stream.close()
    assert source.closed == 1
    assert not any(thread.name.startswith("decode") for thread in threading.enumerate())


def test_no_decoding_thread_is_left_when_batches_are():
    source = Numbered(6, StopIteration())
    stream = decoded(source, source, Again())
    next(stream)
    source.together.abort()  # nothing waits for the batches that nobody takes
    stream.close()
    assert source.read <= 1 + AT_A_TIME and source.closed == 1
    assert not any(thread.name.startswith("decode") for thread in threading.enumerate())


def arrays(stream):
    return [
        ({**batch, **{name: value.on_host() for name, value in images.items()}}, unreadable)
        for (batch, images), unreadable in stream
    ]


@needs_dali
@pytest.mark.parametrize("first", [0, 2])
def test_a_sample_that_dali_cannot_decode_is_read_by_the_reference_loader(first, tmp_path, monkeypatch):
    train, _ = sets.image_set(tmp_path)
    expected = list(open_training(train, 3, 4, first, 6, loader="dali"))
    reference = list(open_training(train, 3, 4, first, 6, loader="reference"))
    sets.hide_part(train, BROKEN, monkeypatch)
    stream = open_training(train, 3, 4, first, 6, loader="encoded")
    with pytest.warns(UserWarning) as warned:
        found = arrays(decoded(stream, DeviceDecoder(None, 1), stream.batches, first))
    assert all(train.name(BROKEN) in str(warning.message) for warning in warned)
    positions = np.arange(first * 4, 6 * 4).reshape(-1, 4)
    for (right, bad), (dali, _), (plain, _), at in zip(found, expected, reference, positions, strict=True):
        broken = [order.locate(3, len(train), int(position))[1] == BROKEN for position in at]
        images = [b if is_broken else a for a, b, is_broken in zip(dali["image"], plain["image"], broken)]
        assert np.array_equal(right["image"], images) and np.array_equal(right["label"], dali["label"]) and not bad


@needs_dali
def test_a_batch_that_fails_as_a_whole_is_an_error():
    class Small(DeviceDecoder):
        def decode(self, batch):
            raise Failure("out of memory")

    with pytest.raises(UserError, match=r"\(out of memory\).*data.dali_device=cpu"):
        next(decoded(Numbered(1, StopIteration()), Small(None, 1), Again()))


@needs_dali
@pytest.mark.filterwarnings("ignore:data.loader")
def test_evaluations_count_their_batches_anew(tmp_path, monkeypatch):
    _, val = sets.image_set(tmp_path)
    sets.hide_part(val, BROKEN, monkeypatch)
    runs = []
    for _ in range(2):
        stream = open_evaluation(val, 3, 2, loader="encoded")
        runs.append(arrays(decoded(stream, DeviceDecoder(None, 1), stream.batches)))
    for (left, _), (right, _) in zip(*runs, strict=True):
        assert all(np.array_equal(array, right[name]) for name, array in left.items())
    reference, _ = EvaluationBatches(val, 3, 2)(BROKEN // 2)
    assert np.array_equal(runs[0][BROKEN // 2][0]["image"][BROKEN % 2], reference["image"][BROKEN % 2])


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
