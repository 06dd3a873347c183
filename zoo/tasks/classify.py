"""Classification of images and clips: the objective, and top-1 / top-5 accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.batch import Batch

PRIMARY = "top1"  # the metric that targets and `best` go by


@dataclass(frozen=True)
class Settings:
    """The `task:` section."""

    label_smoothing: float = 0.0

    def __post_init__(self):
        if not 0 <= self.label_smoothing < 1:
            raise ValueError("label_smoothing: must lie in [0, 1)")


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross-entropy of logits (N, K) with labels (N,); `smoothing` of a label is spread over all K classes."""

    smoothing: float = 0.0


@dataclass(frozen=True)
class Scores:
    """What Trainer.predict returns: the net's logits (N, K)."""


def objective(settings: Settings) -> CrossEntropy:
    return CrossEntropy(settings.label_smoothing)


def output(settings: Settings) -> Scores:
    return Scores()


class Metric:
    """Counts correct samples. The state is additive: sum it over batches and ranks, then ask for the result."""

    def __init__(self, dataset, settings: Settings = Settings()):
        self.views = dataset.views
        self.state = {name: np.zeros((), np.float64) for name in ("samples", "top1", "top5", "loss", "labelled")}

    def update(self, scores: np.ndarray, batch: Batch) -> None:
        """scores (rows * views, K): the views of a sample are averaged; rows that are not valid are left out.

        A label of -1 marks an unreadable sample: counted, never correct, without a loss. A score that is not a number
        never counts as correct.
        """
        scores = scores.astype(np.float64).reshape(-1, self.views, scores.shape[-1]).mean(1)
        valid = batch["valid"] > 0
        scores, labels = scores[valid], batch["label"][valid]
        known = labels >= 0
        own = scores[np.arange(len(labels)), np.maximum(labels, 0)][:, None]
        rank = (~(scores < own)).sum(1) - 1  # ties and NaN count against the label
        right = known & ~np.isnan(own[:, 0])
        shifted = scores - scores.max(1, keepdims=True, initial=-np.inf)
        losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), np.maximum(labels, 0)]
        found = {
            "samples": len(labels),
            "top1": (right & (rank < 1)).sum(),
            "top5": (right & (rank < 5)).sum(),
            "loss": losses[known].sum(),
            "labelled": known.sum(),
        }
        self.state = {name: self.state[name] + value for name, value in found.items()}

    @staticmethod
    def result(state: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Accuracies as fractions of all samples, the mean loss over the readable ones."""
        samples = float(state["samples"])
        return {
            "top1": float(state["top1"]) / samples,
            "top5": float(state["top5"]) / samples,
            "loss": float(state["loss"]) / max(float(state["labelled"]), 1.0),
            "samples": int(samples),
        }
