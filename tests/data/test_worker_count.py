"""data.workers=auto: numbers that follow from cores, cost and memory, with clocks that the test sets."""

import math

import pytest

from tests.data.test_stream import Numbers
from zoo.data import host, worker_count
from zoo.data.errors import BadSample
from zoo.data.loaders import dali
from zoo.data.pending import Pending
from zoo.data.settings import LoaderSettings
from zoo.data.stream import open_training
from zoo.data.transforms.geometry import Geometry
from zoo.data.worker_count import Cost, choose, measure_cost

PLENTY = 2**50  # bytes
DECODING, WAITING, RANDOM = Cost(0.01, 0.01), Cost(0.01, 0.0025), Cost(5e-5, 5e-5)


@pytest.mark.parametrize(
    "cost, cores, threads, workers",
    [
        (DECODING, 8, 1, 7),  # one core is left to the training process
        (DECODING, 8, 2, 4),
        (DECODING, 2, 2, 1),
        (DECODING, 1, 1, 1),
        (DECODING, 0.25, 1, 1),
        (WAITING, 8, 1, 28),  # the cores wait for the disk three quarters of the time
        (Cost(0.01, 0.0), 8, 1, 28),  # but no more than four threads per core
        (RANDOM, 64, 1, 2),  # 32 samples take 1.6 ms, so two workers give batches as fast as a process takes them
        (RANDOM, 64, 2, 1),
    ],
)
def test_cores_and_cost(cost, cores, threads, workers):
    assert choose(cost, cores, 32, 1000, threads, PLENTY).workers == workers


def test_shared_memory():
    size = 2**20
    room = 2 * size * 3 * 7  # half of it holds three workers with seven batches each
    choice = choose(DECODING, 64, 32, size, 1, room)
    assert choice == (3, "42 MB of shared memory; a sample takes 10.0 ms, 10.0 ms of CPU time")
    assert choose(DECODING, 64, 32, size, 1, 0).workers == 1  # whose message about /dev/shm is clear


class Slow(Numbers):
    """Reading a sample takes 3 s, 1 s of them CPU time, beside 2 s for a core. Every third is unreadable."""

    wall = cpu = planned = 0

    def sample(self, index, rng):
        Slow.wall += 5
        Slow.cpu += 1
        if index % 3 == 0:
            raise BadSample("broken")
        return {}

    def plan(self, index, rng):
        Slow.planned += 1
        return {**self.sample(index, rng), "image": Pending((b"",), Geometry())}


def cost(loader):
    Slow.wall = Slow.cpu = Slow.planned = 0
    return measure_cost(Slow(23), loader, lambda: Slow.wall, lambda: Slow.cpu, lambda: 2 * Slow.cpu)


@pytest.mark.parametrize("limit, read", [(math.inf, 23), (34.0, 7)])
def test_the_cost_of_a_sample(monkeypatch, limit, read):
    monkeypatch.setattr(worker_count, "MAX_SECONDS", limit)
    assert cost("reference") == Cost(3, 1) and Slow.planned == 0
    assert Slow.cpu == 1 + read  # the first is read twice: it imports the decoder


@pytest.mark.parametrize("limit, read", [(math.inf, 23), (34.0, 8), (60.0, 16)])
def test_the_cost_of_a_sample_that_dali_decodes(monkeypatch, limit, read):
    decoded = []

    def decode(samples):
        decoded.append(len(samples))
        Slow.wall += 10
        Slow.cpu += 10

    monkeypatch.setattr(worker_count, "MAX_SECONDS", limit)
    monkeypatch.setattr(dali, "decode", decode)
    measured = cost("dali")
    batches = len(decoded) - 1  # the first one is read twice: it builds the pipelines
    assert Slow.planned == 8 + read and batches == -(-read // 8)
    assert measured.cpu == pytest.approx(1 + 10 * batches / read)


def test_a_stream_of_its_own_chooses_too(monkeypatch):
    monkeypatch.setattr(host, "cores", lambda: [0])
    monkeypatch.setattr(worker_count, "HAND_OVER", 1e9)  # so that no number of workers is of use
    stream = open_training(Numbers(settings=LoaderSettings(workers="auto")), 0, 4, 0, 1)
    assert stream.workers == 1
    assert open_training(Numbers(settings=LoaderSettings(workers="auto")), 0, 4, 0, 1, num_workers=0).workers == 0
