"""Statistics of repeated runs, whose unit is the run: medians, ratios, rank tests, and the verdict on two sets of runs.

The steps of a run are no independent measurements: neighbours are alike, and all of them share the state that the
machine was in. So the bootstrap draws whole runs. Its standard error, corrected for few runs, makes the interval with
Student's t.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from zoo.data.extras import stats

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
RESAMPLES = 2000
MEDIAN_FACTOR = math.sqrt(math.pi / 2)  # standard error of a median / that of a mean, for normally distributed values
MAX_REPEATS = 100  # no advice to repeat more often
WIDE = 4.0  # an interval whose ends differ by this factor says nothing; the files have it nevertheless
LEAST_RUNS = {False: 4, True: 6}  # with fewer runs of each, or fewer pairs, no rank test can reach ALPHA


class Summary(NamedTuple):
    """Statistics of a case's runs."""

    # median, mean, least, most: of the runs' values
    median: float
    mean: float
    least: float
    most: float
    # low, high: confidence interval of the median; None for a single run
    low: float | None = None
    high: float | None = None
    # coefficient of variation of the runs: sample standard deviation / mean; None for a single run
    cv: float | None = None
    median_cv: float | None = None  # coefficient of variation of the median, which more runs make smaller

    @property
    def is_noisy(self) -> bool:
        return self.low is not None and self.high is not None and self.high >= WIDE * self.low


class LogRatio(NamedTuple):
    """Logarithm of a ratio of two sets of runs, its standard error, and the degrees of freedom of the error."""

    value: float
    error: float
    degrees: int

    @property
    def half_width(self) -> float:
        return float(stats.t.isf(ALPHA / 2, self.degrees)) * self.error

    @property
    def p(self) -> float:
        """Two-sided probability of a ratio this far from 1 if the true one is 1, by Student's t."""
        if not self.error:
            return 1.0 if not self.value else 0.0
        return 2 * float(stats.t.sf(abs(self.value) / self.error, self.degrees))


class SpeedChange(NamedTuple):
    """The verdict on the speed of b relative to a."""

    # "slower" or "faster": by the margin at least, and significant; "no slowdown": the interval excludes a slowdown by
    # the margin; "cannot tell"
    name: str
    # runs of each that would tell, as far as the noise so far shows; None if this is not needed, or more than
    # MAX_REPEATS
    repeats: int | None = None


def interval(median: float, half_width: float) -> tuple[float, float]:
    """Return the ends of an interval whose half width is that of the logarithm."""
    low, high = median * np.exp(np.clip([-half_width, half_width], -700, 700))
    return float(low), float(high)


def summarize(values: Sequence[float]) -> Summary:
    """Return the statistics of samples per second of the runs of a case."""
    count, mean, median = len(values), float(np.mean(values)), float(np.median(values))
    summary = Summary(median, mean, float(min(values)), float(max(values)))
    if count == 1:
        return summary
    cv = float(stats.variation(values, ddof=1))
    median_cv = (MEDIAN_FACTOR if count > 2 else 1.0) * cv / math.sqrt(count)
    error = bootstrap_error(np.log(values), np.median)
    low, high = interval(median, LogRatio(0.0, error, count - 1).half_width)
    return summary._replace(low=low, high=high, cv=cv, median_cv=median_cv)


def log_ratio(a: Sequence[float], b: Sequence[float], paired: bool) -> LogRatio:
    """Return the logarithm of b / a, each of at least two runs: of the ratio of their medians, if they are not paired.

    If a[i] and b[i] belong to the same round, what both have in common cancels, and the value is Hodges and Lehmann's
    estimate, the median of the means of all pairs of rounds: it belongs to the test of signed ranks, and needs two
    thirds of the rounds that the median ratio of a round would need.
    """
    logs_a, logs_b = np.log(a), np.log(b)
    if paired:
        differences = logs_b - logs_a
        error = bootstrap_error(differences, pair_median)
        return LogRatio(float(pair_median(differences)), error, len(differences) - 1)
    variances = [bootstrap_error(logs, np.median) ** 2 for logs in (logs_a, logs_b)]
    total = sum(variances)
    spread = sum(variance**2 / (len(logs) - 1) for variance, logs in zip(variances, (logs_a, logs_b)))
    degrees = int(total**2 / spread) if spread else 1  # Welch and Satterthwaite, rounded down
    return LogRatio(float(np.median(logs_b) - np.median(logs_a)), math.sqrt(total), max(degrees, 1))


def pair_median(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the medians of the means of all pairs of values of the last axis, each value with itself too."""
    one, other = np.triu_indices(values.shape[axis])
    return np.median((values[..., one] + values[..., other]) / 2, axis=axis)


def bootstrap_error(values: np.ndarray, estimate: Callable[..., np.ndarray]) -> float:
    """Return the standard error of an estimate (values, axis) of n values, without the bias of few values."""
    found = stats.bootstrap(
        (values,), estimate, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(0)
    )
    return float(found.standard_error) * math.sqrt(len(values) / (len(values) - 1))


def rank_test(a: Sequence[float], b: Sequence[float], paired: bool) -> float:
    """Return the two-sided probability that runs are alike: by Mann and Whitney's U, or Wilcoxon's signed ranks."""
    if not paired:
        return float(stats.mannwhitneyu(a, b, method="exact").pvalue)
    differences = np.log(b) - np.log(a)
    return float(stats.wilcoxon(differences).pvalue) if differences.any() else 1.0


def holm(probabilities: Sequence[float]) -> list[float]:
    """Adjust probabilities of several tests, so that any false one has the probability of a single test (Holm)."""
    order = np.argsort(probabilities, kind="stable")
    stepped = np.asarray(probabilities)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1)
    return adjusted.tolist()


def judge(ratio: LogRatio, adjusted_p: float, rank_p: float, runs: int, paired: bool, margin: float) -> SpeedChange:
    """Return the verdict on a case.

    Args:
        runs: number of runs of each, the smaller of the two; of pairs if they are paired.
        margin: slowdown that matters, as a fraction: 0.03.
    """
    slowdown, limit = -ratio.value, -math.log1p(-margin)
    if adjusted_p < ALPHA and rank_p < ALPHA and abs(slowdown) >= limit:
        return SpeedChange("slower" if slowdown > 0 else "faster")
    if slowdown + ratio.half_width < limit:
        return SpeedChange("no slowdown")
    needed = slowdown if slowdown >= limit else limit - slowdown  # half width of an interval that would tell
    return SpeedChange("cannot tell", _repeats(ratio.error * math.sqrt(runs), needed, runs, paired))


def _repeats(deviation: float, half_width: float, runs: int, paired: bool) -> int | None:
    """Return how many runs narrow an interval down. deviation: standard error of the ratio with one run of each."""
    counts = np.arange(max(runs + 1, LEAST_RUNS[paired]), MAX_REPEATS + 1)
    widths = stats.t.isf(ALPHA / 2, (counts - 1) * (1 if paired else 2)) * deviation / np.sqrt(counts)
    return next((int(count) for count in counts[widths < half_width]), None)
