"""Streams of batches from a data set, read ahead by threads or processes (data/readers.py).

One element of a stream is one batch of one rank, a pure function of its number. So the number of workers cannot change
the order, and a resumed run starts at any batch without a replay.
"""

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from zoo.data import host, loaders, mixing, order, readers
from zoo.data.batch import Batch, DropoutMask
from zoo.data.dataset import Dataset, PlannedSample
from zoo.data.errors import BadSample, UnreadableData
from zoo.data.loaders import Loader
from zoo.data.loaders.packed import pack
from zoo.data.readers import Readers
from zoo.data.stages import COLLATE, Seconds, measure, stage, total

MAX_REPLACEMENTS = 20  # samples tried at one position, the unreadable one included
MAX_WORKERS = 16  # for data.workers=auto

ReadSample = Callable[[int, np.random.Generator], PlannedSample]


@dataclass(frozen=True)
class UnreadableSample:
    """A sample that could not be read, and the name of its replacement (None in an evaluation)."""

    epoch: int
    name: str
    reason: str
    replaced_by: str | None


LoadedBatch = tuple[Batch, list[UnreadableSample]]


@dataclass(frozen=True)
class _Row:
    """A sample that was read, its index, and those that could not be read before it or in place of it."""

    sample: PlannedSample
    index: int
    failures: list[UnreadableSample]


@dataclass(frozen=True)
class TrainingBatches:
    """Batches of one rank of the endless shuffled sequence of a run, by number.

    Batch m of rank r holds `batch_size` consecutive positions from (m * world_size + r) * batch_size on.

    Attributes:
        dropout_masks: Masks to draw with every sample; each becomes an array of the batch.
    """

    dataset: Dataset
    seed: int
    batch_size: int
    rank: int = 0
    world_size: int = 1
    dropout_masks: Sequence[DropoutMask] = ()
    loader: Loader = "reference"

    def __call__(self, number: int) -> LoadedBatch:
        start = (number * self.world_size + self.rank) * self.batch_size
        positions = range(start, start + self.batch_size)
        read_positions = mixed_samples if mixing.is_on(self.dataset.settings) else training_samples
        samples, unreadable = read_positions(self.dataset, self.seed, positions, self.loader)
        for mask in self.dropout_masks:
            for sample, rng in zip(samples, order.generators(self.seed, mask.name, positions)):
                sample[mask.name] = mask.sample(rng)
        return _collate(samples, self.batch_size), unreadable


