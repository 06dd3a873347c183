"""The material for images of an evaluation: some samples, their predictions and the metric's state."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data import order
from zoo.data.batch import IGNORE_INDEX, Batch
from zoo.data.dataset import Dataset
from zoo.data.errors import BadSample
from zoo.tasks import TaskMetric

Prediction = tuple[int, np.ndarray]  # index of a sample in its split, outputs of its views (V, ...)
SampleLoss = Callable[[np.ndarray, np.ndarray], float]  # of outputs (V, ...) and label; 0 if nothing is wrong


class Evaluation(NamedTuple):
    """An evaluation that is over.

    Attributes:
        state: of the metric, summed over ranks.
        predictions: of some samples of this rank, see Recorder.
    """

    dataset: Dataset
    seed: int
    state: Mapping[str, np.ndarray]
    predictions: Sequence[Prediction]

    def sample(self, index: int) -> dict[str, np.ndarray] | None:
        """Read a sample again, as the evaluation has read it; None if it cannot be read."""
        try:
            return self.dataset.sample(index, order.generator(self.seed, "evaluate", index))
        except BadSample:
            return None

    def image(self, sample: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the model's input of a sample: its first view, uint8 (..., H, W, 3)."""
        field = self.dataset.fields[0]
        return sample[field.name][0] if self.dataset.views > 1 else sample[field.name]


def loss_of_mistake(logits: np.ndarray, label: np.ndarray) -> float:
    """Return the cross-entropy of the logits of a sample's views (V, K), 0 where its class is predicted."""
    mean = logits.astype(np.float64).mean(0)
    if label < 0 or mean.argmax() == label:
        return 0.0
    return float(np.logaddexp.reduce(mean) - mean[label])


def loss_of_labels(logits: np.ndarray, target: np.ndarray) -> float:
    """Return the binary cross-entropy of the logits of a sample's views (V, K), 0 where all classes are right."""
    mean = logits.astype(np.float64).mean(0)[: len(target)]
    if (target < 0).any() or ((mean > 0) == (target > 0)).all():
        return 0.0
    return float((np.logaddexp(0, mean) - target * mean).mean())


def wrong_pixels(predicted: np.ndarray, label: np.ndarray) -> float:
    """Return the share of the labelled pixels of a scene whose predicted class (1, H, W) is wrong."""
    labelled = label != IGNORE_INDEX
    return float((predicted[0] != label)[labelled].mean()) if labelled.any() else 0.0


class Recorder:
    """Metric that keeps some predictions, and otherwise is the metric of the task; see zoo.tasks.TaskMetric.

    The samples are evenly spaced in those of rank 0, because many validation sets are sorted by class. They are the
    same in every evaluation with as many ranks and samples per batch.
    """

    def __init__(
        self, metric: TaskMetric, samples: int, world_size: int, count: int, sample_loss: SampleLoss | None = None
    ):
        """Keep nothing yet.

        Args:
            world_size: number of ranks; this one is rank 0.
            sample_loss: by which as many of the worst are kept, too; None for none of them.
        """
        self.predictions: list[Prediction] = []
        self.summed: Mapping[str, np.ndarray] = {}  # the state over all ranks, when the evaluation is over
        self._metric = metric
        self._samples = samples
        self._world_size = world_size
        self._count = count
        self._loss, self._worst = sample_loss, list[tuple[float, int, np.ndarray]]()  # a heap
        self._batches = 0  # so far
        self.state = metric.state

    def update(self, outputs: np.ndarray, batch: Batch) -> None:
        rows = len(batch["valid"])
        views, first = len(outputs) // rows, self._batches * rows
        for position in _spread(_share(self._samples, rows, self._world_size), self._count):
            if first <= position < first + rows:
                row = position - first
                index = first * self._world_size + row  # see zoo.data.stream.EvaluationBatches
                self.predictions.append((index, outputs[row * views : (row + 1) * views].copy()))
        for row in np.flatnonzero(batch["valid"]).tolist():
            own = outputs[row * views : (row + 1) * views]
            if self._loss and (loss := self._loss(own, batch["label"][row])):
                keep = heapq.heappush if len(self._worst) < self._count else heapq.heappushpop
                keep(self._worst, (loss, -(first * self._world_size + row), own.copy()))
        self._batches += 1
        self._metric.update(outputs, batch)
        self.state = self._metric.state

    @property
    def worst(self) -> list[Prediction]:
        return [(-index, outputs) for _, index, outputs in sorted(self._worst, key=lambda kept: kept[:2])[::-1]]

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Compute the metrics from a state that was summed over ranks."""
        self.summed = state
        return self._metric.result(state)


def _share(samples: int, batch_size: int, world_size: int) -> int:
    """Return the number of samples that rank 0 evaluates, which come first in each round of batches."""
    rounds, rest = divmod(samples, batch_size * world_size)
    return rounds * batch_size + min(rest, batch_size)


def _spread(length: int, count: int) -> list[int]:
    """Return at most `count` evenly spaced numbers of 0 to length - 1."""
    count = min(count, length)
    return [number * length // count for number in range(count)]
