"""Some training samples, shown as an evaluation shows samples: what the metric of the training data is taken over."""

import numpy as np

from zoo.data.errors import UserError
from zoo.data.pending import PlannedSample
from zoo.data.stream import Dataset


class TrainingSubset:
    """Evenly spaced samples of a training split.

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

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return self._split.sample(int(self._indices[index]), rng)

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        return self._split.plan(int(self._indices[index]), rng)
