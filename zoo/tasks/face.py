"""Face recognition: the margin objective, the embedding of a picture, and how well pairs of pictures are verified."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from data.batch import Batch
from data.errors import UserError

PRIMARY = "accuracy"  # the metric that targets and `best` go by
HEAD_WEIGHT = "head.weight"  # the classifier weight, a parameter of the objective and not of the model
MIN_SINE = 1e-3  # of an angle, where the margin's derivative divides by it
FOLDS = 10
STEPS = 400  # thresholds of the squared distance, 0.00 to 3.99
FINE_STEPS = 4000  # those of the false accept rate, 0.000 to 3.999


@dataclass(frozen=True)
class Settings:
    """The `task:` section."""

    scale: float = 64.0  # of the cosines, to make logits of them
    m1: float = 1.0  # the target's logit is scale * (cos(m1 * angle + m2) - m3): SphereFace's
    m2: float = 0.5  # margin, ArcFace's (radians)
    m3: float = 0.0  # and CosFace's
    threshold: bool = True  # where angle + m2 passes pi, go on falling with the cosine (only with m1 = 1)
    interclass: float | None = None  # take other classes' cosines above this for 0: they may be the same person
    gradient: Literal["true", "straight"] = "true"  # straight: as if the margin's derivative were 1, as insightface's
    sample_rate: float = 1.0  # Partial FC: the share of the classes that an update uses
    flip: bool = True  # evaluate each picture also mirrored
    far: float = 1e-3  # the false accept rate that <name>_tar is for

    def __post_init__(self):
        if not 0 < self.scale < float("inf"):
            raise ValueError("scale: must be above 0")
        if not 1 <= self.m1 < float("inf"):
            raise ValueError("m1: must be at least 1, which is no margin")
        if not 0 <= self.m2 < math.pi:
            raise ValueError("m2: an angle in radians, in [0, pi)")
        if not 0 <= self.m3 < 2:
            raise ValueError("m3: must lie in [0, 2), as a difference of cosines")
        if self.threshold and self.m1 != 1:
            raise ValueError("threshold: the rule is for m1 = 1 alone; give task.threshold=false with another m1")
        if self.interclass is not None and not 0 < self.interclass < 1:
            raise ValueError("interclass: a cosine in (0, 1), or null for no filter")
        for key in ("sample_rate", "far"):
            if not 0 < getattr(self, key) <= 1:
                raise ValueError(f"{key}: must lie in (0, 1]")


@dataclass(frozen=True)
class Margin:
    """Softmax cross-entropy of scale * cosine between embeddings (N, d) and the rows of the class matrix (K, d).

    Labels are (N,). The cosine of the own class gets the margins of `Settings`: ArcFace (arXiv:1801.07698), CosFace
    (1801.09414) and SphereFace (1704.08063) in one formula, and with `threshold` InsightFace's first rule: beyond
    turning_point(m2) the cosine less fall(m2) takes its place. All of it in fp32; cosines are clamped to [-1, 1].
    """

    scale: float = 64.0
    m1: float = 1.0
    m2: float = 0.5
    m3: float = 0.0
    threshold: bool = True
    interclass: float | None = None
    straight_through: bool = False
    sample_rate: float = 1.0


@dataclass(frozen=True)
class Embeddings:
    """What Trainer.predict returns: the net's output for a picture and, with `flip`, its mirror image: float32
    (N, 1 or 2, d), not normalised."""

    flip: bool = True


def objective(settings: Settings) -> Margin:
    s = settings
    return Margin(s.scale, s.m1, s.m2, s.m3, s.threshold, s.interclass, s.gradient == "straight", s.sample_rate)


def output(settings: Settings) -> Embeddings:
    return Embeddings(settings.flip)


def threshold_cosine(m2: float) -> float:
    """The cosine of the angle at which angle + m2 is pi: cos(angle + m2) would rise again behind it."""
    return math.cos(math.pi - m2)


def threshold_offset(m2: float) -> float:
    """What is taken off the cosine behind the turning point."""
    return m2 * math.sin(math.pi - m2)


class Metric:
    """Verification of pairs by the squared distance of their embeddings, mirror images added, at length 1.

    The state holds a number or two for each pair of the split, at the pair's own place, 0 where it was not seen. It is
    additive: sum it over ranks, then ask for the result.
    """

    def __init__(self, dataset, settings: Settings = Settings()):
        self.sets: tuple[tuple[str, int, int], ...] = dataset.sets
        self.far = settings.far
        for name, _, count in self.sets:
            if count < FOLDS:
                raise UserError(
                    f"the verification set {name} has {count} pairs, and {FOLDS} folds need one each; "
                    "give it more pairs"
                )
        count = len(dataset)
        self.state = {
            "distance": np.zeros(count),
            "norm": np.zeros(count),
            "same": np.zeros(count, np.int64),
            "seen": np.zeros(count, np.int64),
            "samples": np.zeros((), np.int64),
        }

    def update(self, embeddings: np.ndarray, batch: Batch) -> None:
        """embeddings: (pairs * 2, P, d), of a pair's two pictures one after the other; `label` 1, 0 or -1 (unreadable).

        Rows that are not valid are left out, unreadable ones only counted.
        """
        read = (batch["valid"] > 0) & (batch["label"] >= 0)
        pairs = embeddings.astype(np.float64).reshape(len(read), 2, *embeddings.shape[1:])[read]
        summed = pairs.sum(2)
        with np.errstate(invalid="ignore", divide="ignore"):  # an embedding without a direction has a distance of NaN
            units = summed / np.sqrt((summed**2).sum(2, keepdims=True))
        found = {
            "distance": ((units[:, 0] - units[:, 1]) ** 2).sum(1),
            "norm": np.sqrt((pairs**2).sum(3)).mean((1, 2)),
            "same": batch["label"][read],
            "seen": 1,
        }
        for name, values in found.items():
            self.state[name][batch["pair"][read]] = values
        self.state["samples"] += np.sum(batch["valid"] > 0)

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Fractions: `accuracy`, the mean over all sets, and of each set <name>, its own accuracy, <name>_std, its
        standard deviation over folds, and <name>_tar, the true accept rate. `xnorm`: the mean length of all embeddings.

        A pair that was unreadable counts as wrong at every threshold; accept rates leave it out, since nobody knows
        which of the two it belongs to.
        """
        found: dict[str, float] = {}
        for name, first, count in self.sets:
            seen, distance, same = (state[key][first : first + count] for key in ("seen", "distance", "same"))
            seen, same = seen > 0, same > 0
            for kind, wanted in (("the same person", same), ("different persons", ~same)):
                if not wanted[seen].any():
                    raise UserError(f"the verification set {name} has no readable pair of {kind}; it needs both kinds")
            found[name], found[f"{name}_std"] = accuracy(np.where(seen, distance, np.nan), same)
            found[f"{name}_tar"] = true_accept_rate(distance[seen], same[seen], self.far)
        mean = sum(found[name] for name, _, _ in self.sets) / len(self.sets)
        return {
            "accuracy": mean,
            **found,
            "xnorm": float(state["norm"].sum() / state["seen"].sum()),
            "samples": int(state["samples"]),
        }


