"""The number of readers for the machine, and the time that a rank waits for them."""

import json
import subprocess
from types import SimpleNamespace

import psutil
import pytest

from data import host, worker_count
from data.batch import Field
from data.stages import DECODE, TRANSFORM, total
from data.stream import LoaderSettings, ReadTimes
from data.worker_count import Cost
from tests.helpers.paths import ROOT
from tests.helpers.training import command
from zoo.run import loading


class Ranks:
    """A group whose ranks, all in this process, have gathered values before."""

    def __init__(self, rank, values):
        self.rank, self.size, self.values = rank, len(values[0]), iter(values)

    def all_gather(self, value):
        values = next(self.values)
        values[self.rank] = value
        return json.loads(json.dumps(values))


def job(workers, group):
    train_set = SimpleNamespace(
        settings=LoaderSettings(workers=workers, threads=1), fields=(Field("x", (1000,), "uint8"),)
    )
    return SimpleNamespace(train_set=train_set, batch_plan=SimpleNamespace(batch=10), group=group)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Eight cores, and samples that take 10 ms."""
    monkeypatch.setattr(loading.socket, "gethostname", lambda: "here")
    monkeypatch.setattr(host, "cores", lambda: list(range(8)))
    monkeypatch.setattr(host, "cpu_quota", lambda: None)
    monkeypatch.setattr(host, "free_shared_memory", lambda: 2**30)
    monkeypatch.setattr(worker_count, "measure_cost", lambda dataset: Cost(0.01, 0.01))


def test_a_number_is_taken_as_it_is():
    assert loading.plan(job(3, Ranks(0, [[None]]))) == (3, 1, 8, None)


def test_auto_for_one_rank():
    plan = loading.plan(job("auto", Ranks(0, [[None], [None]])))
    assert plan[:3] == (7, 1, 8)
    assert plan.note == "data.workers: auto takes 7 (8 cores; a sample takes 10.0 ms, 10.0 ms of CPU time)"


def test_ranks_of_a_host_share_its_cores_and_all_ranks_take_the_smallest_number():
    here, there = {"host": "here", "cores": list(range(8))}, {"host": "there", "cores": list(range(4))}
    group = Ranks(2, [[here, there, None, there], [[9, "9"], [2, "4 cores"], None, [2, "4 cores"]]])
    plan = loading.plan(job("auto", group))
    assert plan[:3] == (2, 2, 4) and "(4 cores" in plan.note


def test_an_interval_is_a_difference():
    seconds = {**total([]), DECODE: 4.0, TRANSFORM: 1.0}
    stream = SimpleNamespace(times=ReadTimes(10, seconds, 2.0, 0.5), workers=2, threads=3)
    batches = SimpleNamespace(data_wait=1.0, copying=0.25)
    meter = loading.WaitMeter(stream, batches, cores=4)
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
