"""Samples that DALI cannot decode: the reference loader reads them, and only them.

So the pixels of a sample do not depend on the batch that it is in, nor on the number of ranks.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from zoo.data.loaders.dali_graph import Failure
from zoo.data.pending import Pending, PlannedSample

if TYPE_CHECKING:
    from zoo.data.stream import Dataset

Report = TypeVar("Report")
ReadSample = Callable[[int, np.random.Generator], PlannedSample]
ReadSamples = Callable[[ReadSample], tuple[list[PlannedSample], Report]]
DecodeSamples = Callable[[Sequence[PlannedSample]], object]  # raises Failure


def read_decodable(
    dataset: "Dataset", read: ReadSamples[Report], decode: DecodeSamples
) -> tuple[list[PlannedSample], Report]:
    """Read the samples of a batch, planned, and decode them; those that fail are read by the reference loader.

    Args:
        dataset: the split.
        read: reads the samples by the function that it is given.
        decode: decodes what is pending in samples, in place or only to see whether it can be decoded.

    Returns:
        What `read` returns at last.
    """
    refused: set[int] = set()
    while True:
        samples, report, indices = _read(dataset, read, refused)
        failures = _failures(samples, decode)
        if not failures:
            return samples, report
        for sample, error in failures:
            index = indices[id(sample)]
            refused.add(index)
            warnings.warn(
                f"data.loader: the reference loader reads {dataset.name(index)}, which DALI cannot decode ({error})",
                stacklevel=1,
            )


def _read(
    dataset: "Dataset", read: ReadSamples[Report], refused: set[int]
) -> tuple[list[PlannedSample], Report, dict[int, int]]:
    """Read the samples of a batch; also return the index in the data set of each, by the id of the sample."""
    indices: dict[int, int] = {}

    def read_sample(index: int, rng: np.random.Generator) -> PlannedSample:
        sample: PlannedSample = {**dataset.sample(index, rng)} if index in refused else dataset.plan(index, rng)
        indices[id(sample)] = index
        return sample

    samples, report = read(read_sample)
    return samples, report, indices


def _failures(samples: Sequence[PlannedSample], decode: DecodeSamples) -> list[tuple[PlannedSample, Failure]]:
    """Decode samples, one by one if they cannot be decoded together; return those that fail."""
    pending = [sample for sample in samples if any(isinstance(value, Pending) for value in sample.values())]
    try:
        if pending:
            decode(pending)
        return []
    except Failure:
        pass
    failures = []
    for sample in pending:
        try:
            decode([sample])
        except Failure as error:
            failures.append((sample, error))
    return failures