def accuracy(distance: np.ndarray, same: np.ndarray) -> tuple[float, float]:
    """Mean and population standard deviation of the accuracies of ten contiguous folds; (P,) and bool (P,).

    A pair is taken for the same person below a threshold, which for each fold is the lowest that is best on the nine
    others. A distance that is NaN is wrong at all of them. The protocol of LFW, as InsightFace counts it.
    """
    right = ((distance < np.arange(STEPS)[:, None] / 100) == same) & ~np.isnan(distance)  # (thresholds, P)
    folds = _folds(len(distance))
    counts = np.stack([right[:, fold].sum(1) for fold in folds])  # (folds, thresholds)
    best = (counts.sum(0) - counts).argmax(1)
    rates = [count[at] / len(fold) for count, at, fold in zip(counts, best, folds)]
    return float(np.mean(rates)), float(np.std(rates))


def true_accept_rate(distance: np.ndarray, same: np.ndarray, far: float) -> float:
    """The share of one person's pairs that are accepted where a share `far` of the others is; (P,) and bool (P,).

    The mean over ten contiguous folds, each at the threshold of the nine others: their false accept rates are counted
    at 0.000, 0.001 ... 3.999 and joined by straight lines, and it is the lowest threshold at which that line reaches
    `far`, or 0 if it never does. So rates that stand still, on which an interpolation from rate to threshold fails, do
    no harm. A fold without a pair of one person does not count. A distance that is NaN is a wrong answer.
    """
    folds, rates = _folds(len(distance)), []
    for i, fold in enumerate(folds):
        others, genuine = np.concatenate(folds[:i] + folds[i + 1 :]), distance[fold][same[fold]]
        if len(genuine):
            rates.append(np.mean(genuine < _threshold(distance[others][~same[others]], far)))
    return float(np.mean(rates))


def _threshold(impostors: np.ndarray, far: float) -> float:
    thresholds, impostors = np.arange(FINE_STEPS) / 1000, np.sort(np.nan_to_num(impostors, nan=0.0))
    rates = np.searchsorted(impostors, thresholds, side="left") / max(len(impostors), 1)  # shares below each
    if rates[-1] < far:
        return 0.0
    after = int((rates >= far).argmax())  # never the first, since nothing lies below 0
    share = (far - rates[after - 1]) / (rates[after] - rates[after - 1])
    return float(thresholds[after - 1] + share * (thresholds[after] - thresholds[after - 1]))


def _folds(count: int) -> list[np.ndarray]:
    """The indices of ten contiguous folds; the first ones have one more if they can't be equal."""
    return np.array_split(np.arange(count), FOLDS)
