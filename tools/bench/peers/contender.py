"""What is timed: a way to read batches of some files, in this thread and by worker processes."""

import itertools
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from zoo.bench.bare import loading as bare_loops
from zoo.data import loaders, order
from zoo.data.batch import collate
from zoo.data.stream import open_training, training_samples

WORKERS = 2  # processes that read, each with one thread
OURS, BARE, DALI = "this loader", "bare loop", "DALI"
NAMES = {"reference": OURS, "dali": DALI}
ENDLESS = 1 << 40  # batches


class Contender(NamedTuple):
    """A loader on some files.

    Attributes:
        files: what is read, such as `JPEG frames`.
        name: of the loader.
        read: reads the batch of a number in this thread.
        stream: opens endless batches that WORKERS processes read.
    """

    files: str
    name: str
    read: Callable[[int], Any]
    stream: Callable[[], Any]


class MapStyle(NamedTuple):
    """A map-style dataset and a collate function, as torch's DataLoader takes them."""

    dataset: Any
    collate: Callable[[list], Any]


def ours(files: str, split: Any, batch: int, loader: str = "reference") -> Contender:
    """Return this project's stream, with data.loader `reference` or `dali`.

    Raises:
        UserError: the loader is not installed.
    """
    loaders.require(loader)

    def read(number: int) -> None:
        samples, _ = training_samples(split, 0, range(number * batch, (number + 1) * batch), loader)
        collate(samples, batch)  # type: ignore[arg-type]  # nothing is pending any more

    def stream() -> Any:
        return open_training(split, 0, batch, 0, ENDLESS, num_workers=WORKERS, loader=loader)

    return Contender(files, NAMES[loader], read, stream)


def bare(files: str, split: Any, batch: int) -> Contender:
    """Return the loop of the libraries alone, in torch's DataLoader where processes read."""
    from torch.utils.data import default_collate

    return map_style(files, BARE, MapStyle(_BareDataset(split), default_collate), batch)


def map_style(files: str, name: str, opened: MapStyle, batch: int) -> Contender:
    """Return a loader that torch's DataLoader runs, with the indices that this project's loader reads."""
    from torch.utils.data import DataLoader

    size = len(opened.dataset)

    def indices(start: int) -> Iterator[int]:
        return (order.locate(0, size, position)[1] for position in itertools.count(start))

    def read(number: int) -> None:
        chosen = itertools.islice(indices(number * batch), batch)
        opened.collate([opened.dataset[index] for index in chosen])

    def stream() -> Generator[Any, None, None]:
        sampler: Any = _Indices(indices)
        batches = iter(
            DataLoader(opened.dataset, batch, sampler=sampler, num_workers=WORKERS, collate_fn=opened.collate)
        )
        yield from batches

    return Contender(files, name, read, stream)


class _Indices:
    """Endless sampler."""

    def __init__(self, indices: Callable[[int], Iterator[int]]):
        self.indices = indices

    def __iter__(self) -> Iterator[int]:
        return self.indices(0)


class _BareDataset:
    """A bare loop as a map-style dataset. Each process has a reader, and so open files, of its own."""

    def __init__(self, split: Any):
        self.split, self.process = split, 0
        self.read: bare_loops.Read | None = None

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> Any:
        if self.process != os.getpid():
            self.process, self.read = os.getpid(), bare_loops.reader(self.split)
        assert self.read is not None
        return self.read(index)
