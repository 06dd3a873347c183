"""The measurement of decoding on the device, with DALI's operators for a CPU."""

import json
from types import SimpleNamespace

import pytest

from tests.data.loaders import sets
from tests.data.loaders.test_dali import needs_dali
from zoo.bench.timing import device
from zoo.run.loading import Loading


@needs_dali
@pytest.mark.parametrize("name, has_bare", [("images", True), ("frames", False)])
def test_what_is_measured(name, has_bare, tmp_path, monkeypatch):
    train, _ = sets.SETS[name](tmp_path)
    job = SimpleNamespace(
        train_set=train,
        batch_plan=SimpleNamespace(batch=3),
        dropout_masks=(),
        group=SimpleNamespace(rank=0, size=1),
        world=SimpleNamespace(cuda_index=None),
    )
    opened, open_training = [], device.open_training
    monkeypatch.setattr(
        device, "open_training", lambda *args, **keys: opened.append(keys) or open_training(*args, **keys)
    )
    report = json.loads(json.dumps(device.measure_device(job, 4, Loading("dali", 0, 1, 2.0, (), True))))
    assert opened[0]["loader"] == "encoded" and report["threads"] == 2 and report["samples_per_s"] > 0
    assert (report["speed"] is not None) == (report["bare_samples_per_s"] is not None) == has_bare


def test_the_line_of_a_report():
    report = {"threads": 8, "samples_per_s": 4512.34, "bare_samples_per_s": 5000.0, "speed": 0.902}
    assert device.describe_device(report) == (
        "DALI in this process, 8 threads: 4512.3 samples/s on the device; a minimal DALI pipeline 5000.0; this loader "
        "has 0.90 of its speed, median of 3 passes in turn"
    )
    report |= {"bare_samples_per_s": None, "speed": None}
    assert device.describe_device(report).endswith(
        "4512.3 samples/s on the device; there is no minimal DALI pipeline of this data set"
    )


def test_only_measured_batches_count(monkeypatch):
    times, read = iter([10.0, 13.0]), []
    monkeypatch.setattr(device, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    assert device._seconds(lambda: read.append(1), 2, 3) == 3.0 and len(read) == 5
