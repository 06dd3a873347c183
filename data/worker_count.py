"""Number of worker processes for data.workers=auto, from cores, the measured cost of a sample, and shared memory."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zoo.data import host, loaders, order, readers
from zoo.data.batch import batch_bytes
from zoo.data.errors import BadSample, UserError
from zoo.data.loaders import ReadSample
from zoo.data.pending import PlannedSample
from zoo.data.shared_memory import REMEDY, megabytes

if TYPE_CHECKING:
    from zoo.data.stream import Dataset

MAX_SAMPLES, MAX_SECONDS = 32, 1.0  # read to measure the cost of a sample
DALI_SAMPLES = 8  # that are read at a time, since DALI decodes the images of a batch together
MAX_WAITING = 4.0  # reading threads per core, for files that the disk or the network makes wait for
HAND_OVER = 0.001  # seconds in which the training process takes over a batch: more workers than it can serve are idle
SHARED_FRACTION = 0.5  # of the free shared memory that batches may fill


class Cost(NamedTuple):
    """Seconds that reading a sample takes in one thread.

    Attributes:
        wall: on cores that nobody else uses.
        cpu: CPU time, over all threads of the decoder.
    """

    wall: float
    cpu: float


class Choice(NamedTuple):
    """A number of workers, and the reason for it."""

    workers: int
    reason: str


def measure_cost(
    dataset: "Dataset",
    loader: str,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
    core_wait: Callable[[], float] = host.core_wait,
) -> Cost:
    """Read up to MAX_SAMPLES samples from all over the data set by a loader, for about MAX_SECONDS."""
    indices = np.linspace(0, len(dataset) - 1, min(MAX_SAMPLES, len(dataset)), dtype=int).tolist()
    size = 1 if loader == "reference" else DALI_SAMPLES
    _read(dataset, loader, indices[:size])  # imports decoders
    start, cpu_start, wait_start, read = clock(), cpu_clock(), core_wait(), 0
    for first in range(0, len(indices), size):
        _read(dataset, loader, indices[first : first + size])
        read += len(indices[first : first + size])
        if clock() - start > MAX_SECONDS:
            break
    wall = clock() - start - (core_wait() - wait_start)
    return Cost(wall / read, (cpu_clock() - cpu_start) / read)


def choose(
    cost: Cost, cores: float, batch_size: int, bytes_per_batch: int, threads: int, shared_memory: float
) -> Choice:
    """Return the number of workers for a process.

    Args:
        cost: of a sample.
        cores: that the process has for itself; one is left to the process.
        batch_size: samples per batch.
        bytes_per_batch: size of a batch.
        threads: reading threads per worker.
        shared_memory: bytes that the process may use.
    """
    waiting = min(max(cost.wall / max(cost.cpu, 1e-9), 1.0), MAX_WAITING)
    limits = {
        f"{cores:g} cores": round(max(cores - 1, 1) * waiting / threads),
        "more would be idle": math.ceil(cost.wall * batch_size / HAND_OVER / threads),
        f"{shared_memory / 2**20:.0f} MB of shared memory": int(
            shared_memory * SHARED_FRACTION / max(bytes_per_batch, 1) / readers.batches_per_worker(threads)
        ),
    }
    reason = min(limits, key=lambda name: limits[name])
    milliseconds = f"a sample takes {cost.wall * 1e3:.1f} ms, {cost.cpu * 1e3:.1f} ms of CPU time"
    return Choice(max(1, limits[reason]), f"{reason}; {milliseconds}")


def fit(workers: int, need_of_one: float, need_of_all: float, free: float) -> int:
    """Return how many of the workers have room for their batches in shared memory.

    Args:
        workers: processes of each rank, at least 1.
        need_of_one, need_of_all: bytes that their batches may take on this host, with one process and with all.
        free: bytes of shared memory.

    Raises:
        UserError: there is no room for the batches of one.
    """
    if need_of_all <= free:
        return workers
    if need_of_one > free:
        raise UserError(
            f"data.workers: the batches that one process reads ahead may need {megabytes(need_of_one)} of "
            f"{host.SHARED_MEMORY}, where {megabytes(free)} are free; {REMEDY}"
        )
    per_worker = (need_of_all - need_of_one) / (workers - 1)
    return 1 + int((free - need_of_one) / per_worker)


def choose_here(dataset: "Dataset", batch_size: int, loader: str) -> int:
    """Return the number of workers for a process that has this host for itself."""
    cores = host.core_share([host.cores()], 0, host.cpu_quota())
    size, threads = batch_bytes(dataset.fields, batch_size), dataset.settings.threads
    return choose(measure_cost(dataset, loader), cores, batch_size, size, threads, host.free_shared_memory()).workers


def _read(dataset: "Dataset", loader: str, indices: Sequence[int]) -> None:
    def read(read_sample: ReadSample) -> tuple[list[PlannedSample], None]:
        samples = []
        for index in indices:
            with suppress(BadSample):
                samples.append(read_sample(index, order.generator(0, "cost", index)))
        return samples, None

    loaders.read_samples(dataset, loader, read)
