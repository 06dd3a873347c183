"""The loader and the number of readers for the machine, and the time that a rank waits for them."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.helpers.journals import BEGIN, evaluations, write_journal
from tests.helpers.paths import ROOT
from tests.helpers.training import command
from zoo.data import host, worker_count
from zoo.data.batch import Field
from zoo.data.errors import UserError
from zoo.data.loaders import dali, dali_graph
from zoo.data.pending import Pending
from zoo.data.settings import LoaderSettings
from zoo.data.stages import DECODE, TRANSFORM, total
from zoo.data.stream import ReadTimes
from zoo.data.transforms.geometry import Geometry
from zoo.run import loading, monitor


class Ranks:
    """A group whose ranks, all in this process, have gathered values before, and later the same as this one."""

    def __init__(self, rank, values):
        self.rank, self.size, self.values = rank, len(values[0]), iter(values)

    def all_gather(self, value):
        values = next(self.values, [value] * self.size)
        values[self.rank] = value
        return json.loads(json.dumps(values))


def job(workers, group, loader="reference", cuda_index=None, dali_device="auto", **keys):
    train_set = SimpleNamespace(
        settings=LoaderSettings(workers=workers, threads=1, loader=loader, dali_device=dali_device, **keys),
        fields=(Field("x", (1000,), "uint8"),),
    )
    world = SimpleNamespace(cuda_index=cuda_index, device="cpu (2 threads)")
    batch_plan, val_set = SimpleNamespace(batch=10, accumulate=1), SimpleNamespace(fields=(Field("y", (50,), "int64"),))
    return SimpleNamespace(train_set=train_set, val_set=val_set, batch_plan=batch_plan, group=group, world=world)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Eight cores."""
    monkeypatch.setattr(loading.socket, "gethostname", lambda: "here")
    monkeypatch.setattr(dali_graph, "require_device", lambda device: None)
    monkeypatch.setattr(host, "cores", lambda: list(range(8)))
    monkeypatch.setattr(host, "cpu_quota", lambda: None)
    monkeypatch.setattr(host, "free_shared_memory", lambda: 2**30)


def test_a_number_is_taken_as_it_is():
    assert loading.plan(job(3, Ranks(0, [[None]])), 1) == ("reference", 3, 1, 8, (), False)


ONE = 7  # batches that a process with one thread has begun
HELD, HELD_IN_EVALUATION = 5, 3


@pytest.mark.parametrize("setting", [4, "auto"])
def test_processes_whose_batches_have_no_room_are_left_out(setting, monkeypatch):
    """Batches of 10,000 bytes in training and of 40 * 50 * 8 in an evaluation, of two ranks on this host."""
    here = {"host": "here", "cores": list(range(8))}
    monkeypatch.setattr(worker_count, "SHARED_FRACTION", 1e9)  # auto would take three

    def plan(free, **keys):
        monkeypatch.setattr(host, "free_shared_memory", lambda: free)
        return loading.plan(job(setting, Ranks(0, [[None, here]])), 1, **keys)

    def need(workers, val=40 * 50 * 8):
        held = HELD * 10_000 + HELD_IN_EVALUATION * val + loading.SEMAPHORES
        return 2 * (workers * ONE * (10_000 + val) + held)

    count = 4 if setting == 4 else 3
    assert plan(need(count), eval_batch=40).workers == count == plan(need(count, val=0)).workers
    for free, fit in ((need(count) - 1, count - 1), (need(2), 2), (need(2) - 1, 1), (need(1), 1)):
        found = plan(free, eval_batch=40)
        assert found.workers == fit
        assert (
            f"data.workers: {fit} instead of {count}, whose batches may need {need(count) / 2**20:.1f} MB of /dev/shm"
            in (found.notes[-1])
        )
    with pytest.raises(
        UserError, match=rf"may need {need(1) / 2**20:.1f} MB of /dev/shm, where .* are free; .*--shm-size"
    ):
        plan(need(1) - 1, eval_batch=40)


def test_another_host_without_room_decides_for_all():
    there = {"host": "there", "cores": [0]}
    assert loading.plan(job(4, Ranks(0, [[None, there], [None, [2, None]]])), 1).workers == 2
    with pytest.raises(UserError, match="no room there"):
        loading.plan(job(4, Ranks(0, [[None, there], [None, [4, "no room there"]]])), 1)


