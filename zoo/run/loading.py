"""Reader processes of a run, chosen for the machine where data.workers is auto, and how long it waits for them."""

import socket
from typing import NamedTuple

from data import host, worker_count
from data.batch import batch_bytes
from data.stream import Stream
from zoo.logs.data_wait import Interval
from zoo.run.job import Job
from zoo.run.prefetch import Prefetcher


class Loading(NamedTuple):
    """Reader processes of each rank.

    Attributes:
        workers: number of processes per rank.
        local_size: ranks on this host.
        cores: that this rank has for itself.
        note: message for the user about the choice, None if the recipe gives the number.
    """

    workers: int
    local_size: int
    cores: float
    note: str | None


def plan(job: Job) -> Loading:
    """Choose the number of workers, the same on every rank. A collective call."""
    group, setting = job.group, job.train_set.settings.workers
    mine = {"host": socket.gethostname(), "cores": host.cores()}
    ranks = group.all_gather(mine)
    local = [index for index, rank in enumerate(ranks) if rank["host"] == mine["host"]]
    cores = host.core_share([ranks[index]["cores"] for index in local], local.index(group.rank), host.cpu_quota())
    if setting != "auto":
        return Loading(setting, len(local), cores, None)
    choice = worker_count.choose(
        worker_count.measure_cost(job.train_set),
        cores,
        job.batch_plan.batch,
        batch_bytes(job.train_set.fields, job.batch_plan.batch),
        job.train_set.settings.threads,
        host.free_shared_memory() / len(local),
    )
    workers, reason = min(group.all_gather(choice))
    return Loading(workers, len(local), cores, f"data.workers: auto takes {workers} ({reason})")


class WaitMeter:
    """Waiting for data on this rank, interval by interval."""

    def __init__(self, stream: Stream, batches: Prefetcher, cores: float):
        """Start the first interval. cores: that this rank has for itself."""
        self._stream, self._batches, self._cores = stream, batches, cores
        self._wait, self._copying, self._times = batches.data_wait, batches.copying, stream.times

    def read(self, elapsed: float) -> Interval:
        """Return the interval since the last call. elapsed: its seconds of training."""
        last_wait, last_copying, last = self._wait, self._copying, self._times
        self._wait, self._copying, self._times = self._batches.data_wait, self._batches.copying, self._stream.times
        times = self._times
        return Interval(
            elapsed=elapsed,
            wait=self._wait - last_wait,
            reading=times.waiting - last.waiting,
            transport=times.transport - last.transport + self._copying - last_copying,
            samples=times.samples - last.samples,
            stages={name: seconds - last.stages[name] for name, seconds in times.stages.items()},
            workers=self._stream.workers,
            threads=self._stream.threads,
            cores=self._cores,
        )
