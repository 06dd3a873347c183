"""Loader for data.loader=auto: the one that takes less CPU time for the first samples of the run.

N workers on N cores read N / (CPU time per sample) samples per second. Waiting for files is not counted: it is the same
for both loaders, and other workers use the core meanwhile. Nor is waiting for a core, which depends on what else runs.
Where DALI decodes on a GPU, what remains for the cores is counted, and the time of the GPU is not.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from zoo.data import loaders, order
from zoo.data.errors import BadSample
from zoo.data.loaders import Loader, ReadSample
from zoo.data.loaders.fallback import DecodeSamples
from zoo.data.pending import Pending, PlannedSample

if TYPE_CHECKING:
    from zoo.data.stream import Dataset

SAMPLES = 100  # that each loader reads
MAX_SECONDS, MIN_SAMPLES = 2.0, 10  # per loader; no more are read after so long, but so many always
MAX_CHUNK = 25  # samples that a loader reads before it is the other one's turn: a batch, if it is not larger
TIE = 0.05  # below this relative difference the reference loader is taken, whose pixels are equal everywhere


class Measurement(NamedTuple):
    """The first samples of a run, read by both loaders.

    Attributes:
        installed: whether DALI is.
        samples: that were read.
        decodes: whether DALI decodes an image of one of them.
        reference, dali: CPU seconds per sample, over all threads of the decoder; 0 if DALI decodes none.
    """

    installed: bool
    samples: int = 0
    decodes: bool = False
    reference: float = 0.0
    dali: float = 0.0


class Choice(NamedTuple):
    """A loader, and the reason for it."""

    loader: str
    reason: str


def measure(
    dataset: "Dataset",
    seed: int,
    batch_size: int,
    check: DecodeSamples | None = None,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Measurement:
    """Read the first samples of the run by both loaders in turn, chunk by chunk.

    Args:
        batch_size: samples that DALI decodes together in the run; with more of them, a sample takes less time.
        check: decodes planned samples where DALI does so in the training process; None if it does in the workers.
    """
    if not loaders.is_installed("dali"):
        return Measurement(installed=False)
    size = min(batch_size, MAX_CHUNK)
    chunks = [range(start, min(start + size, SAMPLES)) for start in range(0, SAMPLES, size)]
    deadline = clock() + MAX_SECONDS
    for positions in chunks:
        decodes = count_pending(dataset, seed, positions) > 0
        if decodes or (positions.stop >= MIN_SAMPLES and clock() > deadline):
            break
    if not decodes:
        return Measurement(True, positions.stop)
    read = {"reference": partial(_read, "reference"), "dali": partial(_read, check or "dali")}
    pair = list(read)
    for loader in pair:
        read[loader](dataset, seed, positions)  # imports decoders and builds pipelines
    seconds: dict[str, list[float]] = {loader: [] for loader in pair}
    deadline = clock() + len(pair) * MAX_SECONDS
    for positions in chunks:
        for loader in pair:
            start = cpu_clock()
            read[loader](dataset, seed, positions)
            seconds[loader].append((cpu_clock() - start) / len(positions))
        if positions.stop >= MIN_SAMPLES and clock() > deadline:
            break
        pair.reverse()  # the first one to read a file may have to fetch it from the disk
    # The median leaves out chunks in which another pipeline was built.
    return Measurement(True, positions.stop, True, *(statistics.median(seconds[name]) for name in read))


def choose(measurements: Sequence[Measurement]) -> Choice:
    """Return the loader for all ranks, given the measurement of each."""
    if not all(rank.installed for rank in measurements):
        where = " on all hosts" if any(rank.installed for rank in measurements) else ""
        return Choice("reference", f"DALI is not installed{where}")
    samples = f"the first {min(rank.samples for rank in measurements)} samples"
    if not any(rank.decodes for rank in measurements):
        return Choice("reference", f"DALI decodes none of {samples}")
    reference = statistics.fmean(rank.reference for rank in measurements)
    dali = statistics.fmean(rank.dali for rank in measurements)
    if dali < reference * (1 - TIE):
        return Choice("dali", f"{dali * 1e3:.2f} ms per sample, reference {reference * 1e3:.2f}; measured on {samples}")
    tie = f", less than {TIE:.0%} faster" if dali < reference else ""
    costs = f"{reference * 1e3:.2f} ms per sample, DALI {dali * 1e3:.2f}{tie}"
    return Choice("reference", f"{costs}; measured on {samples}")


def count_pending(dataset: "Dataset", seed: int, positions: Sequence[int]) -> int:
    """Return how many samples at these positions of the run have images that DALI decodes."""
    samples = _samples(dataset, dataset.plan, seed, positions)
    return sum(any(isinstance(value, Pending) for value in sample.values()) for sample in samples)


def _read(loader: Loader, dataset: "Dataset", seed: int, positions: Sequence[int]) -> list[PlannedSample]:
    return loaders.read_samples(dataset, loader, lambda read: (_samples(dataset, read, seed, positions), None))[0]


def _samples(dataset: "Dataset", read: ReadSample, seed: int, positions: Sequence[int]) -> list[PlannedSample]:
    samples = []
    for position, rng in zip(positions, order.generators(seed, "augment", positions)):
        _, index = order.locate(seed, len(dataset), position)
        with suppress(BadSample):
            samples.append(read(index, rng))
    return samples
