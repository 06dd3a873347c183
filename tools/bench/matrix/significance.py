"""Whether one set of runs is slower than another: rank tests that permute whole runs, and the verdict."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from zoo.bench.matrix.statistics import CONFIDENCE, LogRatio, quantile

ALPHA = 1 - CONFIDENCE
MAX_EXACT = 20_000  # permutations that are enumerated; beyond it, this many are drawn
MAX_REPEATS = 100  # no advice to repeat more often
LEAST_RUNS = {False: 4, True: 6}  # with fewer runs of each, or fewer pairs, no rank test can reach ALPHA


class RankTest(NamedTuple):
    """A rank test of the runs b against the runs a.

    Attributes:
        share: share of the pairs of values of which b's is the larger; ties count half.
        p: two-sided probability of a share this far from 1/2 if a and b are alike.
    """

    share: float
    p: float


class Verdict(NamedTuple):
    """What runs tell about the speed of b relative to a.

    Attributes:
        name: "slower" or "faster": by the margin at least, and significant; "no slowdown": the interval excludes a
            slowdown by the margin; "cannot tell".
        repeats: runs of each that would tell, as far as the noise so far shows; None if this is not needed, or more
            than MAX_REPEATS.
    """

    name: str
    repeats: int | None = None


def mann_whitney(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], seed: int = 0) -> RankTest:
    """Compare values of runs by Mann and Whitney's U, with whole runs as the unit of the permutation.

    With one value per run this is the usual exact test. With the steps of runs, it allows for steps of the same run
    being alike, which the usual test takes for evidence.

    Args:
        a, b: values of each run.
        seed: of the permutations, if there are too many for all.
    """
    runs = [np.sort(np.asarray(run, float)) for run in (*a, *b)]
    larger = np.array([[_share_larger(one, other) for other in runs] for one in runs])
    picked = _divisions(len(runs), len(a), seed)
    is_b = np.ones((len(picked), len(runs)))
    is_b[np.arange(len(picked))[:, None], picked] = 0
    shares = np.einsum("ki,ij,kj->k", 1 - is_b, larger, is_b) / (len(a) * len(b))
    share = float(larger[: len(a), len(a) :].mean())
    return RankTest(share, _two_sided(shares - 0.5, share - 0.5))


def signed_rank(differences: Sequence[float], seed: int = 0) -> RankTest:
    """Test whether differences of pairs are symmetric about 0, by Wilcoxon's signed ranks."""
    values = np.asarray(differences, float)
    magnitudes = np.abs(values)
    ranks = np.array([(magnitudes < m).sum() + ((magnitudes == m).sum() + 1) / 2 for m in magnitudes])
    return RankTest(float(((values > 0) + 0.5 * (values == 0)).mean()), _sign_flips(ranks * np.sign(values), seed))


def paired_steps(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], seed: int = 0) -> RankTest:
    """Compare the steps of runs round by round, with whole rounds as the unit: a[i] and b[i] are one round."""
    shares = np.array([_share_larger(np.sort(np.asarray(x, float)), np.asarray(y, float)) for x, y in zip(a, b)])
    return RankTest(float(shares.mean()), _sign_flips(shares - 0.5, seed))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjust probabilities of several tests, so that any false one has the probability of a single test (Holm)."""
    order = np.argsort(probabilities, kind="stable")
    adjusted, largest = [0.0] * len(order), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * probabilities[index]))
        adjusted[index] = largest
    return adjusted


def judge(ratio: LogRatio, adjusted_p: float, rank_p: float, runs: int, paired: bool, margin: float) -> Verdict:
    """Return the verdict on a case.

    Args:
        ratio: of the throughputs b / a.
        adjusted_p: of the ratio, adjusted for the number of cases.
        rank_p: of the rank test on the runs.
        runs: number of runs of each, the smaller of the two; of pairs if they are paired.
        paired: whether the runs are paired.
        margin: slowdown that matters, as a fraction: 0.03.
    """
    slowdown, limit = -ratio.value, -math.log1p(-margin)
    if adjusted_p < ALPHA and rank_p < ALPHA and abs(slowdown) >= limit:
        return Verdict("slower" if slowdown > 0 else "faster")
    if slowdown + ratio.half_width < limit:
        return Verdict("no slowdown")
    needed = slowdown if slowdown >= limit else limit - slowdown  # half width of an interval that would tell
    return Verdict("cannot tell", _repeats(ratio.error * math.sqrt(runs), needed, runs, paired))


def _repeats(deviation: float, half_width: float, runs: int, paired: bool) -> int | None:
    """Return how many runs narrow an interval down. deviation: standard error of the ratio with one run of each."""

    def tells(count: int) -> bool:
        return quantile((count - 1) * (1 if paired else 2)) * deviation / math.sqrt(count) < half_width

    counts = range(max(runs + 1, LEAST_RUNS[paired]), MAX_REPEATS + 1)
    index = bisect_left(counts, True, key=tells)
    return counts[index] if index < len(counts) else None


def _share_larger(one: np.ndarray, other: np.ndarray) -> float:
    """Return the share of pairs in which the value of `other` is larger; ties count half. one: sorted."""
    below, up_to = np.searchsorted(one, other, "left"), np.searchsorted(one, other, "right")
    return float((below + up_to).sum() / (2 * len(one) * len(other)))


def _divisions(total: int, size: int, seed: int) -> np.ndarray:
    """Return index sets of `size` runs out of `total`: all, or as many random ones as may be computed."""
    if math.comb(total, size) <= MAX_EXACT:
        return np.array(list(combinations(range(total), size)))
    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(total)[:size] for _ in range(MAX_EXACT - 1)]
    return np.array([np.arange(size), *drawn])  # the observed division is one of those that are possible


def _sign_flips(scores: np.ndarray, seed: int) -> float:
    """Return the two-sided probability of a sum of scores whose signs are random."""
    count = len(scores)
    if 2**count <= MAX_EXACT:
        signs = np.array(list(product((1, -1), repeat=count)))
    else:
        signs = np.random.default_rng(seed).choice((1, -1), (MAX_EXACT, count))
        signs[0] = 1
    return _two_sided(signs @ scores, float(scores.sum()))


def _two_sided(possible: np.ndarray, observed: float) -> float:
    """Return the share of possible values at least as far from 0 as the observed one."""
    return float((np.abs(possible) >= abs(observed) - 1e-9).mean())
