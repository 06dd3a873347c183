"""Face recognition: the margin softmax loss, embeddings, verification accuracy on pairs of images.

The margins are in zoo/losses/face.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from zoo.data.batch import Batch
from zoo.data.errors import UserError
from zoo.losses import load_loss
from zoo.losses.face import Settings as Keys
from zoo.tasks import Forward, Size

PRIMARY = "accuracy"
HEAD_WEIGHT = "head.weight"  # the classifier weight, a parameter of the objective and not of the model
FOLDS = 10
THRESHOLDS = np.arange(400) / 100  # of the squared distance, for the accuracy: 0.00, 0.01, ... 3.99
FAR_THRESHOLDS = np.arange(4000) / 1000  # for the false accept rate: 0.000, 0.001, ... 3.999


@dataclass(frozen=True)
class Embeddings:
    """Predictions of a face model: embeddings of an image and, with `flip`, of its mirror image.

    float32 (N, 1 or 2, d), not normalized.
    """

    flip: bool = True

    def predict(self, ops: Any, arch: Any, forward: Forward, images: Sequence[Any], size: Size | None) -> Any:
        views = [images[0], ops.flip(images[0], 2)] if self.flip else [images[0]]
        return ops.stack([forward(view) for view in views], 1)


class VerificationSplit(Protocol):
    """A validation split: several sets of image pairs, one after the other.

    Attributes:
        sets: (name, index of the first pair, number of pairs) of each set.
    """

    sets: tuple[tuple[str, int, int], ...]

    def __len__(self) -> int:
        """Return the number of pairs of all sets."""


Settings: Any = load_loss("face", "combined")


def output(settings: Keys) -> Embeddings:
    return Embeddings(settings.flip)


def protocol(views: str, settings: Keys) -> str:
    """Return the last part of a protocol id, such as 10fold."""
    return f"{FOLDS}fold{views}" + ("" if settings.flip else "-noflip")


class Metric:
    """Verification of pairs by the squared distance of their embeddings; see zoo.tasks.TaskMetric.

    The embedding of an image is the sum over the image and its mirror image, scaled to length 1. The state has one
    element per pair of the split, which is 0 until the pair is evaluated, so states of ranks add up.
    """

    def __init__(self, dataset: VerificationSplit, settings: Keys | None = None):
        self.sets = dataset.sets
        self.far = (settings or Settings()).far
        for name, _, count in self.sets:
            if count < FOLDS:
                raise UserError(
                    f"the verification set {name} has {count} pairs, but {FOLDS} folds need one each; add pairs"
                )
        count = len(dataset)
        self.state: dict[str, np.ndarray] = {
            "distance": np.zeros(count),
            "norm": np.zeros(count),
            "same": np.zeros(count, np.int64),
            "seen": np.zeros(count, np.int64),
            "samples": np.zeros((), np.int64),
        }

    def update(self, outputs: np.ndarray, batch: Batch) -> None:
        """Add a batch; an unreadable pair counts as a sample and nothing else.

        Args:
            outputs: embeddings (pairs * 2, 1 or 2, d), the two images of a pair one after the other.
            batch: with `label` (pairs,), 1 same person, 0 different persons, -1 unreadable; `index` (pairs,), that of
                the pair in the split; `valid` (pairs,).
        """
        readable = (batch["valid"] > 0) & (batch["label"] >= 0)
        pairs = outputs.astype(np.float64).reshape(len(readable), 2, *outputs.shape[1:])[readable]
        summed = pairs.sum(2)
        with np.errstate(invalid="ignore", divide="ignore"):  # an embedding of length 0 gives a distance of NaN
            units = summed / np.sqrt((summed**2).sum(2, keepdims=True))
        values_of = {
            "distance": ((units[:, 0] - units[:, 1]) ** 2).sum(1),
            "norm": np.sqrt((pairs**2).sum(3)).mean((1, 2)),
            "same": batch["label"][readable],
            "seen": 1,
        }
        for name, values in values_of.items():
            self.state[name][batch["index"][readable]] = values
        self.state["samples"] += np.sum(batch["valid"] > 0)

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return the verification accuracy, as a fraction, and more.

        An unreadable pair counts as wrong at every threshold. The true accept rate leaves it out, because its label is
        unknown.

        Returns:
            `accuracy`, the mean over all sets; for each set <name>, its accuracy, <name>_std, the standard deviation
            over the folds, and <name>_tar, the true accept rate; `xnorm`, the mean length of all embeddings; `samples`;
            `thresholds`, of each set the squared distance of `best_threshold`.
        """
        metrics, thresholds = dict[str, float](), dict[str, float]()
        for name, first, count in self.sets:
            seen, distance, same = (state[key][first : first + count] for key in ("seen", "distance", "same"))
            seen, same = seen > 0, same > 0
            for description, selected in (("the same person", same), ("different persons", ~same)):
                if not selected[seen].any():
                    raise UserError(
                        f"the verification set {name} has no readable pair of {description}; add some, or fix the "
                        "unreadable ones"
                    )
            thresholds[name] = best_threshold(distance[seen], same[seen])
            metrics[name], metrics[f"{name}_std"] = accuracy(np.where(seen, distance, np.nan), same)
            metrics[f"{name}_tar"] = true_accept_rate(distance[seen], same[seen], self.far)
        mean = sum(metrics[name] for name, _, _ in self.sets) / len(self.sets)
        return {
            "accuracy": mean,
            **metrics,
            "xnorm": float(state["norm"].sum() / state["seen"].sum()),
            "samples": int(state["samples"]),
            "thresholds": thresholds,
        }


