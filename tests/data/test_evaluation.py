"""Repeated evaluations by the same workers, with a data set of numbers."""

import os
import signal
from dataclasses import dataclass

import numpy as np
import pytest

from tests.data.test_stream import Numbers
from zoo.data import evaluation, host, readers
from zoo.data.batch import Field, batch_bytes
from zoo.data.errors import UserError
from zoo.data.evaluation import EvaluationReader
from zoo.data.settings import LoaderSettings
from zoo.data.stream import open_evaluation


@dataclass(frozen=True)
class Processes(Numbers):
    """Sample i is the number i and the process that read it."""

    fields: tuple[Field, ...] = (Field("index", (), "int64"), Field("process", (), "int64"))

    def sample(self, index, rng):
        return {"index": np.asarray(index), "process": np.asarray(os.getpid())}


def reader(dataset, workers, rank=0, world_size=1):
    return EvaluationReader(dataset, 0, 4, rank, world_size, workers, local_size=1)


def once(dataset, rank=0, world_size=1):
    return [batch["index"].tolist() for batch, _ in open_evaluation(dataset, 0, 4, rank, world_size)]


def read(evaluations):
    """Return the numbers of each batch, and the processes that have read a sample."""
    batches = [batch for batch, _ in evaluations.read()]
    return [batch["index"].tolist() for batch in batches], {int(i) for batch in batches for i in batch["process"]}


@pytest.fixture
def much_memory(monkeypatch):
    monkeypatch.setattr(host, "free_shared_memory", lambda: 2**40)
    monkeypatch.setattr(host, "available_memory", lambda: 2**40)


@pytest.mark.slow
def test_workers_stay_and_every_evaluation_is_complete(much_memory):
    evaluations = reader(Processes(23), workers=2)
    assert evaluations.keeps_workers
    (first, processes), (second, others), (third, _) = (read(evaluations) for _ in range(3))
    assert first == second == third == once(Processes(23))
    assert processes == others and len(processes) == 2 and os.getpid() not in processes
    evaluations.close()
    again, new_processes = read(evaluations)
    assert again == first and not processes & new_processes
    evaluations.close()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [1, 2])
def test_workers_that_were_killed_while_idle_are_replaced(much_memory, killed):
    evaluations = reader(Processes(99), workers=2)
    first, processes = read(evaluations)
    for process in sorted(processes)[:killed]:
        os.kill(process, signal.SIGKILL)
    with pytest.warns(
        UserWarning, match=r"^an idle data loading process was killed \(SIGKILL\).*; new ones go on$"
    ) as w:
        again, _ = read(evaluations)
    assert again == first == once(Processes(99))
    assert len([warning for warning in w if "idle data loading" in str(warning.message)]) == 1
    third, others = read(evaluations)  # without a warning
    assert third == first and len(others) == 2 and not processes & others
    evaluations.close()


@dataclass(frozen=True)
class Crashing(Processes):
    """Sample 95 kills the process that reads it, but for the first time; idle workers do not read that far ahead."""

    mark: str = ""

    def sample(self, index, rng):
        if index == 95 and os.path.exists(self.mark):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().sample(index, rng)


@pytest.mark.slow
def test_a_sample_that_kills_its_reader_ends_the_evaluation(much_memory, tmp_path):
    evaluations = reader(Crashing(99, mark=str(tmp_path / "mark")), workers=1)
    read(evaluations)
    (tmp_path / "mark").write_text("")
    with pytest.warns(UserWarning, match="new ones go on"), pytest.raises(UserError, match=r"SIGKILL.*--resume$"):
        read(evaluations)
    with pytest.raises(UserError, match=r"SIGKILL.*--resume$"):  # of the first processes, too
        read(reader(Crashing(99, mark=str(tmp_path / "mark")), workers=1))


@pytest.mark.slow
def test_an_evaluation_that_is_broken_off_does_not_shift_the_next_one(much_memory):
    evaluations = reader(Processes(23), workers=1)
    broken_off = evaluations.read()
    next(broken_off)
    broken_off.close()
    assert read(evaluations)[0] == once(Processes(23))
    evaluations.close()


@pytest.mark.slow
def test_workers_end_with_the_evaluation_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(host, "available_memory", lambda: 2**30)
    evaluations = reader(Processes(9), workers=1)
    assert not evaluations.keeps_workers
    (first, processes), (second, others) = (read(evaluations) for _ in range(2))
    assert first == second == once(Processes(9)) and not processes & others


def test_threads_read_each_evaluation_of_each_rank_anew():
    for rank in range(3):
        evaluations = reader(Processes(23), 0, rank, 3)
        assert not evaluations.keeps_workers
        assert [read(evaluations)[0] for _ in range(2)] == [once(Processes(23), rank, 3)] * 2


def test_the_memory_of_idle_workers(monkeypatch):
    dataset = Numbers(settings=LoaderSettings(threads=2))
    assert batch_bytes(dataset.fields, 4) == 4 * (8 + 16 + 8)
    assert readers.batches_per_worker(2) == 8
    monkeypatch.setattr(host, "free_shared_memory", lambda: 1000)
    monkeypatch.setattr(host, "available_memory", lambda: 2000)
    assert evaluation.fits(100, 100)
    assert not evaluation.fits(101, 0) and not evaluation.fits(100, 101)
