"""Face recognition: the margin softmax loss, embeddings, verification accuracy on pairs of images.

The margins are in zoo/losses/face.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from zoo.data.batch import Batch
from zoo.data.errors import UserError
from zoo.losses import loss_of, with_loss

PRIMARY = "accuracy"
HEAD_WEIGHT = "head.weight"  # the classifier weight, a parameter of the objective and not of the model
MIN_SINE = 1e-3  # lower bound of the sine of an angle by which the derivative of the margin is divided
FOLDS = 10
THRESHOLDS = np.arange(400) / 100  # of the squared distance, for the accuracy: 0.00, 0.01, ... 3.99
FAR_THRESHOLDS = np.arange(4000) / 1000  # for the false accept rate: 0.000, 0.001, ... 3.999


@dataclass(frozen=True)
class Keys:
    """The task's own keys in the `task:` section."""

    scale: float = 64.0  # factor that turns cosines into logits
    interclass: float | None = None  # set cosines of other classes above this to 0: they may be the same person
    gradient: Literal["true", "straight"] = "true"  # straight: as if the margin's derivative were 1, as insightface's
    sample_rate: float = 1.0  # Partial FC: fraction of the classes that an update uses
    flip: bool = True  # evaluate each image and its mirror image
    far: float = 1e-3  # the false accept rate at which <name>_tar is measured

    def __post_init__(self):
        if not 0 < self.scale < float("inf"):
            raise ValueError("scale: must be above 0")
        if self.interclass is not None and not 0 < self.interclass < 1:
            raise ValueError("interclass: must be a cosine in (0, 1), or null for no filter")
        for key in ("sample_rate", "far"):
            if not 0 < getattr(self, key) <= 1:
                raise ValueError(f"{key}: must lie in (0, 1]")


@dataclass(frozen=True)
class Margin:
    """Softmax cross-entropy of scaled cosines, with a margin on the target class.

    The logits are scale * cosine between the embeddings (N, d) and the rows of the classifier weight (K, d); labels are
    (N,). The cosine of the target class is replaced by one with a margin. All of it is computed in fp32; cosines are
    clamped to [-1, 1].

    Attributes:
        loss: specification of the margin, a Loss of zoo/losses/face.
        scale, interclass: those of the settings.
        straight_through: take the derivative of the margin as 1.
        sample_rate: fraction of the rows that an update uses (Partial FC, arXiv:2203.15565).
    """

    loss: Any
    scale: float = 64.0
    interclass: float | None = None
    straight_through: bool = False
    sample_rate: float = 1.0


@dataclass(frozen=True)
class Embeddings:
    """Predictions of a face model: embeddings of an image and, with `flip`, of its mirror image.

    float32 (N, 1 or 2, d), not normalized.
    """

    flip: bool = True


class VerificationSplit(Protocol):
    """A validation split: several sets of image pairs, one after the other.

    Attributes:
        sets: (name, index of the first pair, number of pairs) of each set.
    """

    sets: tuple[tuple[str, int, int], ...]

    def __len__(self) -> int:
        """Return the number of pairs of all sets."""


def settings_class(loss: str = "combined") -> type[Any]:
    """Return the class of the `task:` section with a margin."""
    return with_loss("face", Keys, loss)


Settings: Any = settings_class()


def objective(settings: Any) -> Margin:
    """Return the loss."""
    return Margin(
        loss=loss_of("face", settings).margin(),
        scale=settings.scale,
        interclass=settings.interclass,
        straight_through=settings.gradient == "straight",
        sample_rate=settings.sample_rate,
    )


def output(settings: Keys) -> Embeddings:
    """Return the form of a prediction."""
    return Embeddings(settings.flip)


def protocol(views: str, settings: Keys) -> str:
    """Return the last part of a protocol id, such as 10fold."""
    return f"{FOLDS}fold{views}" + ("" if settings.flip else "-noflip")


class Metric:
    """Verification of pairs by the squared distance of their embeddings; see zoo.tasks.TaskMetric.

    The embedding of an image is the sum over the image and its mirror image, scaled to length 1. The state has one
    element per pair of the split, which is 0 until the pair is evaluated, so states of ranks add up.
    """

    def __init__(self, dataset: VerificationSplit, settings: Keys = Keys()):
        self.sets = dataset.sets
        self.far = settings.far
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
            batch: with `label` (pairs,), 1 same person, 0 different persons, -1 unreadable; `pair` (pairs,), the index
                of the pair in the split; `valid` (pairs,).
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
            self.state[name][batch["pair"][readable]] = values
        self.state["samples"] += np.sum(batch["valid"] > 0)

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the verification accuracy, as a fraction, and more.

        An unreadable pair counts as wrong at every threshold. The true accept rate leaves it out, because its label is
        unknown.

        Returns:
            `accuracy`, the mean over all sets; for each set <name>, its accuracy, <name>_std, the standard deviation
            over the folds, and <name>_tar, the true accept rate; `xnorm`, the mean length of all embeddings; `samples`.

        Raises:
            UserError: a set lacks readable pairs of the same person or of different persons.
        """
        metrics: dict[str, float] = {}
        for name, first, count in self.sets:
            seen, distance, same = (state[key][first : first + count] for key in ("seen", "distance", "same"))
            seen, same = seen > 0, same > 0
            for description, selected in (("the same person", same), ("different persons", ~same)):
                if not selected[seen].any():
                    raise UserError(
                        f"the verification set {name} has no readable pair of {description}; add some, or fix the "
                        "unreadable ones"
                    )
            metrics[name], metrics[f"{name}_std"] = accuracy(np.where(seen, distance, np.nan), same)
            metrics[f"{name}_tar"] = true_accept_rate(distance[seen], same[seen], self.far)
        mean = sum(metrics[name] for name, _, _ in self.sets) / len(self.sets)
        return {
            "accuracy": mean,
            **metrics,
            "xnorm": float(state["norm"].sum() / state["seen"].sum()),
            "samples": int(state["samples"]),
        }


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
