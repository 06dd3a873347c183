"""data.loader=auto: choices that follow from clocks that the test sets."""

import dataclasses
import importlib.util
import warnings

import pytest

from tests.data.loaders import sets
from tests.data.test_stream import Numbers
from zoo.data import order
from zoo.data.errors import BadSample
from zoo.data.evaluation import EvaluationReader
from zoo.data.loaders import choice, dali
from zoo.data.loaders.choice import Choice, Measurement, choose, measure
from zoo.data.loaders.dali_device import DeviceDecoder
from zoo.data.loaders.dali_graph import Failure
from zoo.data.pending import Pending
from zoo.data.settings import LoaderSettings
from zoo.data.stream import open_evaluation, open_training
from zoo.data.transforms.geometry import Geometry

needs_dali = pytest.mark.skipif(not dali.is_installed(), reason="NVIDIA DALI is not installed (extra `dali`)")


class Decoded(Numbers):
    """Numbers have no images to decode."""

    def plan(self, index, rng):
        return self.sample(index, rng)


class Encoded(Numbers):
    """Numbers with an image to decode."""

    def plan(self, index, rng):
        return {**self.sample(index, rng), "image": Pending((b"",), Geometry())}


class Timed:
    """Samples that advance a clock: `costs` of the reference loader, and of DALI for each that it decodes.

    Attributes:
        read: (loader, index) in order; `plan` stands for DALI.
        drawn: a random number of each sample of the reference loader.
    """

    def __init__(self, size):
        self.size = size
        self.costs, self.waits, self.first_decoded = {"reference": 2.0, "dali": 1.0}, 0.0, 0
        self.cpu = self.wall = 0.0
        self.read, self.drawn = [], []

    def __len__(self):
        return self.size

    def sample(self, index, rng):
        self._spend("reference")
        self.read.append(("reference", index))
        self.drawn.append(rng.random())
        return {}

    def plan(self, index, rng):
        self.read.append(("dali", index))
        if len([name for name, _ in self.read if name == "dali"]) <= self.first_decoded:
            self._spend("reference")
            return {}
        return {"image": Pending((b"",), Geometry())}

    def decode(self, samples):
        for sample in samples:
            if "image" in sample:
                self._spend("dali")
                del sample["image"]
        return True

    def measure(self, seed=3, batch_size=10):
        return measure(self, seed, batch_size, None, lambda: self.wall, lambda: self.cpu)

    def _spend(self, loader):
        self.cpu += self.costs[loader]
        self.wall += self.costs[loader] + self.waits


@pytest.fixture
def timed(monkeypatch):
    dataset = Timed(1000)
    monkeypatch.setattr(dali, "is_installed", lambda: True)
    monkeypatch.setattr(dali, "decode", dataset.decode)
    monkeypatch.setattr(choice, "MAX_SECONDS", 1e9)
    return dataset


def test_cpu_time_is_measured_and_waiting_is_not(timed):
    timed.waits = 5.0
    assert timed.measure() == Measurement(True, 100, True, 2.0, 1.0)


def test_the_samples_are_the_first_of_the_run_and_loaders_take_turns(timed):
    timed.measure(seed=3)
    first = [order.locate(3, 1000, position)[1] for position in range(100)]
    warm_up = [("dali", index) for index in first[:10]]  # which also looks whether DALI decodes any
    warm_up += [(name, index) for name in ("reference", "dali") for index in first[:10]]
    assert timed.read[:30] == warm_up
    chunks = [timed.read[start : start + 10] for start in range(30, len(timed.read), 10)]
    assert [chunk[0][0] for chunk in chunks] == ["reference", "dali", "dali", "reference"] * 5
    assert [index for chunk in chunks[::2] for _, index in chunk] == first
    assert [index for chunk in chunks[1::2] for _, index in chunk] == first
    assert timed.drawn[10:] == [order.generator(3, "augment", position).random() for position in range(100)]


