"""One split of a data set: the interface between data sets and what reads them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from zoo.data.batch import Field
from zoo.data.errors import UserError
from zoo.data.settings import LoaderSettings
from zoo.data.transforms.geometry import Geometry


class Pending(NamedTuple):
    """The encoded images of an array, which have been read and drawn, for a loader to decode.

    Attributes:
        files: ordinary JPEG files, or PNG files of 8-bit RGB, stored upright.
        geometry: from an image to its part of the array.
        stacked: whether the array has an axis for the files in front; otherwise there is one file.
    """

    files: tuple[bytes, ...]
    geometry: Geometry
    stacked: bool = False


Sample = dict[str, np.ndarray]
PlannedSample = dict[str, np.ndarray | Pending]


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

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
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


class TrainingSubset:
    """Evenly spaced samples of a training split, shown as an evaluation shows samples.

    Args:
        split: the training split. Its `for_evaluation()`, if it has one, returns the same samples as an evaluation
            shows them, or None.
        count: samples; those of the split if it has fewer.

    Raises:
        UserError: the samples cannot be evaluated, such as faces, which are no pairs.
    """

    def __init__(self, split: Dataset, count: int):
        shown: Dataset | None = getattr(split, "for_evaluation", lambda: None)()
        if shown is None:
            raise UserError(
                "train.eval_train_samples: the training samples of this data set cannot be evaluated (faces are no "
                "pairs to verify); leave it out"
            )
        self._split = shown
        self._indices = np.arange(min(count, len(split))) * len(split) // min(count, len(split))
        self.settings, self.fields = shown.settings, shown.fields
        self.classes, self.views = shown.classes, shown.views
        self.notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._indices)

    def name(self, index: int) -> str:
        return self._split.name(int(self._indices[index]))

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        return self._split.sample(int(self._indices[index]), rng)

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        return self._split.plan(int(self._indices[index]), rng)