def test_threads_of_the_training_process_need_no_shared_memory(monkeypatch):
    monkeypatch.setattr(host, "free_shared_memory", lambda: 0)
    assert loading.plan(job(0, Ranks(0, [[None]])), 1, eval_batch=8).workers == 0


def test_auto_for_one_rank():
    plan = loading.plan(job("auto", Ranks(0, [[None], [None]])), 1)
    assert plan[1:4] == (7, 1, 8)
    assert plan.notes == ("data.workers: auto takes 7 (8 cores)",)


def test_ranks_of_a_host_share_its_cores_and_all_ranks_take_the_smallest_number():
    here, there = {"host": "here", "cores": list(range(8))}, {"host": "there", "cores": list(range(4))}
    group = Ranks(2, [[here, there, None, there], [[9, "9"], [2, "4 cores"], None, [2, "4 cores"]]])
    plan = loading.plan(job("auto", group), 1)
    assert plan[1:4] == (2, 2, 4) and "(4 cores" in plan.notes[0]


@pytest.mark.parametrize(
    "loader, dali_device, cuda_index, expected",
    [
        ("dali", "auto", 0, "encoded"),
        ("dali", "auto", None, "dali"),
        ("dali", "cpu", 0, "dali"),
        ("dali", "gpu", 1, "encoded"),
        ("reference", "gpu", None, "reference"),  # DALI decodes nowhere
    ],
)
def test_dali_decodes_on_the_device_of_the_run(loader, dali_device, cuda_index, expected, monkeypatch):
    monkeypatch.setattr(dali, "is_installed", lambda: True)
    plan = loading.plan(job("auto", Ranks(0, [[None], [None]]), loader, cuda_index, dali_device), 1)
    assert (plan.loader, plan.stream_loader) == (loader, expected)
    note = "data.dali_device: DALI decodes on cpu (2 threads), with 8 threads"
    assert plan.notes[:-1] == ((note,) if expected == "encoded" else ())


def test_samples_that_are_mixed_are_decoded_where_they_are_read(monkeypatch):
    monkeypatch.setattr(dali, "is_installed", lambda: True)
    plan = loading.plan(job(2, Ranks(0, [[None]]), "dali", 0, "auto", mixup=0.2), 1)
    assert (plan.loader, plan.stream_loader, plan.on_device) == ("dali", "dali", False)


def test_dali_on_a_gpu_is_checked_before_training(monkeypatch):
    asked = []
    monkeypatch.setattr(dali, "is_installed", lambda: True)
    monkeypatch.setattr(dali_graph, "require_device", asked.append)
    for index, setting in ((1, "auto"), (2, "gpu"), (3, "cpu"), (None, "auto")):
        loading.plan(job(0, Ranks(0, [[None]]), "dali", index, setting), 1)
    assert asked == [1, 2]


def test_no_gpu_for_dali_is_an_error_before_training(monkeypatch):
    monkeypatch.setattr(dali, "is_installed", lambda: True)
    with pytest.raises(UserError, match=r"data.dali_device: gpu needs .* trains on cpu .* data.dali_device=auto"):
        loading.plan(job(0, Ranks(0, [[None]]), "dali", None, "gpu"), 1)


class Images:
    """A data set whose samples DALI can decode, or not."""

    def __init__(self, pending, **keys):
        self.settings, self.pending = LoaderSettings(workers=1, threads=1, loader="auto", **keys), pending
        self.fields = (Field("x", (1000,), "uint8"),)

    def __len__(self):
        return 2

    def plan(self, index, rng):
        return {"x": Pending((b"",), Geometry()) if self.pending else None}


