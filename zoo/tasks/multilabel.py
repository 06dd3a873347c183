"""Classification of images with any number of classes each: mean average precision, F1 and the thresholds for it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zoo.data.batch import Batch
from zoo.data.dataset import Dataset
from zoo.losses import load_loss
from zoo.tasks import classify

PRIMARY = "map"
Settings: Any = load_loss("multilabel", "binary_cross_entropy")
output = classify.output


def protocol(views: str, settings: Any) -> str:
    """Return the last part of a protocol id, such as 224-of-256-multilabel."""
    return f"{views}-multilabel"


class Metric:
    """Average precision and F1 by class, and mean binary cross-entropy; see zoo.tasks.TaskMetric.

    The state has a row for each sample of the split, which is 0 until it is evaluated, so states of ranks add up.
    """

    def __init__(self, dataset: Dataset, settings: Any = None):
        self.views, self.classes = dataset.views, dataset.classes
        self.target: Callable[[int], np.ndarray] | None = getattr(dataset, "target", None)
        shape = len(dataset), len(self.classes)
        self.state: dict[str, np.ndarray] = {
            "logits": np.zeros(shape, np.float32),
            "targets": np.zeros(shape, np.int8),
            "seen": np.zeros(shape[0], np.int8),
            "loss": np.zeros(()),
            "samples": np.zeros((), np.int64),
            "readable": np.zeros((), np.int64),
        }

    def update(self, outputs: np.ndarray, batch: Batch) -> None:
        """Add a batch; the logits of a sample's views are averaged.

        An unreadable sample has no loss, and misses its classes: its logits are below all others.

        Args:
            batch: with `label` (rows, K), 1 for the classes of a sample, -1 of an unreadable one; `index` (rows,), of
                the sample in the split; `valid` (rows,).
        """
        logits = outputs.astype(np.float64).reshape(-1, self.views, outputs.shape[-1]).mean(1)[:, : len(self.classes)]
        valid = batch["valid"] > 0
        readable = valid & (batch["label"] >= 0).all(1)
        logits, targets, rows = logits[readable], batch["label"][readable], batch["index"][readable]
        with np.errstate(invalid="ignore"):  # logits that are not finite have the loss nan
            losses = np.logaddexp(0, logits) - targets * logits
        self.state["logits"][rows], self.state["targets"][rows], self.state["seen"][rows] = logits, targets, 1
        self.state["loss"] += losses.mean(1).sum()
        self.state["readable"] += readable.sum()
        self.state["samples"] += valid.sum()
        if self.target:
            rows = batch["index"][valid & ~readable]
            self.state["logits"][rows], self.state["seen"][rows] = -np.inf, 1
            self.state["targets"][rows] = [self.target(row) for row in rows] or 0

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return the metrics of all samples; of the readable ones where a split does not know the others' targets.

        Returns:
            `map`, the mean of the average precisions of all classes that a sample has; `f1`, the mean of their F1 for
            probabilities above 0.5, and `f1_best` above the `thresholds` at which it is best on these samples;
            `class_ap` and `thresholds` by name of the class; `loss`; `samples`, unreadable ones included.
        """
        seen = state["seen"] > 0
        logits, targets = state["logits"][seen].astype(np.float64), state["targets"][seen] > 0
        precisions, thresholds, halves, best = dict[str, float](), dict[str, float](), list[float](), list[float]()
        for label in np.flatnonzero(targets.any(0)).tolist():
            name, own, has = str(self.classes[label]), logits[:, label], targets[:, label]
            precisions[name] = average_precision(own, has)
            halves.append(f1(own > 0, has))
            limit, value = best_threshold(own, has)
            thresholds[name] = float(1 / (1 + np.exp(-limit)))
            best.append(value)
        return {
            "map": _mean(precisions.values()),
            "f1": _mean(halves),
            "f1_best": _mean(best),
            "loss": float(state["loss"]) / max(float(state["readable"]), 1),
            "samples": int(state["samples"]),
            "class_ap": precisions,
            "thresholds": thresholds,
        }


def _mean(values: Any) -> float:
    return float(np.mean([*values])) if len(values) else 0.0


def average_precision(scores: np.ndarray, targets: np.ndarray) -> float:
    """Return the sum over thresholds of precision times growth of recall, as scikit-learn's average_precision_score.

    Args:
        scores: (n,); equal ones pass a threshold together, NaN none.
        targets: bool (n,), one of them true.
    """
    right, passed = _passing(scores, targets)[1:]
    growth = np.diff(right, prepend=0) / targets.sum()
    return float((growth * right / np.maximum(passed, 1)).sum())


def best_threshold(scores: np.ndarray, targets: np.ndarray) -> tuple[float, float]:
    """Return the score above which F1 is best, the highest of several, half-way to the next score; and this F1."""
    values, right, passed = _passing(scores, targets)
    found = 2 * right / (passed + targets.sum())
    at = int(found.argmax())
    following = values[at + 1] if at + 1 < len(values) and np.isfinite(values[at + 1]) else values[at] - 1
    return float((values[at] + following) / 2), float(found[at])


def f1(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Return 2 * hits / (predicted + actual) of two arrays bool (n,), one of whose targets is true."""
    return float(2 * (predicted & targets).sum() / (predicted.sum() + targets.sum()))


def _passing(scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the different scores from the highest on, and how many targets and samples each lets pass."""
    scores = np.where(np.isnan(scores), -np.inf, scores)
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(scores[order][1:] != scores[order][:-1]), len(scores) - 1)  # of equal scores
    return scores[order][last], np.cumsum(targets[order])[last], last + 1
