"""Validation metrics from predictions and labels of a whole split, sample by sample."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
IGNORED = 255  # label of a pixel that does not count
FOLDS = 10
THRESHOLDS = [number / 100 for number in range(400)]  # of the squared distance, for the accuracy


def classify(logits: Array, labels: Array, classes: int) -> dict[str, Any]:
    """Return the metrics of logits (N, views, K) and labels (N,); -1 is an unreadable sample, which is wrong.

    A tie with another class counts against the label, and a logit that is not a number never makes a sample correct.
    """
    ranks, losses, by_class = list[float](), list[float](), dict[int, list[bool]]()
    for views, label in zip(logits, labels):
        scores = [float(np.mean([view[k] for view in views], dtype=np.float64)) for k in range(logits.shape[2])]
        if label < 0:
            ranks.append(np.inf)
            continue
        better = sum(not score < scores[label] for k, score in enumerate(scores) if k != label)
        ranks.append(np.inf if np.isnan(scores[label]) else better)
        losses.append(float(np.logaddexp.reduce(scores)) - scores[label])
        by_class.setdefault(int(label), []).append(ranks[-1] < 1)
    return {
        "top1": sum(rank < 1 for rank in ranks) / len(ranks),
        "top5": sum(rank < 5 for rank in ranks) / len(ranks),
        "loss": sum(losses) / max(len(losses), 1),
        "samples": len(ranks),
        "class_accuracy": {str(k): sum(by_class[k]) / len(by_class[k]) for k in range(classes) if k in by_class},
    }


def multilabel(logits: Array, labels: Array, classes: int) -> dict[str, Any]:
    """Return the metrics of logits (N, views, K) and labels (N, K), 1 or 0; -1 of an unreadable sample."""
    means = [
        [float(np.mean([view[k] for view in views], dtype=np.float64)) for k in range(classes)] for views in logits
    ]
    readable = [row for row in range(len(labels)) if labels[row, 0] >= 0]
    losses = [
        np.logaddexp(0, -means[row][k] if labels[row, k] else means[row][k]) for row in readable for k in range(classes)
    ]
    precisions, limits, halves, best = dict[str, float](), dict[str, float](), list[float](), list[float]()
    for k in range(classes):
        scores, has = [means[row][k] for row in readable], [bool(labels[row, k]) for row in readable]
        if not any(has):
            continue
        cuts, area, recall = sorted(set(scores), reverse=True), 0.0, 0.0
        for cut in cuts:
            hits, passed = _passing(scores, has, cut)
            area, recall = area + (hits / sum(has) - recall) * hits / passed, hits / sum(has)
        precisions[str(k)] = area
        values = [2 * hits / (passed + sum(has)) for hits, passed in (_passing(scores, has, cut) for cut in cuts)]
        at = values.index(max(values))
        cut = (cuts[at] + (cuts[at + 1] if at + 1 < len(cuts) else cuts[at] - 1)) / 2
        limits[str(k)] = float(1 / (1 + np.exp(-cut)))
        best.append(values[at])
        hits, passed = _passing(scores, has, np.nextafter(0, 1))
        halves.append(2 * hits / (passed + sum(has)))
    return {
        "map": float(np.mean([*precisions.values()])),
        "f1": float(np.mean(halves)),
        "f1_best": float(np.mean(best)),
        "loss": float(np.mean(losses)),
        "samples": len(labels),
        "class_ap": precisions,
        "thresholds": limits,
    }


def _passing(scores: list[float], has: list[bool], cut: float) -> tuple[int, int]:
    """Return how many samples with the class, and how many of all, have a score of at least `cut`."""
    passed = [label for score, label in zip(scores, has) if score >= cut]
    return sum(passed), len(passed)


def segment(predictions: Array, labels: Array, classes: int) -> dict[str, Any]:
    """Return the metrics of class maps (N, H, W) and labels (N, H, W), as Cityscapes' evaluation script has them."""
    counted = labels != IGNORED
    predicted, truth = predictions[counted], labels[counted]
    iou, accuracies = {}, []
    for k in range(classes):
        hits, either = np.sum((predicted == k) & (truth == k)), np.sum((predicted == k) | (truth == k))
        if either:
            iou[str(k)] = float(hits / either)
        if np.any(truth == k):
            accuracies.append(float(hits / np.sum(truth == k)))
    return {
        "miou": float(np.mean(list(iou.values()))),
        "macc": float(np.mean(accuracies)),
        "aacc": float(np.mean(predicted == truth)),
        "samples": len(labels),
        "iou": iou,
    }


def face(embeddings: Array, labels: Array, sets: Sequence[tuple[str, int, int]], far: float) -> dict[str, Any]:
    """Return the metrics of pairs: embeddings (P, 2, views, d), labels (P,), 1 for the same person.

    An unreadable pair, -1, is wrong at every threshold, and left out of what counts true and false accepts.

    Args:
        sets: (name, first pair, number of pairs) of each set.
        far: false accept rate at which true accepts are counted.
    """
    found: dict[str, Any] = {"thresholds": {}}
    for name, first, count in sets:
        distances, same, seen = [], labels[first : first + count] > 0, labels[first : first + count] >= 0
        for pair in embeddings[first : first + count].astype(np.float64):
            a, b = (views.sum(0) / np.linalg.norm(views.sum(0)) for views in pair)
            distances.append(float(np.square(a - b).sum()))
        distance, accuracies, rates = np.array(distances), [], []
        right = np.array([((distance < threshold) == same) & seen for threshold in THRESHOLDS])
        for fold in np.array_split(np.arange(count), FOLDS):
            others = np.delete(np.arange(count), fold)
            best = right[:, others].sum(1).argmax()  # the lowest of several
            accuracies.append(right[best, fold].mean())
        distance, same = distance[seen], same[seen]
        for fold in np.array_split(np.arange(len(distance)), FOLDS):
            others = np.delete(np.arange(len(distance)), fold)
            if same[fold].any():
                limit = threshold_of_rate(distance[others][~same[others]], far)
                rates.append((distance[fold][same[fold]] < limit).mean())
        found[name], found[f"{name}_std"] = float(np.mean(accuracies)), float(np.std(accuracies))
        found[f"{name}_tar"] = float(np.mean(rates))
        found["thresholds"][name] = THRESHOLDS[right.sum(1).argmax()]
    found["accuracy"] = float(np.mean([found[name] for name, _, _ in sets]))
    found["xnorm"] = float(np.linalg.norm(embeddings[labels >= 0].astype(np.float64), axis=-1).mean())
    found["samples"] = len(labels)
    return found


def threshold_of_rate(impostors: Array, far: float) -> float:
    """Return the lowest squared distance at which the curve of false accept rates reaches far; 0 if it never does."""
    before = 0.0
    for number in range(1, 4000):
        rate = float(np.mean(impostors < number / 1000))
        if rate >= far:
            return (number - 1 + (far - before) / (rate - before)) / 1000
        before = rate
    return 0.0


def differing(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float = 1e-9) -> list[str]:
    """Return the names of the expected metrics that are missing or differ."""
    names = []
    for name, value in expected.items():
        other = found.get(name)
        if isinstance(value, Mapping):
            names += [f"{name} of {key}" for key in differing(other or {}, value, tolerance)]
            names += [] if other is not None and other.keys() == value.keys() else [name]
        elif other is None or not np.isclose(other, value, rtol=tolerance, atol=tolerance, equal_nan=True):
            names.append(name)
    return names
