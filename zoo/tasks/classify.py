"""Classification of images and clips: top-1 and top-5 accuracy; the losses are in zoo/losses/classify."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from data.batch import Batch
from zoo.losses import loss_of, with_loss

if TYPE_CHECKING:  # data.stream imports Grain
    from data.stream import Dataset

PRIMARY = "top1"


@dataclass(frozen=True)
class Keys:
    """The task's own keys in the `task:` section: none."""


@dataclass(frozen=True)
class Classification:
    """Loss of logits (N, K), summed over samples.

    The target of a sample is its `soft_label` (data.batch.soft_label) where the batch has that field, else its `label`.

    Attributes:
        loss: specification, a Loss of zoo/losses/classify.
    """

    loss: Any


@dataclass(frozen=True)
class Scores:
    """Predictions of a classifier: the model's logits (N, K)."""


def settings_class(loss: str = "cross_entropy") -> type[Any]:
    """Return the class of the `task:` section with a loss."""
    return with_loss("classify", Keys, loss)


Settings: Any = settings_class()


def objective(settings: Any) -> Classification:
    """Return the loss."""
    return Classification(loss_of("classify", settings))


def output(settings: Keys) -> Scores:
    """Return the form of a prediction."""
    return Scores()


def protocol(views: str, settings: Keys) -> str:
    """Return the last part of a protocol id, such as 224-of-256."""
    return views


class Metric:
    """Top-1 and top-5 accuracy and mean cross-entropy; see zoo.tasks.TaskMetric."""

    def __init__(self, dataset: "Dataset", settings: Keys = Keys()):
        self.views = dataset.views
        self.state: dict[str, np.ndarray] = {
            name: np.zeros((), np.float64) for name in ("samples", "top1", "top5", "loss", "labelled")
        }

    def update(self, outputs: np.ndarray, batch: Batch) -> None:
        """Add a batch; the logits of a sample's views are averaged.

        A label of -1 marks an unreadable sample: it counts as a sample that is never correct, and has no loss. A logit
        that is NaN never makes a sample correct; a tie counts against the label.

        Args:
            outputs: logits (rows * views, K).
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
        increments = {
            "samples": len(labels),
            "top1": (eligible & (rank < 1)).sum(),
            "top5": (eligible & (rank < 5)).sum(),
            "loss": losses[labelled].sum(),
            "labelled": labelled.sum(),
        }
        self.state = {name: self.state[name] + increment for name, increment in increments.items()}

    @staticmethod
    def result(state: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the accuracies as fractions of all samples, the mean loss of the readable ones and their number."""
        samples = float(state["samples"])
        return {
            "top1": float(state["top1"]) / samples,
            "top5": float(state["top5"]) / samples,
            "loss": float(state["loss"]) / max(float(state["labelled"]), 1.0),
            "samples": int(samples),
        }
