"""From a data set to batches, read ahead by threads or processes. The only importer of Grain.

One element of a stream is one batch of one rank, a pure function of its number; so workers cannot change the order,
and a resume starts at any number without a replay.
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

NEIGHBOURS = 20  # how many following samples may stand in for a bad one

logging.getLogger("absl").setLevel(logging.ERROR)  # Grain says at every start that it found no JAX profiler


@dataclass(frozen=True)
class Loading:
    """What every data set's settings have in common."""

    workers: int = 4  # processes that read ahead; 0: threads of this process
    threads: int = 2  # reading threads per process
    max_bad: float = 0.001  # a run stops once more than this share of an epoch's samples is unreadable
    eval_bad: Literal["error", "wrong"] = "error"  # an unreadable sample in an evaluation: stop, or count it as wrong

    def __post_init__(self):
        if self.workers < 0:
            raise ValueError("workers: must not be negative")
        if self.threads < 1:
            raise ValueError("threads: must be at least 1")
        if not 0 <= self.max_bad <= 1:
            raise ValueError("max_bad: a share between 0 and 1")


class Dataset(Protocol):
    """One split of a data set. sample() is stateless: a pure function of index, generator and files."""

    settings: Loading
    fields: tuple[Field, ...]
    classes: tuple[str, ...]
    views: int
    notes: tuple[str, ...]  # what to tell the user about the set

    def __len__(self) -> int: ...
    def name(self, index: int) -> str: ...
    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]: ...


@dataclass(frozen=True)
class Bad:
    """A sample that could not be read, and the name of the one that took its place (None in an evaluation)."""

    epoch: int
    name: str
    reason: str
    replaced_by: str | None


Loaded = tuple[Batch, list[Bad]]


def open_training(
    dataset: Dataset,
    seed: int,
    batch: int,
    first: int,
    last: int,
    rank: int = 0,
    size: int = 1,
    dropout_masks: Sequence[DropoutMask] = (),
) -> Iterator[Loaded]:
    """Batches number first .. last-1 of this rank, of the run's endless shuffled sequence.

    Batch number m of rank r holds the positions (m * size + r) * batch and the batch - 1 following.
    """

    def read(number: int) -> Loaded:
        return _training_batch(dataset, seed, (number * size + rank) * batch, batch, dropout_masks)

    return _read_ahead(read, first, last, dataset.settings)


def open_evaluation(dataset: Dataset, seed: int, batch: int, rank: int = 0, size: int = 1) -> Iterator[Loaded]:
    """Every sample exactly once over all ranks. Every rank gets equally many batches, padding marked not valid."""

    def read(number: int) -> Loaded:
        start = (number * size + rank) * batch
        return _evaluation_batch(dataset, seed, range(start, min(start + batch, len(dataset))), batch)

    return _read_ahead(read, 0, -(-len(dataset) // (batch * size)), dataset.settings)


def find_bad(dataset: Dataset, seconds: float) -> tuple[list[Bad], int]:
    """Read samples in order for at most `seconds`: the unreadable ones, and how many were tried."""
    bad, tried, end = [], 0, time.monotonic() + seconds
    for index in range(len(dataset)):
        if time.monotonic() > end:
            break
        tried += 1
        try:
            dataset.sample(index, order.generator(0, "probe", index))
        except BadSample as error:
            bad.append(Bad(0, dataset.name(index), str(error), None))
    return bad, tried


def _training_batch(
    dataset: Dataset, seed: int, start: int, batch: int, dropout_masks: Sequence[DropoutMask]
) -> Loaded:
    rows, bad = [], []
    for position in range(start, start + batch):
        row, failures = _replaced(dataset, seed, position)
        for source in dropout_masks:
            row[source.name] = source.draw(order.generator(seed, source.name, position))
        rows.append(row)
        bad += failures
    return collate(rows, batch), bad


def _replaced(dataset: Dataset, seed: int, position: int) -> tuple[dict[str, np.ndarray], list[Bad]]:
    """The sample at a position or, if it is bad, the first readable one behind it in the list."""
    epoch, index = order.locate(seed, len(dataset), position)
    failures = []
    for step in range(min(NEIGHBOURS, len(dataset))):
        candidate = (index + step) % len(dataset)
        try:
            row = dataset.sample(candidate, order.generator(seed, "augment", position))
        except BadSample as error:
            failures.append((dataset.name(candidate), str(error)))
            continue
        return row, [Bad(epoch, name, reason, dataset.name(candidate)) for name, reason in failures]
    tried = "\n".join(f"  {name}: {reason}" for name, reason in failures)
    raise UserError(f"{len(failures)} samples in a row cannot be read:\n{tried}")


def _evaluation_batch(dataset: Dataset, seed: int, indices: range, batch: int) -> Loaded:
    rows, bad = [], []
    for index in indices:
        try:
            rows.append(dataset.sample(index, order.generator(seed, "evaluate", index)))
        except BadSample as error:
            rows.append(_missing(dataset))
            bad.append(Bad(0, dataset.name(index), str(error), None))
    if rows:
        return collate(rows, batch), bad
    empty = collate([_missing(dataset)], batch)
    empty["valid"][:] = 0  # this rank has no sample left, but must take part in the step
    return empty, bad


def _missing(dataset: Dataset) -> dict[str, np.ndarray]:
    return {field.name: np.full(field.shape, field.missing, field.dtype) for field in dataset.fields}


def _read_ahead(read: Callable[[int], Loaded], first: int, last: int, settings: Loading) -> Iterator[Loaded]:
    import grain.python as grain  # a second of imports that `--print-config` need not pay

    if first >= last:
        return
    options = grain.ReadOptions(num_threads=settings.threads, prefetch_buffer_size=settings.threads)
    batches = grain.MapDataset.range(first, last).map(read).to_iter_dataset(options)
    if settings.workers:
        # What lies read ahead when a run ends is freed by Python's resource tracker, which complains about it.
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
        # Two batches per worker: one being made, one waiting.
        batches = batches.mp_prefetch(
            grain.MultiprocessingOptions(settings.workers, per_worker_buffer_size=2),
            worker_init_fn=partial(_set_up_reader, os.getpid()),
        )
    iterator = iter(batches)
    try:
        yield from iterator
    finally:
        iterator.close()  # gives back the shared memory of batches that nobody took


def _set_up_reader(parent: int, *_: int) -> None:
    """A reader process must not outlive a killed run, nor die of the Ctrl-C that lets the run save and stop.

    parent: told, because it may be gone before the reader could ask.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