@dataclass(frozen=True)
class EvaluationBatches:
    """Batches of one rank of an evaluation, by number: every sample exactly once over all ranks.

    All ranks get the same number of batches; padding is 0 in the array `valid`.
    """

    dataset: Dataset
    seed: int
    batch_size: int
    rank: int = 0
    world_size: int = 1
    loader: Loader = "reference"

    def __len__(self) -> int:
        return -(-len(self.dataset) // (self.batch_size * self.world_size))

    def __call__(self, number: int) -> LoadedBatch:
        start = (number * self.world_size + self.rank) * self.batch_size
        indices = range(start, min(start + self.batch_size, len(self.dataset)))
        samples, unreadable = evaluation_samples(self.dataset, self.seed, indices, self.loader)
        positions = np.minimum(np.arange(start, start + self.batch_size), len(self.dataset) - 1)  # of padding the last
        if samples:
            return {**_collate(samples, self.batch_size), "index": positions}, unreadable
        padding = _collate([_missing_sample(self.dataset)], self.batch_size)
        padding["valid"][:] = 0  # this rank has no sample left, but must take part in the step
        return {**padding, "index": positions}, unreadable


class TimedBatch(NamedTuple):
    """A batch, the seconds that reading it took by stage, and when (time.monotonic, the same in all processes)."""

    batch: Batch
    unreadable: list[UnreadableSample]
    seconds: Seconds
    finished: float


class ReadTimes(NamedTuple):
    """Seconds that reading took since the start of a stream.

    Attributes:
        stages: of reading them, added up over all reading threads.
        waiting: of the consumer, for batches that were still being read.
        transport: of the consumer, for batches that had been read: from the worker to this process.
    """

    samples: int = 0
    stages: Seconds = total([])
    waiting: float = 0.0
    transport: float = 0.0

    def add(self, loaded: TimedBatch, requested: float, arrived: float) -> "ReadTimes":
        begin_of_transport = min(max(requested, loaded.finished), arrived)
        return ReadTimes(
            self.samples + len(loaded.batch["valid"]),
            total([self.stages, loaded.seconds]),
            self.waiting + begin_of_transport - requested,
            self.transport + arrived - begin_of_transport,
        )


class BatchStream(Protocol):
    """Batches of a rank in order; a generator is one too."""

    def __iter__(self) -> Iterator[LoadedBatch]: ...
    def __next__(self) -> LoadedBatch: ...
    def close(self) -> None: ...


class Stream(Iterator[LoadedBatch]):
    """Batches in order, read ahead.

    Attributes:
        workers: processes that read; 0: threads of this process.
        times: what reading took so far.
    """

    def __init__(self, batches: TrainingBatches | EvaluationBatches, first: int, last: int, workers: int):
        self.batches, self._readers = batches, _open_readers(batches, workers)
        self.workers, self.threads = workers, self._readers.threads
        self.times = ReadTimes()
        self._elements = self._readers.read(first, last)

    def __next__(self) -> LoadedBatch:
        requested = time.monotonic()
        try:
            loaded = next(self._elements)
        except StopIteration:
            self._readers.close()
            raise
        self.times = self.times.add(loaded, requested, time.monotonic())
        return loaded.batch, loaded.unreadable

    def close(self) -> None:
        """Stop reading, and end the workers, unless a thread that waits for a batch just now does it."""
        with suppress(ValueError):  # the generator is being executed
            self._elements.close()
            self._readers.close()


class EvaluationReader:
    """Evaluations of a split, one after the other, by the same worker processes."""

    def __init__(self, batches: EvaluationBatches, workers: int):
        """Start nothing yet. workers: processes; 0: threads of this process."""
        self.batches, self._readers = batches, _open_readers(batches, workers)

    def read(self) -> Generator[LoadedBatch, None, None]:
        """Return the batches of one evaluation; every call reads all samples again.

        A worker that was killed since the last evaluation is replaced, with a warning.
        """
        for loaded in self._readers.read(0, len(self.batches)):
            yield loaded.batch, loaded.unreadable

    def close(self) -> None:
        """End the workers."""
        self._readers.close()


def _open_readers(batches: TrainingBatches | EvaluationBatches, workers: int) -> Readers[TimedBatch]:
    dataset = batches.dataset
    return Readers(partial(_read_timed, batches), workers, dataset.settings.threads, dataset.name)


def open_training(
    dataset: Dataset,
    seed: int,
    batch_size: int,
    first: int,
    last: int,
    rank: int = 0,
    world_size: int = 1,
    dropout_masks: Sequence[DropoutMask] = (),
    num_workers: int | None = None,
    loader: str | None = None,
) -> Stream:
    """Read the TrainingBatches first .. last - 1.

    Args:
        num_workers: Processes that read ahead; None for those of the settings.
        loader: see data/loaders; None for that of the settings.
    """
    loader = _installed_loader(dataset, loader)
    batches = TrainingBatches(dataset, seed, batch_size, rank, world_size, dropout_masks, loader)
    return Stream(batches, first, last, _workers(dataset, num_workers))


def open_evaluation(
    dataset: Dataset, seed: int, batch_size: int, rank: int = 0, world_size: int = 1, loader: str | None = None
) -> Stream:
    """Read all EvaluationBatches.

    Args:
        loader: see data/loaders; None for that of the settings.
    """
    batches = EvaluationBatches(dataset, seed, batch_size, rank, world_size, _installed_loader(dataset, loader))
    return Stream(batches, 0, len(batches), _workers(dataset, None))


def auto_workers(cores: float, threads: int) -> int:
    """Return the number of processes for data.workers=auto: their threads fill all cores but one."""
    return max(1, min(round((cores - 1) / threads), MAX_WORKERS))


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


def training_samples(
    dataset: Dataset, seed: int, positions: Sequence[int], loader: Loader
) -> tuple[list[PlannedSample], list[UnreadableSample]]:
    """Read the samples at some positions of the run.

    Returns:
        The samples, and those that could not be read, whose replacements are among the samples.
    """
    return _read_rows(dataset, seed, "augment", positions, loader, partial(_read_or_replace, dataset, seed))


def mixed_samples(
    dataset: Dataset, seed: int, positions: Sequence[int], loader: Loader
) -> tuple[list[PlannedSample], list[UnreadableSample]]:
    """Read the samples at some positions of the run, mixed with their neighbors (data/mixing.py).

    Returns:
        As training_samples. A neighbor that could not be read is reported where its position is read.
    """
    samples, unreadable = training_samples(dataset, seed, positions, loader)
    others = [mixing.neighbor(position) for position in positions if mixing.neighbor(position) not in positions]
    neighbors, _ = training_samples(dataset, seed, others, loader)
    by_position = dict(zip([*positions, *others], [*samples, *neighbors]))
    classes = len(dataset.classes)
    return mixing.mix_samples(dataset.settings, classes, seed, positions, by_position), unreadable


def evaluation_samples(
    dataset: Dataset, seed: int, indices: Sequence[int], loader: Loader
) -> tuple[list[PlannedSample], list[UnreadableSample]]:
    """Read samples of an evaluation by index; fill values stand for those that cannot be read."""
    return _read_rows(dataset, seed, "evaluate", indices, loader, partial(_read_or_fill, dataset))


def _read_rows(
    dataset: Dataset, seed: int, purpose: str, numbers: Sequence[int], loader: Loader, read_row: Callable[..., _Row]
) -> tuple[list[PlannedSample], list[UnreadableSample]]:
    """Read samples by their numbers; those that DALI cannot decode are read again by the reference loader."""
    read = loaders.reader(dataset, loader)
    rows = [read_row(read, n, rng) for n, rng in zip(numbers, order.generators(seed, purpose, numbers))]
    for at, reason in loaders.decode([row.sample for row in rows], loader).items():
        warnings.warn(
            f"data.loader: the reference loader reads {dataset.name(rows[at].index)}, which DALI cannot decode "
            f"({reason})",
            stacklevel=1,
        )
        rows[at] = read_row(dataset.sample, numbers[at], order.generator(seed, purpose, numbers[at]))
    return [row.sample for row in rows], [failure for row in rows for failure in row.failures]


def _read_or_replace(dataset: Dataset, seed: int, read: ReadSample, position: int, rng: np.random.Generator) -> _Row:
    """Return the sample at a position of the run, or the next readable one."""
    size = len(dataset)
    epoch, first = order.locate(seed, size, position, getattr(dataset, "balance", None))
    failures: list[tuple[str, str]] = []
    for offset in range(min(MAX_REPLACEMENTS, size)):
        index = (first + offset) % size
        readers.reading(index)
        try:
            sample = read(index, order.generator(seed, "augment", position) if failures else rng)
        except BadSample as error:
            failures.append((dataset.name(index), str(error)))
            continue
        return _Row(sample, index, [UnreadableSample(epoch, name, why, dataset.name(index)) for name, why in failures])
    reasons = "\n".join(f"  {name}: {reason}" for name, reason in failures)
    raise UnreadableData(
        f"{len(failures)} samples in a row cannot be read; check data.root and these files:\n{reasons}",
        unreadable=dict(failures),
    )


def _read_or_fill(dataset: Dataset, read: ReadSample, index: int, rng: np.random.Generator) -> _Row:
    readers.reading(index)
    try:
        return _Row(read(index, rng), index, [])
    except BadSample as error:
        return _Row(_missing_sample(dataset), index, [UnreadableSample(0, dataset.name(index), str(error), None)])


def _read_timed(batches: Callable[[int], LoadedBatch], number: int) -> TimedBatch:
    with measure() as seconds:
        batch, unreadable = batches(number)
    return TimedBatch(batch, unreadable, seconds, time.monotonic())


def _workers(dataset: Dataset, given: int | None) -> int:
    setting = dataset.settings.workers if given is None else given
    if setting != "auto":
        return setting
    return auto_workers(host.core_share([host.cores()], 0, host.cpu_quota()), dataset.settings.threads)


def _installed_loader(dataset: Dataset, given: str | None) -> str:
    """Return the loader that was given or else that of the settings. Raises UserError if it is not installed."""
    loader = given or dataset.settings.loader
    if loader == "auto":
        return "reference"
    loaders.require(loader)
    return loader


def _collate(samples: Sequence[PlannedSample], batch_size: int) -> Batch:
    with stage(COLLATE):
        return pack(samples, batch_size)


def _missing_sample(dataset: Dataset) -> PlannedSample:
    return {field.name: np.full(field.shape, field.missing, field.dtype) for field in dataset.fields}
