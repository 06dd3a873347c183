"""The report on the input pipeline, with a data set of numbers."""

import json
from types import SimpleNamespace

import pytest

from tests.data.test_stream import Numbers
from zoo.bench.timing import data
from zoo.data import order
from zoo.data.loaders import dali
from zoo.data.pending import Pending
from zoo.data.settings import LoaderSettings
from zoo.data.stages import STAGES
from zoo.data.transforms.geometry import Geometry
from zoo.data.worker_count import Cost
from zoo.run.loading import Loading

STREAM = {
    "samples_per_s": 812.34,
    "cpu_ms": 4.5678,
    "first_batch_s": 1.23,
    "batches": 30,
    "batch": 16,
    "batch_bytes": 3 << 20,
    "workers": 4,
    "threads": 2,
}
REPORT = {
    "dataset": "zoo.data.datasets.imagenet",
    "samples": 30,
    "loader": "reference",
    "notes": [],
    "stream": STREAM,
    "one_thread": {
        "ms": {"read": 1.0, "decode": 2.0, "transform": 1.5, "collate": 0.5},
        "cpu_ms": {"read": 0.25, "decode": 2.0, "transform": 1.5, "collate": 0.5},
    },
    "reference": {"ms": 5.0, "cpu_ms": 4.25},
    "dali": None,
    "bare": None,
    "device": None,
}


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(data.loading, "plan", lambda job, seed: Loading("reference", 0, 1, 2, ("a note",)))
    monkeypatch.setattr(dali, "is_installed", lambda: False)
    return SimpleNamespace(
        train_set=Numbers(8, settings=LoaderSettings(workers="auto")),
        batch_plan=SimpleNamespace(batch=4),
        dropout_masks=(),
    )


def test_what_is_measured(job):
    report = json.loads(json.dumps(data.measure_data(job, 3)))
    assert report["dataset"] == "tests.data.test_stream" and report["samples"] == 8
    assert report["loader"] == "reference" and report["notes"] == ["a note"]
    assert report["bare"] is report["dali"] is None and report["reference"]["ms"] > 0
    stream = report["stream"]
    assert [stream[key] for key in ("batches", "batch", "workers", "threads")] == [3, 4, 0, 2]
    assert stream["batch_bytes"] == 4 * 32 and stream["samples_per_s"] > 0
    for seconds in report["one_thread"].values():
        assert tuple(seconds) == STAGES and seconds["read"] == seconds["decode"] == 0 < seconds["transform"]


def test_the_bare_loop_reads_the_same_samples(job, monkeypatch):
    indices = []

    def reader(dataset):
        assert dataset is job.train_set
        return indices.append

    monkeypatch.setattr(data.bare_loops, "reader", reader)
    bare = data.measure_data(job, 3)["bare"]
    assert indices == order.permutation(0, 0, 8).tolist() * (data.PASSES + 1)  # the first is not timed
    assert bare["speed"] < 1  # an append is faster than a sample


def test_dali_is_timed_beside_the_reference_loader(job, monkeypatch):
    decoded = []

    def plan(self, index, rng):
        return {**self.sample(index, rng), "image": Pending((b"",), Geometry())}

    def decode(samples):
        decoded.append([int(sample["index"]) for sample in samples])

    monkeypatch.setattr(dali, "is_installed", lambda: True)
    monkeypatch.setattr(dali, "decode", decode)
    monkeypatch.setattr(Numbers, "plan", plan, raising=False)
    report = data.measure_data(job, 3)
    first = order.permutation(0, 0, 8).tolist()
    assert decoded == [first[:4], first[4:]] * (data.PASSES + 1)
    assert report["dali"]["decoded"] == 8 and report["dali"]["ms"] > 0


def test_relative_speed():
    passes = [
        {"a": Cost(1, 2), "b": Cost(3, 1)},
        {"a": Cost(2, 2), "b": Cost(3, 2)},
        {"a": Cost(1, 2), "b": Cost(2, 2)},
    ]
    assert data._relative_speed(passes, "a", "b") == {"speed": 2.0, "cpu_speed": 1.0}


def test_the_lines_of_a_report():
    assert data.describe(REPORT) == [
        "812.3 samples/s with 4 workers x 2 threads (30 batches of 16, 3.0 MB each; the first after 1.2 s); 4.568 ms "
        "of CPU time per sample in all processes",
        "one thread alone: 200.0 samples/s; milliseconds per sample (CPU time):",
        "  read           1.000 (0.250)",
        "  decode         2.000 (2.000)",
        "  transform      1.500 (1.500)",
        "  collate        0.500 (0.500)",
        "  all            5.000 (4.250)",
    ]
    bare = {"ms": 4.0, "cpu_ms": 3.0, "speed": 0.9, "cpu_speed": 0.85}
    first, *_, last = data.describe({**REPORT, "notes": ["data.workers: auto takes 4"], "bare": bare})
    assert first == "data.workers: auto takes 4"
    assert last == (
        "bare loop of the library: 4.000 (3.000); this loader (reference) has 0.90 of its speed (0.85 by CPU time), "
        "median of 5 passes in turn"
    )
    dali = {"ms": 2.5, "cpu_ms": 2.0, "speed": 2.0, "cpu_speed": 2.125, "decoded": 29}
    assert data.describe({**REPORT, "dali": dali})[-1] == (
        "DALI: 2.500 (2.000), the reference loader 5.000 (4.250) in the same passes; DALI has 2.00 of its speed (2.12 "
        "by CPU time) and decodes images of 29 of 30 samples"
    )
    device = {"threads": 8, "samples_per_s": 4500.0, "bare_samples_per_s": None, "speed": None}
    assert data.describe({**REPORT, "device": device})[-1].startswith(
        "the batches of the first line were still encoded; DALI in this process, 8 threads: 4500.0 samples/s"
    )
