"""Read-ahead by threads and processes: shared memory, workers that die."""

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from zoo.data import host, reader_board, reader_watch, readers, shared_memory
from zoo.data.errors import UserError

PARENT = os.getpid()


def read_number(number, allocate):
    """Return an array that holds its number, whether it was read in another process, and whether it is shared."""
    array = allocate((3,), np.int64)
    array[:] = number
    return {"number": array}, os.getpid() != PARENT, type(array).__name__


def read_then_die(number, allocate):
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return read_number(number, allocate)


def test_threads_allocate_ordinary_arrays():
    elements = list(readers.read_ahead(read_number, 3, 9, workers=0, threads=2))
    assert [element["number"].tolist() for element, _, _ in elements] == [[number] * 3 for number in range(3, 9)]
    assert {(in_worker, kind) for _, in_worker, kind in elements} == {(False, "ndarray")}


@pytest.mark.slow
def test_worker_processes_allocate_in_shared_memory():
    elements = list(readers.read_ahead(read_number, 3, 9, workers=2, threads=1))
    assert [element["number"].tolist() for element, _, _ in elements] == [[number] * 3 for number in range(3, 9)]
    assert {kind for _, _, kind in elements} == {"SharedMemoryArray"}


@pytest.mark.slow
@pytest.mark.parametrize("workers, threads", [(1, 1), (2, 2)])
def test_batches_that_workers_have_begun(workers, threads, tmp_path):
    def read(number, allocate):
        (tmp_path / str(number)).touch()
        return read_number(number, allocate)

    elements = readers.read_ahead(read, 0, 1000, workers, threads)
    for _ in range(6):
        next(elements)
    begun, deadline = [0, 1], time.monotonic() + 60
    while begun[-1] != begun[-2] and time.monotonic() < deadline:
        time.sleep(1)
        begun.append(len(list(tmp_path.iterdir())))
    elements.close()
    assert begun[-1] - 6 == workers * readers.batches_per_worker(threads)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_worker_is_an_error_of_the_user(workers):
    with pytest.raises(UserError, match=r"data loading process was killed \(SIGKILL\).*data.workers.*--resume"):
        list(readers.read_ahead(read_then_die, 0, 40, workers, threads=1))


def read_after_signals(number, allocate):
    if number == 2:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    return read_number(number, allocate)


@pytest.mark.slow
def test_workers_read_on_after_signals_that_the_run_answers():
    elements = list(readers.read_ahead(read_after_signals, 0, 9, workers=1, threads=1))
    assert [int(element["number"][0]) for element, _, _ in elements] == list(range(9))


def test_other_errors_are_not_explained():
    def fail(number, allocate):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        list(readers.read_ahead(fail, 0, 2, workers=0, threads=1))


def read_and_name(number, allocate):
    reader_board.begin("clip {}.mp4".format, number)
    if number == 5:
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)  # another thread may get it
    return read_number(number, allocate)


@pytest.mark.slow
def test_a_worker_that_crashes_is_named_with_its_sample():
    with pytest.raises(UserError, match=r"signal 11 \(.*\) while it read clip 5.mp4, perhaps by a file that crashes"):
        list(readers.read_ahead(read_and_name, 0, 40, 2, threads=1))


@pytest.mark.slow
def test_a_worker_that_dies_while_nothing_is_taken_is_told(monkeypatch):
    """The loop may compute for minutes before it needs the batch that is missing."""
    monkeypatch.setattr(reader_watch, "INTERVAL", 0.05)
    find, has_found = reader_watch.ReaderWatch._find, threading.Event()

    def find_and_tell(watch):
        find(watch)
        if len(watch._processes) == 2:
            has_found.set()

    monkeypatch.setattr(reader_watch.ReaderWatch, "_find", find_and_tell)
    elements = readers.read_ahead(read_number, 0, 1000, 2, threads=1)
    with pytest.warns(UserWarning, match=r"was killed \(SIGKILL\).*the run ends when it needs a batch") as warned:
        next(elements)
        assert has_found.wait(60)
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while not warned and time.monotonic() < deadline:
            time.sleep(0.05)
    with pytest.raises(UserError, match="SIGKILL"):
        next(elements)


HELD = []


def read_and_hold(number, allocate):
    HELD.append(bytearray(b"x" * 20_000_000))
    return {"number": np.array(number)}, os.getpid()


@pytest.mark.slow
def test_workers_are_started_anew_above_their_memory(monkeypatch):
    monkeypatch.setattr(reader_watch, "INTERVAL", 0.02)
    monkeypatch.setattr(readers, "MIN_ELEMENTS", 10)
    elements = list(readers.read_ahead(read_and_hold, 3, 63, 1, threads=1, memory_cap=600e6))
    assert [int(element["number"]) for element, _ in elements] == list(range(3, 63))
    processes = list(dict.fromkeys(process for _, process in elements))
    assert len(processes) > 1
    assert not [name for name in os.listdir(host.SHARED_MEMORY) if shared_memory.claim() in name and "-board" in name]


@pytest.mark.slow
def test_a_limit_that_no_worker_keeps_is_given_up(monkeypatch):
    monkeypatch.setattr(reader_watch, "INTERVAL", 0.02)
    with pytest.warns(UserWarning, match=r"more than 0.001 GB each again.*raise data.worker_memory_gb"):
        elements = list(readers.read_ahead(read_and_hold, 0, 20, 1, threads=1, memory_cap=1e6))
    assert [int(element["number"]) for element, _ in elements] == list(range(20))


@pytest.mark.slow
def test_nothing_is_left_in_shared_memory_when_a_stream_is_closed():
    """Also batches that nobody took: each evaluation of a run would leave some more."""
    token = shared_memory.claim()

    def segments():
        found = os.listdir(host.SHARED_MEMORY)
        return {name for name in found if token in name and not name.startswith("sem.")}

    before = segments()  # of other tests
    elements = readers.read_ahead(read_number, 0, 1000, 2, threads=2)
    element = next(elements)
    elements.close()
    (name,) = segments() - before
    assert name == element[0]["number"].shm.name.lstrip("/")  # the array that was taken
    assert element[0]["number"].tolist() == [0, 0, 0]