def test_slow_samples_are_bounded_in_time(timed, monkeypatch):
    monkeypatch.setattr(choice, "MAX_SECONDS", 40.0)  # 10 samples take 30 s by both loaders, 80 s is the limit of both
    assert timed.measure() == Measurement(True, 30, True, 2.0, 1.0)
    timed.costs = {"reference": 100.0, "dali": 100.0}
    assert timed.measure().samples == 10
    assert timed.measure(batch_size=4).samples == 12  # ten at least


@pytest.mark.parametrize("batch_size, sizes", [(2, [2] * 50), (16, [16] * 6 + [4]), (25, [25] * 4), (256, [25] * 4)])
def test_dali_decodes_as_many_samples_together_as_in_the_run(timed, batch_size, sizes):
    decode, decoded = timed.decode, []

    def record(samples):
        decoded.append(len(samples))
        return decode(samples)

    dali.decode = record
    assert timed.measure(batch_size=batch_size) == Measurement(True, 100, True, 2.0, 1.0)
    assert decoded == [sizes[0], *sizes]  # the first one is not timed


def test_a_chunk_in_which_something_else_happened_does_not_count(timed):
    decode, calls = timed.decode, []

    def decode_and_build(samples):
        calls.append(len(samples))
        timed.cpu += 1e6 if len(calls) == 4 else 0
        return decode(samples)

    timed.decode = dali.decode = decode_and_build
    assert timed.measure() == Measurement(True, 100, True, 2.0, 1.0)


def test_samples_that_dali_leaves_to_the_reference_loader(timed, monkeypatch):
    timed.first_decoded = 10**9
    assert timed.measure() == Measurement(True, 100)
    assert [name for name, _ in timed.read] == ["dali"] * 100  # each is read once
    monkeypatch.setattr(choice, "MAX_SECONDS", 50.0)  # the third chunk begins after 40 s
    assert timed.measure() == Measurement(True, 30)


def test_a_set_that_dali_decodes_in_part_is_measured(timed):
    timed.first_decoded = 25
    measured = timed.measure()
    assert measured.decodes and measured.samples == 100 and measured.dali == 1.0


def test_unreadable_samples_are_left_out(timed, monkeypatch):
    def sample(self, index, rng):
        if index % 2:
            raise BadSample("broken")
        self._spend("reference")

    monkeypatch.setattr(Timed, "sample", sample)
    assert 0.5 < timed.measure().reference < 1.5


@needs_dali
def test_unreadable_chunks_are_left_out(tmp_path):
    train, _ = sets.face_set(tmp_path)
    for path in list((tmp_path / "train").rglob("*.jpg"))[3:]:
        path.write_bytes(b"")
    assert measure(train, 1, 10, DeviceDecoder(None, 1).check).decodes and measure(train, 1, 10).decodes


def test_nothing_is_read_without_dali(timed, monkeypatch):
    monkeypatch.setattr(dali, "is_installed", lambda: False)
    assert timed.measure() == Measurement(False) and timed.read == []


@pytest.mark.parametrize(
    "ranks, expected",
    [
        (
            [Measurement(True, 100, True, 1.86e-3, 2.13e-3)],
            ("reference", "1.86 ms per sample, DALI 2.13; measured on the first 100 samples"),
        ),
        (
            [Measurement(True, 60, True, 2.0e-3, 1.5e-3)],
            ("dali", "1.50 ms per sample, reference 2.00; measured on the first 60 samples"),
        ),
        (
            [Measurement(True, 100, True, 1.0e-3, 0.951e-3)],
            ("reference", "1.00 ms per sample, DALI 0.95, less than 5% faster; measured on the first 100 samples"),
        ),
        ([Measurement(True, 100, True, 1.0e-3, 0.949e-3)], ("dali", None)),
        ([Measurement(False)] * 2, ("reference", "DALI is not installed")),
        (
            [Measurement(True, 100, True, 2.0, 1.0), Measurement(False)],
            ("reference", "DALI is not installed on all hosts"),
        ),
        (
            [Measurement(True, 100), Measurement(True, 30)],
            ("reference", "DALI decodes none of the first 30 samples"),
        ),
        (  # the second rank alone would take the reference loader
            [Measurement(True, 100, True, 3e-3, 1e-3), Measurement(True, 80, True, 1e-3, 2e-3)],
            ("dali", "1.50 ms per sample, reference 2.00; measured on the first 80 samples"),
        ),
    ],
)
def test_the_choice_and_its_reason(ranks, expected):
    loader, reason = choose(ranks)
    assert loader == expected[0] and reason == (expected[1] or reason)


