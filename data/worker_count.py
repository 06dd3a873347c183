"""Number of worker processes: of data.workers=auto, and how many have room in shared memory."""

from typing import TYPE_CHECKING, NamedTuple

from zoo.data import host, readers
from zoo.data.batch import batch_bytes
from zoo.data.errors import UserError
from zoo.data.shared_memory import REMEDY, megabytes

if TYPE_CHECKING:
    from zoo.data.stream import Dataset

SHARED_FRACTION = 0.5  # of the free shared memory that batches may fill


class Choice(NamedTuple):
    """A number of workers, and the reason for it."""

    workers: int
    reason: str


def choose(cores: float, bytes_per_batch: int, threads: int, shared_memory: float) -> Choice:
    """Return the number of workers for a process: a reading thread for every core but one, which is left to it.

    Args:
        cores: that the process has for itself.
        bytes_per_batch: size of a batch.
        threads: reading threads per worker.
        shared_memory: bytes that the process may use.
    """
    limits = {
        f"{cores:g} cores": round(max(cores - 1, 1) / threads),
        f"{shared_memory / 2**20:.0f} MB of shared memory": int(
            shared_memory * SHARED_FRACTION / max(bytes_per_batch, 1) / readers.batches_per_worker(threads)
        ),
    }
    reason = min(limits, key=lambda name: limits[name])
    return Choice(max(1, limits[reason]), reason)


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


def choose_here(dataset: "Dataset", batch_size: int) -> int:
    """Return the number of workers for a process that has this host for itself."""
    cores = host.core_share([host.cores()], 0, host.cpu_quota())
    size, threads = batch_bytes(dataset.fields, batch_size), dataset.settings.threads
    return choose(cores, size, threads, host.free_shared_memory()).workers
