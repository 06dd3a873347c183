"""What decodes the images of a batch.

- reference: a data set's own `sample`.
- dali: NVIDIA DALI, on a CPU where the batch is read.
- encoded: nothing yet. The batch is packed (packing.py), for DALI to decode it on the device (dali_device.py).
- a function instead of a name: nothing yet as well, but all samples pass it, which raises Failure for those that DALI
  cannot decode on the device.

The reference loader reads the samples that DALI cannot decode, or might fail on (soundness.py).
"""

from typing import TYPE_CHECKING

import numpy as np

from zoo.data.loaders import soundness
from zoo.data.loaders.fallback import DecodeSamples, ReadSample, ReadSamples, Report, read_decodable
from zoo.data.pending import PlannedSample

if TYPE_CHECKING:
    from zoo.data.stream import Dataset

__all__ = ["DALI", "Loader", "ReadSample", "Sample", "is_installed", "read_samples", "require"]

DALI = ("dali", "encoded")  # loaders that need it

Loader = str | DecodeSamples
Sample = dict[str, np.ndarray]


def is_installed(loader: str) -> bool:
    """Return whether a loader is installed."""
    if loader in DALI:
        from zoo.data.loaders import dali

        return dali.is_installed()
    return True


def require(loader: str) -> None:
    """Check that a loader is installed. Raises UserError."""
    if loader in DALI:
        from zoo.data.loaders import dali

        dali.require()


def read_samples(dataset: "Dataset", loader: Loader, read: ReadSamples[Report]) -> tuple[list[PlannedSample], Report]:
    """Read the samples of a batch.

    Args:
        dataset: the split.
        loader: one of those above.
        read: reads the samples by the function that it is given, a method of the split.

    Returns:
        What `read` returns. All images are decoded by the loaders reference and dali; those on which DALI fails, by the
        reference loader.
    """
    if loader == "reference":
        return read(dataset.sample)  # type: ignore[arg-type]  # a sample is a planned one without pending images
    if loader == "encoded":
        return read_decodable(dataset, read, soundness.check)
    if callable(loader):
        return read_decodable(dataset, read, loader)
    from zoo.data.loaders import dali

    return read_decodable(dataset, read, dali.decode)
