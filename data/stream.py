"""Streams of batches from a data set, read ahead by threads or processes. The only module that imports Grain.

One element of a stream is one batch of one rank, a pure function of its number. So the number of workers cannot change
the order, and a resumed run starts at any batch without a replay.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np

from data import order
from data.batch import Batch, DropoutMask, Field, collate
from data.errors import BadSample, UserError

MAX_REPLACEMENTS = 20  # samples tried at one position, the unreadable one included
PARENT_POLL_INTERVAL = 0.5  # seconds between two looks at the parent process

logging.getLogger("absl").setLevel(logging.ERROR)  # Grain warns at every start that there is no JAX profiler


@dataclass(frozen=True)
class LoaderSettings:
    """Settings that all data sets share."""

    workers: int = 4  # processes that read ahead; 0: threads of this process
    threads: int = 2  # reading threads per process
    max_bad: float = 0.001  # a run stops when more than this fraction of an epoch's samples is unreadable
    eval_bad: Literal["error", "wrong"] = "error"  # an unreadable sample in an evaluation: stop, or count it as wrong

    def __post_init__(self):
        if self.workers < 0:
            raise ValueError("workers: must not be negative")
        if self.threads < 1:
            raise ValueError("threads: must be at least 1")
        if not 0 <= self.max_bad <= 1:
            raise ValueError("max_bad: must be a fraction between 0 and 1")


class Dataset(Protocol):
    """One split of a data set. It is picklable, and keeps no state between samples.

    Attributes:
        fields: The arrays of a sample.
        classes: Class names by label, or a range where classes have numbers only.
        views: Images or clips per sample; more than one in a multi-view evaluation and for pairs.
        notes: Messages for the user, printed when a run starts.
    """

    settings: LoaderSettings
    fields: tuple[Field, ...]
    classes: Sequence
    views: int
    notes: tuple[str, ...]

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """Return the name of a sample for messages, such as its path."""

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Read one sample: a pure function of index, generator and files.

        Raises:
            BadSample: The sample cannot be read.
        """


@dataclass(frozen=True)
class UnreadableSample:
    """A sample that could not be read, and the name of its replacement (None in an evaluation)."""

    epoch: int
    name: str
    reason: str
    replaced_by: str | None


LoadedBatch = tuple[Batch, list[UnreadableSample]]


def open_training(
    dataset: Dataset,
    seed: int,
    batch_size: int,
    first: int,
    last: int,
    rank: int = 0,
    world_size: int = 1,
    dropout_masks: Sequence[DropoutMask] = (),
) -> Iterator[LoadedBatch]:
    """Read batches first .. last - 1 of this rank from the endless shuffled sequence of the run.

    Batch m of rank r holds `batch_size` consecutive positions from (m * world_size + r) * batch_size on.

    Args:
        batch_size: Samples of one rank.
        dropout_masks: Masks to draw with every sample; each becomes an array of the batch.

    Raises:
        UserError: MAX_REPLACEMENTS samples in a row cannot be read.
    """

    def read(number: int) -> LoadedBatch:
        start = (number * world_size + rank) * batch_size
        return _training_batch(dataset, seed, start, batch_size, dropout_masks)

    return _read_ahead(read, first, last, dataset.settings)


