"""Classification of images and clips: cross-entropy, top-1 and top-5 accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from data.batch import Batch

if TYPE_CHECKING:  # data.stream imports Grain
    from data.stream import Dataset

PRIMARY = "top1"


@dataclass(frozen=True)
class Settings:
    """The `task:` section."""

    label_smoothing: float = 0.0

    def __post_init__(self):
        if not 0 <= self.label_smoothing < 1:
            raise ValueError("label_smoothing: must lie in [0, 1)")


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross-entropy of logits (N, K) with labels (N,).

    Attributes:
        smoothing: share of a label's weight that is spread evenly over all K classes (arXiv:1512.00567).
    """

    smoothing: float = 0.0


@dataclass(frozen=True)
class Scores:
    """Predictions of a classifier: the model's logits (N, K)."""


def objective(settings: Settings) -> CrossEntropy:
    """Return the loss."""
    return CrossEntropy(settings.label_smoothing)


def output(settings: Settings) -> Scores:
    """Return the form of a prediction."""
    return Scores()


def protocol(views: str, settings: Settings) -> str:
    """Return the last part of a protocol id, such as 224-of-256."""
    return views


class Metric:
    """Top-1 and top-5 accuracy and mean cross-entropy; see zoo.tasks.TaskMetric."""

    def __init__(self, dataset: "Dataset", settings: Settings = Settings()):
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
