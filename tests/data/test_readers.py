"""Read-ahead by threads and processes: shared memory, workers that die."""

import os
import signal
import time

import numpy as np
import pytest

from data import host, readers
from data.errors import UserError

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


@pytest.mark.parametrize(
    "code, words",
    [
        (-signal.SIGKILL, "memory runs out"),
        (-signal.SIGBUS, "/dev/shm is full"),
        (-signal.SIGSEGV, "check_data.py"),
        (3, "exited with code 3"),
    ],
)
def test_the_exit_code_tells_the_cause(code, words):
    error = RuntimeError(f"Worker process was terminated unexpectedly with exit code {code}. Search the logs above")
    assert words in str(readers._explain(error))


def test_other_errors_are_not_explained():
    assert readers._explain(RuntimeError("CUDA error")) is None

    def fail(number, allocate):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        list(readers.read_ahead(fail, 0, 2, workers=0, threads=1))


def test_too_little_shared_memory(monkeypatch):
    monkeypatch.setattr(host, "free_shared_memory", lambda: 2**20)
    with pytest.raises(
        UserError, match=r"/dev/shm has 1.0 MB free, and an array of a batch takes 1.5 MB; .*--shm-size"
    ):
        readers.shared_array((3, 2**19), np.uint8)
    assert readers.shared_array((0, 4), np.uint8).shape == (0, 4)