def best_threshold(distance: np.ndarray, same: np.ndarray) -> float:
    """Return the squared distance that divides most pairs (P,) rightly, the lowest one: below it is the same person."""
    return float(THRESHOLDS[((distance < THRESHOLDS[:, None]) == same).sum(1).argmax()])


def threshold_text(name: str, threshold: float) -> str:
    """Return what a threshold of a set of pairs is and means."""
    return (
        f"cosine {1 - threshold / 2:.3f} (squared distance {threshold:.2f}): faces more alike count as one person; "
        f"this value divides the pairs of {name} best"
    )


def accuracy(distance: np.ndarray, same: np.ndarray) -> tuple[float, float]:
    """Compute the verification accuracy by ten-fold cross-validation: LFW's protocol, as insightface implements it.

    A pair is classified as the same person if its distance is below a threshold. The threshold of a fold is the lowest
    of those with the highest accuracy on the nine other folds. Folds are contiguous.

    Args:
        distance: squared distance of each pair, (P,); NaN is wrong at every threshold.
        same: whether a pair shows the same person, bool (P,).

    Returns:
        Mean and population standard deviation of the accuracies of the folds.
    """
    correct = ((distance < THRESHOLDS[:, None]) == same) & ~np.isnan(distance)  # (thresholds, P)
    folds = _folds(len(distance))
    counts = np.stack([correct[:, fold].sum(1) for fold in folds])  # (folds, thresholds)
    best = (counts.sum(0) - counts).argmax(1)
    accuracies = [count[threshold] / len(fold) for count, threshold, fold in zip(counts, best, folds)]
    return float(np.mean(accuracies)), float(np.std(accuracies))


def true_accept_rate(distance: np.ndarray, same: np.ndarray, far: float) -> float:
    """Compute the fraction of same-person pairs that are accepted at a false accept rate of `far`.

    It is the mean over ten contiguous folds, each at the threshold that reaches `far` on the nine other folds: the
    lowest one at which the piecewise linear curve through the false accept rates at FAR_THRESHOLDS reaches `far`, or 0
    if the curve never does. So the threshold is also defined where the false accept rate is constant. A fold without a
    same-person pair is left out.

    Args:
        distance: squared distance of each pair, (P,); NaN is a wrong answer.
        same: whether a pair shows the same person, bool (P,).
        far: false accept rate, in (0, 1].
    """
    folds, rates = _folds(len(distance)), []
    for i, fold in enumerate(folds):
        other_folds, genuine = np.concatenate(folds[:i] + folds[i + 1 :]), distance[fold][same[fold]]
        if len(genuine):
            rates.append(np.mean(genuine < _far_threshold(distance[other_folds][~same[other_folds]], far)))
    return float(np.mean(rates))


def _far_threshold(impostors: np.ndarray, far: float) -> float:
    """Return the threshold at which a fraction `far` of the distances of different-person pairs (P,) is accepted."""
    impostors = np.sort(np.nan_to_num(impostors, nan=0.0))
    rates = np.searchsorted(impostors, FAR_THRESHOLDS, side="left") / max(len(impostors), 1)
    if rates[-1] < far:
        return 0.0
    after = int((rates >= far).argmax())  # never the first, because no distance is below 0
    weight = (far - rates[after - 1]) / (rates[after] - rates[after - 1])
    return float(FAR_THRESHOLDS[after - 1] + weight * (FAR_THRESHOLDS[after] - FAR_THRESHOLDS[after - 1]))


def _folds(count: int) -> list[np.ndarray]:
    """Return the indices of ten contiguous folds; the first ones have one more if `count` is not divisible by ten."""
    return np.array_split(np.arange(count), FOLDS)
