"""Read-ahead by threads and processes: order, memory, workers that die, errors."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.data import readers
from zoo.data.errors import UnreadableData, UserError
from zoo.data.readers import DeadWorker, Readers

LARGE = 1 << 17  # bytes, above readers.MIN_SHARED


def read_number(number):
    """Return arrays that hold a number, and the process that has read it."""
    return {
        "small": np.full(3, number),
        "large": np.full(LARGE, number, np.uint8),
        "empty": np.ones((0, 3)),
    }, os.getpid()


def mappings():
    """Return how many batches are mapped into this process."""
    with open("/proc/self/maps") as file:
        return sum("memfd:element" in line for line in file)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def open_readers():
    opened = []

    def open_one(read, workers, threads=1, **keys):
        opened.append(Readers(read, workers, threads, **keys))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.mark.parametrize("workers, threads", [(0, 3), (2, 2)])
def test_elements_come_in_order_and_the_same_workers_read_again(workers, threads, open_readers):
    source, processes = open_readers(read_number, workers, threads), []
    for first, last in ((3, 20), (0, 20), (5, 5)):
        elements = list(source.read(first, last))
        assert [int(arrays["small"][0]) for arrays, _ in elements] == list(range(first, last))
        for arrays, _ in elements:
            assert np.array_equal(arrays["large"], np.full(LARGE, arrays["small"][0], np.uint8))
            assert arrays["empty"].shape == (0, 3) and arrays["large"].flags.writeable
        processes.append({process for _, process in elements})
    assert processes[1] | processes[0] == processes[1] and len(processes[1]) == max(workers, 1)
    assert (os.getpid() in processes[0]) == (workers == 0)


def test_an_array_keeps_its_batch_and_nothing_else_stays(open_readers):
    before, opened = mappings(), descriptors()
    source = open_readers(read_number, 2)
    elements = source.read(0, 1000)
    kept = next(elements)[0]
    elements.close()
    assert mappings() == before + 1 and descriptors() == opened + 1 and not source._running
    small = kept["small"]
    large = kept.pop("large")
    del kept
    assert mappings() == before + 1
    del large  # small arrays are copies
    assert mappings() == before and descriptors() == opened and small.tolist() == [0, 0, 0]


def touch(folder, number):
    (folder / str(number)).touch()
    return number


@pytest.mark.parametrize("workers, threads", [(2, 2), (0, 2)])
def test_a_limited_number_of_elements_is_read_ahead(workers, threads, open_readers, tmp_path):
    elements = open_readers(partial(touch, tmp_path), workers, threads).read(0, 1000)
    assert [next(elements) for _ in range(6)] == list(range(6))
    begun, deadline = [0, 1], time.monotonic() + 60
    while begun[-1] != begun[-2] and time.monotonic() < deadline:
        time.sleep(0.5)
        begun.append(len(list(tmp_path.iterdir())))
    assert 1 <= begun[-1] - 6 <= max(workers, 1) * readers.batches_per_worker(threads)
    elements.close()


def kill_at(number_of_death, number, signal_number):
    readers.reading(100 + number)
    if number == number_of_death:
        os.kill(os.getpid(), signal_number)
        time.sleep(60)  # another thread may get it
    return number


def test_a_worker_that_dies_is_named_with_its_sample(open_readers):
    for number, words in (
        (signal.SIGKILL, ("SIGKILL", "data.workers")),
        (signal.SIGSEGV, ("signal 11", "zoo data check")),
    ):
        read = partial(kill_at, 5, signal_number=number)
        source = open_readers(read, 2, 2, name="clip {}.mp4".format)
        with pytest.raises(UserError) as caught:
            list(source.read(0, 40))
        assert all(word in str(caught.value) for word in ("clip 105.mp4", "--resume", *words))
        assert not source._running


def exit_at_once(number):
    os._exit(3)


def test_a_worker_that_exits(open_readers):
    with pytest.raises(DeadWorker, match="exited with code 3"):
        list(open_readers(exit_at_once, 1).read(0, 4))


def test_an_idle_worker_that_was_killed_is_replaced(open_readers):
    source = open_readers(read_number, 2)
    assert len(list(source.read(0, 20))) == 20
    victim = source._running[1].process
    victim.kill()
    victim.wait()
    with pytest.warns(UserWarning, match=r"an idle data loading process was killed \(SIGKILL\)"):
        elements = list(source.read(0, 20))
    assert [int(arrays["small"][0]) for arrays, _ in elements] == list(range(20))
    assert victim.pid not in {process for _, process in elements}


def read_after_signals(number):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    return number


def test_workers_read_on_after_signals_that_the_run_answers(open_readers):
    assert list(open_readers(read_after_signals, 1).read(0, 4)) == list(range(4))


def fail(error, number):
    if number == 2:
        raise error
    return number


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_come_in_order(workers, open_readers):
    error = UnreadableData("a.jpg is empty", unreadable={"a.jpg": "empty"})
    elements = open_readers(partial(fail, error), workers).read(0, 9)
    assert [next(elements), next(elements)] == [0, 1]
    with pytest.raises(UnreadableData, match="a.jpg is empty") as caught:
        next(elements)
    assert caught.value.unreadable == {"a.jpg": "empty"}
    with pytest.raises(KeyError if workers == 0 else RuntimeError, match="a bug"):
        list(open_readers(partial(fail, KeyError("a bug")), workers).read(0, 9))


SCRIPT = """
import os, signal, sys, time
from tests.data.test_readers import read_number
from zoo.data.readers import Readers
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
print("imported", os.getpid(), flush=True)
source = Readers(read_number, 2, 1)
elements = source.read(0, 10**6)
print(*{next(elements)[1] for _ in range(20)}, flush=True)
time.sleep(120)
"""


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_exit_with_their_parent(number, tmp_path):
    """The script has no guard against being imported again: workers do not import it."""
    script = tmp_path / "stream.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert parent.stdout.readline().startswith("imported")
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert workers and all(map(is_alive, workers))
        parent.send_signal(number)
        output, errors = parent.communicate(timeout=60)
        assert output == "" and errors.count("Traceback") == (number == signal.SIGINT)  # the script's own
        deadline = time.monotonic() + 60
        while any(map(is_alive, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_alive, workers))
    finally:
        parent.kill()


def test_a_worker_imports_no_framework(open_readers):
    ((modules, _),) = open_readers(loaded_modules, 1).read(0, 1)
    assert not modules & {"torch", "paddle", "mindspore", "cv2"}


def loaded_modules(number):
    return set(sys.modules), number
