"""`zoo bench data`, with a data set of numbers, and with DALI's operators for a CPU."""

import json
from types import SimpleNamespace

import pytest

from tests.bench.test_update import words_of
from tests.data.loaders import sets
from tests.data.loaders.test_dali import needs_dali
from tests.data.test_stream import Numbers
from zoo.bench.commands import data
from zoo.data import loaders, order
from zoo.data.dataset import LoaderSettings, Pending
from zoo.data.stages import STAGES
from zoo.data.transforms.geometry import Geometry
from zoo.run.pipeline import LoaderPlan

FIRST = order.permutation(0, 0, 8).tolist()


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(data.pipeline, "plan_loader", lambda *parts: LoaderPlan("reference", 0, 2, ("a note",)))
    monkeypatch.setattr(loaders, "is_installed", lambda loader: loader == "reference")
    return SimpleNamespace(
        train_set=Numbers(8, settings=LoaderSettings(workers="auto")),
        batch_plan=SimpleNamespace(batch=4),
        dropout_masks=(),
        world=None,
        group=None,
    )


def test_what_is_measured(job):
    report = json.loads(json.dumps(data.measure(job, 3)))
    assert report["samples"] == 8 and list(report["loaders"]) == ["reference"] and report["device"] is None
    stream = report["stream"]
    assert [stream[key] for key in ("batches", "batch", "workers", "threads")] == [3, 4, 0, 2]
    assert stream["batch_bytes"] == 4 * 32 and stream["samples_per_s"] > 0
    for seconds in report["one_thread"].values():
        assert tuple(seconds) == STAGES and seconds["read"] == seconds["decode"] == 0 < seconds["transform"]
    lines = data.describe(report)
    assert lines[0] == "a note" and lines[-1].split() == ["reference", *lines[-1].split()[1:3], "1.00", "1.00"]
    assert [line.split()[0] for line in lines[4:9]] == [*STAGES, "all"]


def test_dali_is_timed_beside_the_reference_loader(job, monkeypatch):
    decoded = []

    def plan(self, index, rng):
        return {**self.sample(index, rng), "image": Pending((b"",), Geometry())}

    monkeypatch.setattr(loaders, "is_installed", lambda loader: True)

    def decode(samples):
        decoded.append([int(sample["index"]) for sample in samples])

    monkeypatch.setattr(loaders, "decode_here", decode)
    monkeypatch.setattr(Numbers, "plan", plan, raising=False)
    report = data.measure(job, 3)
    assert decoded == [FIRST[:4], FIRST[4:]] * (data.PASSES + 1)
    assert report["loaders"]["dali"]["decoded"] == 8
    assert data.describe(report)[-1] == "DALI decodes images of 8 of 8 samples"


@needs_dali
def test_decoding_on_the_device(tmp_path):
    train, _ = sets.SETS["images"](tmp_path)
    job = SimpleNamespace(
        train_set=train,
        batch_plan=SimpleNamespace(batch=3),
        dropout_masks=(),
        group=SimpleNamespace(rank=0, size=1),
        world=SimpleNamespace(cuda_index=None),
    )
    report = json.loads(json.dumps(data.measure_device(job, 4, LoaderPlan("dali", 0, 2.0, (), True))))
    assert report["threads"] == 2 and report["samples_per_s"] > 0


@pytest.mark.slow
def test_a_recipe(clips, tmp_path, run_program):
    path = tmp_path / "data.json"
    out = run_program("bench", "data", *words_of(clips), "-n", "2", "--json", str(path))
    assert "samples/s with 0 workers" in out and json.loads(path.read_text())["one_thread"]["ms"]["decode"] > 0
