"""The loader and the number of readers of a run, and the time that a rank waits for them."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.helpers.journals import BEGIN, write_journal
from tests.helpers.paths import ROOT
from tests.helpers.training import command
from zoo.data import host, loaders
from zoo.data.dataset import LoaderSettings, Pending
from zoo.data.errors import UserError
from zoo.data.loaders import dali_graph
from zoo.data.stages import DECODE, TRANSFORM, total
from zoo.data.stream import ReadTimes
from zoo.data.transforms.geometry import Geometry
from zoo.distributed import environment
from zoo.run import meters, pipeline, resume

HERE, THERE = ["here", [*range(8)]], ["there", [*range(4)]]


class Ranks:
    """A group whose ranks, all in this process, have gathered values before, and later the same as this one."""

    def __init__(self, rank, *values):
        self.rank, self.size, self.values = rank, len(values[0]), iter(values)

    def all_gather(self, value):
        values = list(next(self.values, [value] * self.size))
        values[self.rank] = value
        return json.loads(json.dumps(values))


class Images:
    """A data set whose samples DALI can decode, or not."""

    def __init__(self, settings, pending=True):
        self.settings, self.pending = settings, pending

    def __len__(self):
        return 2

    def plan(self, index, rng):
        return {"x": Pending((b"",), Geometry()) if self.pending else None}


def job(workers=2, group=None, loader="reference", cuda_index=None, dali_device="auto", **keys):
    train_set = Images(LoaderSettings(workers=workers, threads=1, loader=loader, dali_device=dali_device, **keys))
    world = SimpleNamespace(cuda_index=cuda_index, device="cpu (2 threads)")
    return SimpleNamespace(train_set=train_set, group=group or Ranks(0, [None]), world=world)


def plan_loader(job, run=None, deterministic=False):
    kept = resume.begun(job.group, run).get("loader") if run else None
    return pipeline.plan_loader(job.train_set, job.world, job.group, kept, deterministic)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Eight cores, and a DALI that every GPU can use."""
    monkeypatch.setattr(environment.socket, "gethostname", lambda: "here")
    monkeypatch.setattr(loaders, "is_installed", lambda loader: True)
    monkeypatch.setattr(dali_graph, "require_device", lambda device: None)
    monkeypatch.setattr(host, "cores", lambda: list(range(8)))
    monkeypatch.setattr(host, "cpu_quota", lambda: None)


def test_a_gpu_that_dali_cannot_use_leaves_the_reference_loader(monkeypatch):
    def refuse(device):
        raise UserError("data.dali_device: DALI cannot use cuda:0")

    monkeypatch.setattr(dali_graph, "require_device", refuse)
    world = SimpleNamespace(cuda_index=0, device="cuda:0")
    of = lambda device: SimpleNamespace(settings=SimpleNamespace(dali_device=device, mixup=0, cutmix=0))  # noqa: E731
    assert "cannot use cuda:0" in pipeline._obstacle_to_dali(of("auto"), world)
    with pytest.raises(UserError, match="cannot use cuda:0"):
        pipeline._obstacle_to_dali(of("gpu"), world)


def test_numbers_of_workers():
    assert plan_loader(job(3)) == ("reference", 3, 8, (), False)
    plan = plan_loader(job("auto"))
    assert plan.workers == 7 and "data.workers: auto takes 7" in plan.notes[0]
    # Ranks of a host share its cores, and all ranks take the smallest number.
    plan = plan_loader(job("auto", Ranks(2, [HERE, THERE, None, THERE], [3, 2, None, 1])))
    assert (plan.workers, plan.cores) == (1, 4)


@pytest.mark.parametrize(
    "loader, dali_device, cuda_index, expected",
    [
        ("dali", "auto", 0, "encoded"),
        ("dali", "auto", None, "dali"),
        ("dali", "cpu", 0, "dali"),
        ("dali", "gpu", 1, "encoded"),
        ("reference", "gpu", None, "reference"),  # DALI decodes nowhere
        ("auto", "auto", 0, "encoded"),
        ("auto", "auto", None, "reference"),
        ("auto", "cpu", 0, "reference"),
    ],
)
def test_dali_decodes_on_the_device_of_the_run(loader, dali_device, cuda_index, expected):
    plan = plan_loader(job(1, None, loader, cuda_index, dali_device))
    assert plan.stream_loader == expected and plan.on_device == (expected == "encoded")
    assert (pipeline.open_decoder(job(1, None, loader, cuda_index, dali_device).world, plan) is None) != plan.on_device
    notes = [note.partition(":")[0] for note in plan.notes]
    assert notes == ["data.loader"] * (loader == "auto") + ["data.dali_device"] * plan.on_device


