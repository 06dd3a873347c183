"""What decodes the images of a batch.

- reference: a data set's own `sample`.
- dali: NVIDIA DALI, on a CPU where the batch is read.
- encoded: nothing yet. The batch is packed (packing.py), for DALI to decode it on the device (dali_device.py).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from data.pending import PlannedSample

DALI = ("dali", "encoded")  # loaders that need it

Report = TypeVar("Report")
Sample = dict[str, np.ndarray]
ReadSample = Callable[[int, np.random.Generator], PlannedSample]
ReadSamples = Callable[[ReadSample], tuple[list[PlannedSample], Report]]


def is_installed(loader: str) -> bool:
    """Return whether a loader is installed."""
    if loader in DALI:
        from data.loaders import dali

        return dali.is_installed()
    return True


def require(loader: str) -> None:
    """Check that a loader is installed. Raises UserError."""
    if loader in DALI:
        from data.loaders import dali

        dali.require()


def read_samples(dataset: Any, loader: str, read: ReadSamples[Report]) -> tuple[list[PlannedSample], Report]:
    """Read the samples of a batch.

    Args:
        dataset: the split.
        loader: one of those above.
        read: reads the samples by the function that it is given, a method of the split.

    Returns:
        What `read` returns, with all images decoded unless the loader is `encoded`.
    """
    if loader == "encoded":
        return read(dataset.plan)
    if loader == "dali":
        from data.loaders import dali

        samples, report = read(dataset.plan)
        if dali.decode(samples):
            return samples, report
    return read(dataset.sample)
