"""What decodes the images of a batch: the reference loader (a data set's own `sample`) or NVIDIA DALI."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from data.pending import PlannedSample

Report = TypeVar("Report")
Sample = dict[str, np.ndarray]
ReadSample = Callable[[int, np.random.Generator], PlannedSample]
ReadSamples = Callable[[ReadSample], tuple[list[PlannedSample], Report]]


def is_installed(loader: str) -> bool:
    """Return whether a loader is installed."""
    if loader == "dali":
        from data.loaders import dali

        return dali.is_installed()
    return True


def require(loader: str) -> None:
    """Check that a loader is installed. Raises UserError."""
    if loader == "dali":
        from data.loaders import dali

        dali.require()


def read_samples(dataset: Any, loader: str, read: ReadSamples[Report]) -> tuple[list[Sample], Report]:
    """Read the samples of a batch.

    Args:
        dataset: the split.
        loader: reference or dali.
        read: reads the samples by the function that it is given, a method of the split.

    Returns:
        What `read` returns, with all images decoded.
    """
    if loader == "dali":
        from data.loaders import dali

        samples, report = read(dataset.plan)
        if dali.decode(samples):
            return samples, report  # type: ignore[return-value]  # nothing is pending any more
    samples, report = read(dataset.sample)
    return samples, report  # type: ignore[return-value]  # `sample` leaves nothing pending
