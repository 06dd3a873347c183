"""Streams of batches from a data set, read ahead by threads or processes (data/readers.py).

One element of a stream is one batch of one rank, a pure function of its number. So the number of workers cannot change
the order, and a resumed run starts at any batch without a replay.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from zoo.data import loaders, mixing, order, reader_board, readers, worker_count
from zoo.data.batch import Allocate, Batch, DropoutMask, Field
from zoo.data.errors import BadSample, UnreadableData
from zoo.data.loaders import Loader, ReadSample, Sample, packing
from zoo.data.pending import PlannedSample
from zoo.data.settings import LoaderSettings
from zoo.data.stages import COLLATE, Seconds, measure, stage, total

MAX_REPLACEMENTS = 20  # samples tried at one position, the unreadable one included


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

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        """Read and draw one sample as `sample` does; images may be left for the loader to decode.

        Raises:
            BadSample: The sample cannot be read.
        """

    # A split of files also has `inventory(deep)`, which returns an Inventory (data/audit/inventory.py).


@dataclass(frozen=True)
class UnreadableSample:
    """A sample that could not be read, and the name of its replacement (None in an evaluation)."""

    epoch: int
    name: str
    reason: str
    replaced_by: str | None


LoadedBatch = tuple[Batch, list[UnreadableSample]]
ReadBatch = Callable[[int, Allocate], LoadedBatch]  # of the batch of a number


class TimedBatch(NamedTuple):
    """A batch, the seconds that reading it took by stage, and when (time.monotonic, the same in all processes)."""

    batch: Batch
    unreadable: list[UnreadableSample]
    seconds: Seconds
    finished: float


class ReadTimes(NamedTuple):
    """Seconds that reading took since the start of a stream.

    Attributes:
        samples: read.
        stages: of reading them, added up over all reading threads.
        waiting: of the consumer, for batches that were still being read.
        transport: of the consumer, for batches that had been read: from the worker to this process.
    """

    samples: int = 0
    stages: Seconds = total([])
    waiting: float = 0.0
    transport: float = 0.0

    def add(self, loaded: TimedBatch, requested: float, arrived: float) -> "ReadTimes":
        """Add a batch that was requested and arrived at these times."""
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
        threads: reading threads per process.
        times: what reading took so far.
    """

    def __init__(
        self, read: ReadBatch, first: int, last: int, workers: int, threads: int, memory_cap_gb: float | None = None
    ):
        self.workers, self.threads = workers, threads
        self.times = ReadTimes()

        def read_timed(number: int, allocate: Allocate) -> TimedBatch:
            with measure() as seconds:
                batch, unreadable = read(number, allocate)
            return TimedBatch(batch, unreadable, seconds, time.monotonic())

        cap = None if memory_cap_gb is None else memory_cap_gb * 1e9
        self._batches = readers.read_ahead(read_timed, first, last, workers, threads, cap)

    def __next__(self) -> LoadedBatch:
        requested = time.monotonic()
        loaded = TimedBatch(*next(self._batches))
        self.times = self.times.add(loaded, requested, time.monotonic())
        return loaded.batch, loaded.unreadable

    def close(self) -> None:
        """Stop reading, and end the workers, unless a thread that waits for a batch just now does it."""
        with suppress(ValueError):  # the generator is being executed
            self._batches.close()


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
    """Read batches first .. last - 1 of this rank from the endless shuffled sequence of the run.

    Batch m of rank r holds `batch_size` consecutive positions from (m * world_size + r) * batch_size on.

    Args:
        batch_size: Samples of one rank.
        dropout_masks: Masks to draw with every sample; each becomes an array of the batch.
        num_workers: Processes that read ahead; None for those of the settings.
        loader: see data/loaders; None for that of the settings.

    Raises:
        UserError: MAX_REPLACEMENTS samples in a row cannot be read, or the loader is not installed.
    """
    loader = _installed_loader(dataset, loader)
    read = training_reader(dataset, seed, batch_size, rank, world_size, dropout_masks, loader)
    s, workers = dataset.settings, _workers(dataset, batch_size, num_workers)
    return Stream(read, first, last, workers, s.threads, s.worker_memory_gb)


def training_reader(
    dataset: Dataset,
    seed: int,
    batch_size: int,
    rank: int,
    world_size: int,
    dropout_masks: Sequence[DropoutMask],
    loader: Loader,
) -> ReadBatch:
    """Return the function that reads a training batch by its number."""

    read_positions = mixed_samples if mixing.is_on(dataset.settings) else training_samples

    def read(number: int, allocate: Allocate) -> LoadedBatch:
        start = (number * world_size + rank) * batch_size
        positions = range(start, start + batch_size)
        samples, unreadable = read_positions(dataset, seed, positions, loader)
        for mask in dropout_masks:
            for sample, rng in zip(samples, order.generators(seed, mask.name, positions)):
                sample[mask.name] = mask.sample(rng)
        return _collate(samples, batch_size, allocate), unreadable

    return read