def test_samples_that_are_mixed_are_decoded_where_they_are_read():
    assert plan_loader(job(loader="dali", cuda_index=0, mixup=0.2)).stream_loader == "dali"
    assert plan_loader(job(loader="auto", cuda_index=0, mixup=0.2)).stream_loader == "reference"


def test_a_deterministic_run():
    assert plan_loader(job(loader="auto", cuda_index=0), deterministic=True).stream_loader == "reference"
    plan = plan_loader(job(loader="dali", cuda_index=0), deterministic=True)
    assert plan.stream_loader == "dali" and "train.deterministic" in plan.notes[0]
    with pytest.raises(UserError, match=r"data.dali_device: .*train.deterministic"):
        plan_loader(job(loader="dali", cuda_index=0, dali_device="gpu"), deterministic=True)


def test_no_gpu_for_dali_is_an_error_before_training():
    with pytest.raises(UserError, match=r"data.dali_device: gpu .* data.dali_device=auto"):
        plan_loader(job(loader="dali", dali_device="gpu"))


def test_a_host_without_dali_decides_for_all():
    group = Ranks(0, [HERE, THERE], [None, "DALI is not installed"])
    assert plan_loader(job(1, group, "auto", 0)).loader == "reference"


def test_videos_are_not_left_to_dali():
    videos = job(loader="auto", cuda_index=0)
    videos.train_set.pending = False
    assert plan_loader(videos).loader == "reference"


def write_record(run, values):
    folder = Path(run) / "checkpoints" / "step-00000010"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(json.dumps({"step": 10, "files": {}, **values}))


@pytest.mark.parametrize("loader", ["dali", "reference"])
def test_a_resumed_run_keeps_its_loader(tmp_path, loader):
    run = write_journal(tmp_path, [BEGIN])
    write_record(run, {"loader": loader})
    assert plan_loader(job(loader="auto", cuda_index=0 if loader == "reference" else None), run).loader == loader


def test_a_run_that_needs_dali(tmp_path, monkeypatch):
    monkeypatch.setattr(loaders, "is_installed", lambda loader: loader == "reference")
    run = write_journal(tmp_path, [BEGIN])
    write_record(run, {"loader": "dali"})
    for arguments in ((job(loader="auto"), run), (job(loader="dali"),)):
        with pytest.raises(UserError, match=r"data.loader: .*-o data.loader=reference"):
            plan_loader(*arguments)
    assert plan_loader(job(), run).notes == ()


def test_an_interval_is_a_difference():
    seconds = {**total([]), DECODE: 4.0, TRANSFORM: 1.0}
    stream = SimpleNamespace(times=ReadTimes(10, seconds, 2.0, 0.5), workers=2, threads=3)
    batches = SimpleNamespace(data_wait=1.0, copying=0.25)
    meter = meters.WaitMeter(stream, batches, cores=4)
    stream.times = ReadTimes(30, {**seconds, DECODE: 10.0}, 5.0, 0.75)
    batches.data_wait, batches.copying = 2.5, 1.25
    interval = meter.read(8.0)
    assert interval == (8.0, 1.5, 3.0, 1.25, 20, {**total([]), DECODE: 6.0}, 2, 3, 4)
    assert meter.read(1.0)[:6] == (1.0, 0.0, 0.0, 0.0, 0, total([]))


@pytest.mark.slow
def test_a_run_whose_reader_is_killed_ends_with_a_message_and_leaves_nothing_behind(clips, tmp_path):
    words = command(clips, "--verbose", "--out", tmp_path / "run", data__workers=2, train__epochs=100_000)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        while not any(line.startswith("step 2/") for line in iter(process.stdout.readline, "")):
            assert process.poll() is None
        children = psutil.Process(process.pid).children(recursive=True)
        readers = [child for child in children if "readers.serve" in " ".join(child.cmdline())]
        readers[0].kill()
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 2 and "Traceback" not in errors
        assert "error: a data loading process was killed (SIGKILL)" in errors and "--resume" in errors
        _, alive = psutil.wait_procs(children, timeout=20)
        assert len(readers) >= 2 and alive == []
    finally:
        process.kill()
