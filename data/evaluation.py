"""Repeated evaluations of a split by the same worker processes."""

import warnings
from collections.abc import Generator

from zoo.data import host, readers
from zoo.data.batch import batch_bytes
from zoo.data.reader_watch import DeadWorker
from zoo.data.stream import Dataset, LoadedBatch, Stream, evaluation_batches, evaluation_reader

ENDLESS = 2**40  # batches
KEPT_FRACTION = 0.1  # of the free memory that idle workers and the batches that they hold may take
WORKER_BYTES = 250 * 2**20  # of a worker process beside its batches: Python, OpenCV, a video decoder


class EvaluationReader:
    """Evaluations of a split, one after the other.

    Worker processes stay between evaluations and then hold the first batches of the next one, where memory allows it;
    otherwise they end with each evaluation. Threads of this process read only while an evaluation runs.

    Attributes:
        keeps_workers: whether the workers stay.
        batches: number of batches of an evaluation.
    """

    def __init__(
        self,
        dataset: Dataset,
        seed: int,
        batch_size: int,
        rank: int,
        world_size: int,
        workers: int,
        local_size: int,
        loader: str | None = None,
    ):
        """Start nothing yet.

        Args:
            batch_size: samples of one rank.
            workers: processes.
            local_size: processes of the run on this host, which share its memory.
            loader: see data/loaders; None for that of the settings.
        """
        self._read = evaluation_reader(dataset, seed, batch_size, rank, world_size, loader)
        self.batches, self._workers = evaluation_batches(dataset, batch_size, world_size), workers
        self._threads, self._memory_cap_gb = dataset.settings.threads, dataset.settings.worker_memory_gb
        held = (
            batch_bytes(dataset.fields, batch_size) * workers * readers.batches_per_worker(self._threads) * local_size
        )
        processes = WORKER_BYTES * workers * local_size
        self.keeps_workers = workers > 0 and fits(held, processes)
        self._stream: Stream | None = None

    def read(self) -> Generator[LoadedBatch, None, None]:
        """Return the batches of one evaluation; every call reads all samples again.

        A worker that was killed since the last evaluation is replaced, with a warning.

        Raises:
            UserError: a worker died that was started for this evaluation.
        """
        complete, were_idle = False, self._stream is not None
        stream = self._stream or self._open(0)
        try:
            for number in range(self.batches):
                try:
                    batch = next(stream)
                except DeadWorker as error:
                    if not were_idle:
                        raise
                    warnings.warn(f"an idle data loading process {error.cause}; new ones go on", stacklevel=1)
                    stream, were_idle = self._open(number), False
                    batch = next(stream)
                yield batch
            complete = True
        finally:
            if not (complete and self.keeps_workers):
                self.close()

    def close(self) -> None:
        """End the workers."""
        if self._stream:
            self._stream.close()
            self._stream = None

    def _open(self, first: int) -> Stream:
        """Start workers that read from a batch on."""
        read, batches = self._read, self.batches
        last = ENDLESS if self.keeps_workers else batches
        self._stream = Stream(
            lambda number, allocate: read(number % batches, allocate),
            first,
            last,
            self._workers,
            self._threads,
            self._memory_cap_gb,
        )
        return self._stream


def fits(shared: int, private: int) -> bool:
    """Return whether idle workers may hold so many bytes of shared memory and of their own."""
    fits_shared = shared <= KEPT_FRACTION * host.free_shared_memory()
    return fits_shared and shared + private <= KEPT_FRACTION * host.available_memory()