def open_evaluation(
    dataset: Dataset, seed: int, batch_size: int, rank: int = 0, world_size: int = 1, loader: str | None = None
) -> Stream:
    """Read every sample exactly once over all ranks.

    All ranks get the same number of batches; padding is 0 in the array `valid`.

    Args:
        loader: see data/loaders; None for that of the settings.
    """
    last = evaluation_batches(dataset, batch_size, world_size)
    loader = _installed_loader(dataset, loader)
    read = evaluation_reader(dataset, seed, batch_size, rank, world_size, loader)
    s, workers = dataset.settings, _workers(dataset, batch_size, None)
    return Stream(read, 0, last, workers, s.threads, s.worker_memory_gb)


def evaluation_batches(dataset: Dataset, batch_size: int, world_size: int) -> int:
    """Return the number of batches of an evaluation, which is the same on every rank."""
    return -(-len(dataset) // (batch_size * world_size))


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

    def read(read_sample: ReadSample) -> tuple[list[PlannedSample], list[UnreadableSample]]:
        samples, unreadable = [], []
        size = len(dataset)
        for position, rng in zip(positions, order.generators(seed, "augment", positions)):
            _, index = order.locate(seed, size, position)
            reader_board.begin(dataset.name, index)
            try:
                samples.append(read_sample(index, rng))
            except BadSample as error:
                replacement, failures = _replacement(dataset, read_sample, seed, position, str(error))
                samples.append(replacement)
                unreadable += failures
        return samples, unreadable

    return loaders.read_samples(dataset, loader, read)


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


def _replacement(
    dataset: Dataset, read_sample: ReadSample, seed: int, position: int, reason: str
) -> tuple[PlannedSample, list[UnreadableSample]]:
    """Return the first readable sample after the one at a position, which is unreadable for this reason."""
    size = len(dataset)
    epoch, index = order.locate(seed, size, position)
    failures = [(dataset.name(index), reason)]
    for offset in range(1, min(MAX_REPLACEMENTS, size)):
        candidate = (index + offset) % size
        reader_board.begin(dataset.name, candidate)
        try:
            sample = read_sample(candidate, order.generator(seed, "augment", position))
        except BadSample as error:
            failures.append((dataset.name(candidate), str(error)))
            continue
        return sample, [UnreadableSample(epoch, name, why, dataset.name(candidate)) for name, why in failures]
    reasons = "\n".join(f"  {name}: {reason}" for name, reason in failures)
    raise UnreadableData(
        f"{len(failures)} samples in a row cannot be read; check data.root and these files:\n{reasons}", dict(failures)
    )


def _workers(dataset: Dataset, batch_size: int, given: int | None) -> int:
    if given is not None:
        return given
    setting = dataset.settings.workers
    return worker_count.choose_here(dataset, batch_size) if setting == "auto" else setting


def _installed_loader(dataset: Dataset, given: str | None) -> str:
    """Return the loader that was given or else that of the settings. Raises UserError if it is not installed."""
    loader = given or dataset.settings.loader
    if loader == "auto":
        loader = "reference"
    loaders.require(loader)
    return loader


def evaluation_reader(
    dataset: Dataset, seed: int, batch_size: int, rank: int, world_size: int, loader: Loader | None = None
) -> ReadBatch:
    """Return the function that reads a batch of an evaluation by its number.

    Args:
        loader: see data/loaders; None for that of the settings.

    Raises:
        UserError: The loader is not installed.
    """
    load = loader if callable(loader) else _installed_loader(dataset, loader)

    def read(number: int, allocate: Allocate) -> LoadedBatch:
        start = (number * world_size + rank) * batch_size
        samples, unreadable = _evaluation_samples(
            dataset, seed, range(start, min(start + batch_size, len(dataset))), load
        )
        if samples:
            return _collate(samples, batch_size, allocate), unreadable
        padding = _collate([{**_missing_sample(dataset)}], batch_size, allocate)
        padding["valid"][:] = 0  # this rank has no sample left, but must take part in the step
        return padding, unreadable

    return read


def _evaluation_samples(
    dataset: Dataset, seed: int, indices: Sequence[int], loader: Loader
) -> tuple[list[PlannedSample], list[UnreadableSample]]:
    """Read samples of an evaluation by index; fill values stand for those that cannot be read."""

    def read(read_sample: ReadSample) -> tuple[list[PlannedSample], list[UnreadableSample]]:
        samples: list[PlannedSample] = []
        unreadable = []
        for index, rng in zip(indices, order.generators(seed, "evaluate", indices)):
            reader_board.begin(dataset.name, index)
            try:
                samples.append(read_sample(index, rng))
            except BadSample as error:
                samples.append({**_missing_sample(dataset)})
                unreadable.append(UnreadableSample(0, dataset.name(index), str(error), None))
        return samples, unreadable

    return loaders.read_samples(dataset, loader, read)


def _collate(samples: Sequence[PlannedSample], batch_size: int, allocate: Allocate) -> Batch:
    with stage(COLLATE):
        return packing.pack(samples, batch_size, allocate)


def _missing_sample(dataset: Dataset) -> Sample:
    return {field.name: np.full(field.shape, field.missing, field.dtype) for field in dataset.fields}
