"""Loaders, which decode the images of a batch.

- reference: a data set's own `sample`.
- dali: NVIDIA DALI, on a CPU where the batch is read.
- encoded: nothing yet. The batch is packed, for DALI to decode it on the device (packed.py).
- a function instead of a name: nothing yet as well, but all samples pass it, which raises Failure for those that DALI
  cannot decode on the device.

For DALI, a data set reads and draws its samples (`plan`), and DALI decodes, crops, resizes and mirrors. What it cannot
do as the reference loader does, the data set has decoded itself: videos, masks, CMYK, EXIF orientation, JPEG files
decoded at a fraction of their size, photometric distortion. (DALI's colors of videos differ by 1.5 of 255 on average,
since it interpolates chroma in another way, and it ignores their color matrix.) The samples that DALI cannot decode, or
might fail on (soundness.py), are left to the reference loader, and only them: so the pixels of a sample do not depend
on the batch that it is in, nor on the number of ranks.
"""

import threading
from collections.abc import Callable, Sequence

import numpy as np

from zoo.data import extras
from zoo.data.dataset import Dataset, Pending, PlannedSample
from zoo.data.errors import Option, UserError
from zoo.data.loaders.packed import Failure, pack
from zoo.data.stages import DECODE, stage

DALI = ("dali", "encoded")  # loaders that need it

DecodeSamples = Callable[[Sequence[PlannedSample]], object]  # in place, or only to see whether they can be decoded
Loader = str | DecodeSamples


_of_thread = threading.local()  # pipelines of one thread each, because the stream reads several batches at once


def is_installed(loader: str) -> bool:
    return loader not in DALI or extras.is_installed("nvidia.dali")


def require(loader: str) -> None:
    """Check that a loader is installed. Raises UserError."""
    if not is_installed(loader):
        raise UserError(
            f"data.loader: dali needs NVIDIA DALI, which is not installed; {extras.install_command('dali')}, or set ",
            Option("data.loader", "reference"),
        )


def reader(dataset: Dataset, loader: Loader) -> Callable[[int, np.random.Generator], PlannedSample]:
    """Return the method of a data set that reads a sample for a loader."""
    return dataset.sample if loader == "reference" else dataset.plan  # type: ignore[return-value]  # none is pending


def decode(samples: Sequence[PlannedSample], loader: Loader) -> dict[int, str]:
    """Decode what is pending in samples, in place.

    Returns:
        The rows that DALI cannot decode and that have not changed, with the reasons.
    """
    if loader == "reference":
        return {}
    from zoo.data.loaders import soundness  # as DALI, which the reference loader does without

    function = loader if callable(loader) else {"encoded": soundness.check, "dali": decode_here}[loader]
    rows = [row for row, sample in enumerate(samples) if any(isinstance(value, Pending) for value in sample.values())]
    failures: dict[int, str] = {}
    try:
        if rows:
            function([samples[row] for row in rows])
        return failures
    except Failure:
        pass
    for row in rows:
        try:
            function([samples[row]])
        except Failure as error:
            failures[row] = str(error)
    return failures


@stage(DECODE)
def decode_here(samples: Sequence[PlannedSample]) -> None:
    """Replace what is pending in samples by arrays that DALI decodes on a CPU, or raise Failure and change none."""
    from zoo.data.loaders import soundness
    from zoo.data.loaders.dali_graph import DeviceDecoder

    soundness.check(samples)
    if not hasattr(_of_thread, "decoder"):
        _of_thread.decoder = DeviceDecoder(None, threads=1)
    _, decoded = _of_thread.decoder.decode(pack(samples, len(samples)))
    for name, images in decoded.items():
        for sample, array in zip(samples, images.on_host()):
            sample[name] = array