def open_evaluation(
    dataset: Dataset, seed: int, batch_size: int, rank: int = 0, world_size: int = 1
) -> Iterator[LoadedBatch]:
    """Read every sample exactly once over all ranks.

    All ranks get the same number of batches; padding is 0 in the array `valid`.
    """

    def read(number: int) -> LoadedBatch:
        start = (number * world_size + rank) * batch_size
        return _evaluation_batch(dataset, seed, range(start, min(start + batch_size, len(dataset))), batch_size)

    return _read_ahead(read, 0, -(-len(dataset) // (batch_size * world_size)), dataset.settings)


def find_bad(dataset: Dataset, seconds: float) -> tuple[list[UnreadableSample], int]:
    """Read samples in order for at most `seconds`.

    Returns:
        The unreadable samples, and the number of samples read.
    """
    unreadable: list[UnreadableSample] = []
    tried, deadline = 0, time.monotonic() + seconds
    for index in range(len(dataset)):
        if time.monotonic() > deadline:
            break
        tried += 1
        try:
            dataset.sample(index, order.generator(0, "probe", index))
        except BadSample as error:
            unreadable.append(UnreadableSample(0, dataset.name(index), str(error), None))
    return unreadable, tried


def _training_batch(
    dataset: Dataset, seed: int, start: int, batch_size: int, dropout_masks: Sequence[DropoutMask]
) -> LoadedBatch:
    samples, unreadable = [], []
    for position in range(start, start + batch_size):
        sample, failures = _readable_sample(dataset, seed, position)
        for mask in dropout_masks:
            sample[mask.name] = mask.sample(order.generator(seed, mask.name, position))
        samples.append(sample)
        unreadable += failures
    return collate(samples, batch_size), unreadable


def _readable_sample(
    dataset: Dataset, seed: int, position: int
) -> tuple[dict[str, np.ndarray], list[UnreadableSample]]:
    """Return the sample at a position or, if it is unreadable, the first readable one after it in the data set."""
    epoch, index = order.locate(seed, len(dataset), position)
    failures = []
    for offset in range(min(MAX_REPLACEMENTS, len(dataset))):
        candidate = (index + offset) % len(dataset)
        try:
            sample = dataset.sample(candidate, order.generator(seed, "augment", position))
        except BadSample as error:
            failures.append((dataset.name(candidate), str(error)))
            continue
        replacement = dataset.name(candidate)
        return sample, [UnreadableSample(epoch, name, reason, replacement) for name, reason in failures]
    reasons = "\n".join(f"  {name}: {reason}" for name, reason in failures)
    raise UserError(f"{len(failures)} samples in a row cannot be read; check data.root and these files:\n{reasons}")


def _evaluation_batch(dataset: Dataset, seed: int, indices: range, batch_size: int) -> LoadedBatch:
    samples, unreadable = [], []
    for index in indices:
        try:
            samples.append(dataset.sample(index, order.generator(seed, "evaluate", index)))
        except BadSample as error:
            samples.append(_missing_sample(dataset))
            unreadable.append(UnreadableSample(0, dataset.name(index), str(error), None))
    if samples:
        return collate(samples, batch_size), unreadable
    padding = collate([_missing_sample(dataset)], batch_size)
    padding["valid"][:] = 0  # this rank has no sample left, but must take part in the step
    return padding, unreadable


def _missing_sample(dataset: Dataset) -> dict[str, np.ndarray]:
    return {field.name: np.full(field.shape, field.missing, field.dtype) for field in dataset.fields}


def _read_ahead(
    read: Callable[[int], LoadedBatch], first: int, last: int, settings: LoaderSettings
) -> Iterator[LoadedBatch]:
    import grain.python as grain  # takes a second, which `--print-config` does not need

    if first >= last:
        return
    options = grain.ReadOptions(num_threads=settings.threads, prefetch_buffer_size=settings.threads)
    batches = grain.MapDataset.range(first, last).map(read).to_iter_dataset(options)
    if settings.workers:
        # Python's resource tracker frees the batches that are still in the buffer when a run ends, and warns about it.
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
        # Two batches per worker: one in progress, one ready.
        batches = batches.mp_prefetch(
            grain.MultiprocessingOptions(settings.workers, per_worker_buffer_size=2),
            worker_init_fn=partial(_init_worker, os.getpid()),
        )
    iterator = iter(batches)
    try:
        yield from iterator
    finally:
        iterator.close()  # frees the shared memory of batches that were not consumed


def _init_worker(parent: int, *_: int) -> None:
    """Ignore Ctrl-C, which lets the run save and stop, and exit when the parent process is gone.

    Args:
        parent: Process id of the run. It is an argument because the run may already be gone when the worker starts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def exit_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_INTERVAL)
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
