"""Classification of images and clips: top-1 and top-5 accuracy; the losses are in zoo/losses/classify."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.data.batch import Batch
from zoo.data.dataset import Dataset
from zoo.losses import load_loss
from zoo.losses.classify import Settings as Keys
from zoo.tasks import Forward, Size

PRIMARY = "top1"
MAX_CLASSES = 1000  # of which each has an accuracy of its own in the result, and a row of the confusion matrix


@dataclass(frozen=True)
class Scores:
    """Predictions of a classifier: the model's logits (N, K)."""

    def predict(self, ops: Any, arch: Any, forward: Forward, images: Sequence[Any], size: Size | None) -> Any:
        return forward(images[0])


Settings: Any = load_loss("classify", "cross_entropy")


def output(settings: Keys) -> Scores:
    return Scores()


def protocol(views: str, settings: Keys) -> str:
    """Return the last part of a protocol id, such as 224-of-256."""
    return views


class Metric:
    """Top-1 and top-5 accuracy, by class too, and mean cross-entropy; see zoo.tasks.TaskMetric.

    Up to MAX_CLASSES classes have a confusion matrix, whose rows are labels and whose columns are predictions; its last
    column counts samples without one answer: a tie with the label, NaN, or a class that the data does not have.
    """

    def __init__(self, dataset: Dataset, settings: Keys | None = None):
        self.views, self.classes = dataset.views, dataset.classes
        self.state: dict[str, np.ndarray] = {
            name: np.zeros((), np.float64) for name in ("samples", "top1", "top5", "loss", "labelled")
        }
        count = len(self.classes)
        if count <= MAX_CLASSES:
            self.state["confusion"] = np.zeros((count, count + 1), np.int32)

    def update(self, outputs: np.ndarray, batch: Batch) -> None:
        """Add a batch; the logits of a sample's views are averaged.

        A label of -1 marks an unreadable sample: it counts as a sample that is never correct, and has no loss. A logit
        that is NaN never makes a sample correct; a tie counts against the label.

        Args:
            batch: with `label` (rows,) and `valid` (rows,).
        """
        logits = outputs.astype(np.float64).reshape(-1, self.views, outputs.shape[-1]).mean(1)
        valid = batch["valid"] > 0
        logits, labels = logits[valid], batch["label"][valid]
        labelled = labels >= 0
        rows, targets = np.arange(len(labels)), np.maximum(labels, 0)
        target_logits = logits[rows, targets][:, None]
        rank = (~(logits < target_logits)).sum(1) - 1  # not `>=`, so that NaN counts against the label
        eligible = labelled & ~np.isnan(target_logits[:, 0])
        shifted = logits - logits.max(1, keepdims=True, initial=-np.inf)
        losses = np.log(np.exp(shifted).sum(1)) - shifted[rows, targets]
        correct = eligible & (rank < 1)
        increments = {
            "samples": len(labels),
            "top1": correct.sum(),
            "top5": (eligible & (rank < 5)).sum(),
            "loss": losses[labelled].sum(),
            "labelled": labelled.sum(),
        }
        self.state.update((name, self.state[name] + increment) for name, increment in increments.items())
        if "confusion" in self.state:
            nothing = len(self.classes)
            predictions = np.minimum(logits.argmax(1), nothing)
            predictions[((predictions == labels) & ~correct) | np.isnan(logits).any(1)] = nothing
            predictions[correct] = labels[correct]  # also where another logit is NaN
            np.add.at(self.state["confusion"], (labels[labelled], predictions[labelled]), 1)

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return the accuracies as fractions of all samples, the mean loss of the readable ones and their number.

        `class_accuracy` has the accuracy of every class with a readable sample, by name, of up to MAX_CLASSES classes.
        """
        samples = float(state["samples"])
        metrics: dict[str, Any] = {
            "top1": float(state["top1"]) / samples,
            "top5": float(state["top5"]) / samples,
            "loss": float(state["loss"]) / max(float(state["labelled"]), 1.0),
            "samples": int(samples),
        }
        if "confusion" in state:
            correct, labelled = np.diag(state["confusion"]), state["confusion"].sum(1)
            metrics["class_accuracy"] = {
                str(name): float(correct[i] / labelled[i]) for i, name in enumerate(self.classes) if labelled[i]
            }
        return metrics
