"""data.workers=auto: numbers that follow from cores and memory."""

import pytest

from tests.data.test_stream import Numbers
from zoo.data import host
from zoo.data.settings import LoaderSettings
from zoo.data.stream import open_training
from zoo.data.worker_count import choose

PLENTY = 2**50  # bytes


@pytest.mark.parametrize("cores, threads, workers", [(8, 1, 7), (8, 2, 4), (2, 2, 1), (1, 1, 1), (0.25, 1, 1)])
def test_one_core_is_left_to_the_training_process(cores, threads, workers):
    assert choose(cores, 1000, threads, PLENTY).workers == workers


def test_shared_memory():
    size = 2**20
    room = 2 * size * 3 * 7  # half of it holds three workers with seven batches each
    assert choose(64, size, 1, room) == (3, "42 MB of shared memory")
    assert choose(64, size, 1, 0).workers == 1  # whose message about /dev/shm is clear


def test_a_stream_of_its_own_chooses_too(monkeypatch):
    monkeypatch.setattr(host, "cores", lambda: [0])
    stream = open_training(Numbers(settings=LoaderSettings(workers="auto")), 0, 4, 0, 1)
    assert stream.workers == 1
    assert open_training(Numbers(settings=LoaderSettings(workers="auto")), 0, 4, 0, 1, num_workers=0).workers == 0