def test_a_stream_of_its_own_chooses_too(monkeypatch):
    numbers, seeds = Decoded(settings=LoaderSettings(workers=0, loader="auto")), []

    def measured(dataset, seed, batch_size):
        assert dataset is numbers and batch_size == 4
        seeds.append(seed)
        return Measurement(False)

    monkeypatch.setattr(choice, "measure", measured)
    open_training(numbers, 7, 4, 0, 1)
    open_evaluation(numbers, 8, 4)
    open_training(numbers, 9, 4, 0, 1, loader="reference")
    assert seeds == [7, 8]


def test_a_loader_that_is_given_is_used(monkeypatch):
    decoded = []

    def decode(samples):
        decoded.append(len(samples))
        for sample in samples:
            del sample["image"]

    monkeypatch.setattr(dali, "decode", decode)
    monkeypatch.setattr(dali, "require", lambda: None)
    numbers = Encoded(12)
    for stream in (open_training(numbers, 0, 4, 0, 1, loader="dali"), open_evaluation(numbers, 0, 6, loader="dali")):
        list(stream)
    list(EvaluationReader(numbers, 0, 12, 0, 1, 0, 1, "dali").read())
    assert decoded == [4, 6, 6, 12]
    dali_set = dataclasses.replace(numbers, settings=LoaderSettings(workers=0, loader="dali"))
    list(open_training(dali_set, 0, 4, 0, 1, loader="reference"))
    list(EvaluationReader(dali_set, 0, 12, 0, 1, 0, 1, "reference").read())
    assert decoded == [4, 6, 6, 12]


@needs_dali
@pytest.mark.parametrize("name", ["images", "frames", "scenes", "faces"])
def test_real_sets_are_measured(name, tmp_path):
    train, _ = sets.SETS[name](tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measured = measure(train, 1, 10)
    assert measured.installed and measured.decodes and measured.reference > 0 < measured.dali


@needs_dali
@pytest.mark.parametrize("name", ["images", "frames", "faces"])
def test_decoding_in_the_training_process_is_measured(name, tmp_path):
    train, _ = sets.SETS[name](tmp_path)
    decoder, batches = DeviceDecoder(None, 1), []

    def check(samples):
        batches.append(len(samples))
        for _ in range(5):
            decoder.check(samples)

    once, often = measure(train, 1, 10, decoder.check), measure(train, 1, 10, check)
    assert once.decodes and often.dali > once.dali > 0
    assert len(batches) == 11 and 0 < min(batches) <= max(batches) <= 10  # those that DALI decodes


@needs_dali
def test_a_chunk_that_dali_cannot_decode_on_the_device_is_read_by_the_reference_loader(tmp_path, monkeypatch):
    train, _ = sets.face_set(tmp_path)

    def fail(samples):
        raise Failure("broken")

    with pytest.warns(UserWarning, match="which DALI cannot decode"):
        failing = measure(train, 1, 10, fail)
    assert failing.dali > measure(train, 1, 10, lambda samples: None).dali


@needs_dali
@pytest.mark.parametrize("name", sets.DECODED)
def test_real_sets_that_dali_does_not_decode(name, tmp_path):
    train, _ = sets.SETS[name](tmp_path)
    assert choose([measure(train, 1, 10)]) == Choice("reference", "DALI decodes none of the first 100 samples")


def test_a_stream_without_dali_takes_the_reference_loader(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    train, val = sets.face_set(tmp_path, loader="auto")
    assert len(list(open_training(train, 0, 2, 0, 1))) == 1 and len(list(open_evaluation(val, 0, 20))) == 1