def plan_auto(gathered=((None,), (None,)), run=None, cuda_index=0, pending=True, deterministic=False, **keys):
    """Return loader and messages of a run with data.loader=auto. gathered: recorded loaders and obstacles of ranks."""
    machines = [{"host": "here", "cores": list(range(8))}] * len(gathered[0])
    given = job(1, Ranks(0, [machines, *map(list, gathered)]), cuda_index=cuda_index)
    given.train_set = Images(pending, **keys)
    plan = loading.plan(given, 5, run, deterministic)
    return plan.loader, plan.notes[0]


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({}, None),
        ({"cuda_index": None}, "nothing is decoded on a GPU"),
        ({"dali_device": "cpu"}, "nothing is decoded on a GPU"),
        ({"mixup": 0.2}, "nothing is decoded on a GPU"),
        ({"pending": False}, "DALI decodes none of the first 4 samples"),
        ({"deterministic": True}, "train.deterministic"),
        ({"gathered": ((None, None), (None, "DALI is not installed"))}, "DALI is not installed"),
    ],
)
def test_auto_is_dali_where_all_ranks_decode_on_a_gpu(changes, reason, monkeypatch):
    monkeypatch.setattr(dali, "is_installed", lambda: True)
    loader, note = plan_auto(**changes)
    assert loader == ("reference" if reason else "dali")
    assert note == f"data.loader: auto takes {loader} ({reason or 'which decodes on the GPU'})"


def test_auto_without_dali(monkeypatch):
    monkeypatch.setattr(dali, "is_installed", lambda: False)
    assert plan_auto() == ("reference", "data.loader: auto takes reference (DALI is not installed)")


def write_record(run, values):
    folder = Path(run) / "checkpoints" / "step-00000010"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(json.dumps({"step": 10, "files": {}, **values}))


@pytest.mark.parametrize("version", ["older", "this"])
@pytest.mark.parametrize("loader", ["dali", "reference"])
def test_a_resumed_run_keeps_its_loader(tmp_path, monkeypatch, loader, version):
    monkeypatch.setattr(dali, "is_installed", lambda: True)
    other = {"dali": "reference", "reference": "dali"}[loader]
    resumes = [{"event": "resume", "step": 10, "path": None, "loader": loader}, *evaluations(0.5)]
    run = write_journal(tmp_path, [{**BEGIN, "loader": other}, *resumes])
    write_record(run, {} if version == "older" else {"loader": loader})
    note = f"data.loader: auto takes {loader}, as this run did before"
    cuda_index = 0 if loader == "reference" else None
    assert plan_auto(((None,),), run, cuda_index) == (loader, note)


def test_a_resumed_run_that_needs_dali(tmp_path, monkeypatch):
    monkeypatch.setattr(dali, "is_installed", lambda: False)
    run = write_journal(tmp_path, [{**BEGIN, "loader": "dali"}])
    write_record(run, {})
    with pytest.raises(UserError, match=r"data.loader: auto took dali .* -o data.loader=reference"):
        plan_auto(((None,),), run)
    with pytest.raises(UserError, match=r"data.loader: dali .* -o data.loader=reference"):
        loading.plan(job(1, Ranks(0, [[None]]), "dali"), 1)
    assert loading.plan(job(1, Ranks(0, [[None]]), "reference"), 1, run).notes == ()


def test_an_interval_is_a_difference():
    seconds = {**total([]), DECODE: 4.0, TRANSFORM: 1.0}
    stream = SimpleNamespace(times=ReadTimes(10, seconds, 2.0, 0.5), workers=2, threads=3)
    batches = SimpleNamespace(data_wait=1.0, copying=0.25)
    meter = monitor.WaitMeter(stream, batches, cores=4)
    stream.times = ReadTimes(30, {**seconds, DECODE: 10.0}, 5.0, 0.75)
    batches.data_wait, batches.copying = 2.5, 1.25
    interval = meter.read(8.0)
    assert interval == (8.0, 1.5, 3.0, 1.25, 20, {**total([]), DECODE: 6.0}, 2, 3, 4)
    assert meter.read(1.0)[:6] == (1.0, 0.0, 0.0, 0.0, 0, total([]))


@pytest.mark.slow
def test_a_run_whose_reader_is_killed_ends_with_a_message_and_leaves_nothing_behind(clips, tmp_path):
    words = command(clips, "--out", tmp_path / "run", data__workers=2, train__epochs=100_000)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        while not any(line.startswith("step 2/") for line in iter(process.stdout.readline, "")):
            assert process.poll() is None
        children = psutil.Process(process.pid).children(recursive=True)
        readers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        readers[0].kill()
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 2 and "Traceback" not in errors
        assert "error: a data loading process was killed (SIGKILL)" in errors and "--resume" in errors
        _, alive = psutil.wait_procs(children, timeout=20)
        assert len(readers) >= 2 and alive == []
    finally:
        process.kill()
