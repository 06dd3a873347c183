"""The report on the input pipeline, with a data set of numbers."""

import json
from types import SimpleNamespace

import pytest

from data import order
from data.stages import STAGES
from data.stream import LoaderSettings
from tests.data.test_stream import Numbers
from tools.timing import data
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
    "dataset": "data.datasets.imagenet",
    "samples": 30,
    "note": None,
    "stream": STREAM,
    "one_thread": {
        "ms": {"read": 1.0, "decode": 2.0, "transform": 1.5, "collate": 0.5},
        "cpu_ms": {"read": 0.25, "decode": 2.0, "transform": 1.5, "collate": 0.5},
    },
    "bare": None,
}


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(data.loading, "plan", lambda job: Loading(0, 1, 2, None))
    return SimpleNamespace(
        train_set=Numbers(8, settings=LoaderSettings(workers="auto")),
        batch_plan=SimpleNamespace(batch=4),
        dropout_masks=(),
    )


def test_what_is_measured(job):
    report = json.loads(json.dumps(data.measure_data(job, 3)))
    assert report["dataset"] == "tests.data.test_stream" and report["samples"] == 8 and report["bare"] is None
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
    assert indices == order.permutation(0, 0, 8).tolist() * data.PASSES
    assert bare["speed"] < 1  # an append is faster than a sample


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
    first, *_, last = data.describe({**REPORT, "note": "data.workers: auto takes 4", "bare": bare})
    assert first == "data.workers: auto takes 4"
    assert last == (
        "bare loop of the library: 4.000 (3.000); this loader has 0.90 of its speed (0.85 by CPU time), median of 5 "
        "passes in turn"
    )
