"""Statistics of repeated runs, whose unit is the run.

The steps of a run are no independent measurements: neighbours are alike, and all of them share the state that the
machine was in. The spread of the runs' values holds both, the noise of the steps and the state of the machine, so the
bootstrap draws whole runs. Its standard error, corrected for few runs, makes the interval with Student's t.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from zoo.compare.seed_tables import t_probability, t_quantile

CONFIDENCE = 0.95
RESAMPLES = 2000
MEDIAN_FACTOR = math.sqrt(math.pi / 2)  # standard error of a median / that of a mean, for normally distributed values


class Summary(NamedTuple):
    """Statistics of a case's runs.

    Attributes:
        runs: their number.
        median, mean, least, most: of the runs' values.
        low, high: confidence interval of the median; None for a single run.
        cv: coefficient of variation of the runs: sample standard deviation / mean; None for a single run.
        median_cv: coefficient of variation of the median, which more runs make smaller.
    """

    runs: int
    median: float
    mean: float
    least: float
    most: float
    low: float | None
    high: float | None
    cv: float | None
    median_cv: float | None


class LogRatio(NamedTuple):
    """Logarithm of a ratio of two sets of runs.

    Attributes:
        value: the logarithm.
        error: its standard error.
        degrees: degrees of freedom of the error.
    """

    value: float
    error: float
    degrees: int

    @property
    def half_width(self) -> float:
        """Half the width of the confidence interval."""
        return quantile(self.degrees) * self.error

    @property
    def p(self) -> float:
        """Two-sided probability of a ratio this far from 1 if the true one is 1, by Student's t."""
        if not self.error:
            return 1.0 if not self.value else 0.0
        return 1 - t_probability(abs(self.value) / self.error, self.degrees)


@cache
def quantile(degrees: int) -> float:
    """Return half the width of a confidence interval in standard errors."""
    return t_quantile(CONFIDENCE, degrees)


def summarize(values: Sequence[float], seed: int = 0) -> Summary:
    """Return the statistics of the runs of a case.

    Args:
        values: samples per second of each run.
        seed: of the bootstrap.
    """
    count, mean, median = len(values), float(np.mean(values)), float(np.median(values))
    low = high = cv = median_cv = None
    if count > 1:
        cv = float(np.std(values, ddof=1)) / mean
        median_cv = (MEDIAN_FACTOR if count > 2 else 1.0) * cv / math.sqrt(count)
        error = bootstrap_error(np.log(values), row_median, np.random.default_rng(seed))
        width = quantile(count - 1) * error
        low, high = median * math.exp(-width), median * math.exp(width)
    return Summary(count, median, mean, float(min(values)), float(max(values)), low, high, cv, median_cv)


def log_ratio(a: Sequence[float], b: Sequence[float], paired: bool, seed: int = 0) -> LogRatio:
    """Return the logarithm of b / a, each of at least two runs: of the ratio of their medians, if they are not paired.

    Args:
        a, b: values of the runs.
        paired: whether a[i] and b[i] belong to the same round. Then what both have in common cancels, and the value is
            Hodges and Lehmann's estimate, the median of the means of all pairs of rounds: it belongs to the test of
            signed ranks, and needs two thirds of the rounds that the median ratio of a round would need.
        seed: of the bootstrap.
    """
    rng = np.random.default_rng(seed)
    logs_a, logs_b = np.log(a), np.log(b)
    if paired:
        differences = logs_b - logs_a
        error = bootstrap_error(differences, pair_median, rng)
        return LogRatio(float(pair_median(differences)), error, len(differences) - 1)
    variances = [bootstrap_error(logs, row_median, rng) ** 2 for logs in (logs_a, logs_b)]
    total = sum(variances)
    spread = sum(variance**2 / (len(logs) - 1) for variance, logs in zip(variances, (logs_a, logs_b)))
    degrees = int(total**2 / spread) if spread else 1  # Welch and Satterthwaite, rounded down
    return LogRatio(float(np.median(logs_b) - np.median(logs_a)), math.sqrt(total), max(degrees, 1))


def row_median(values: np.ndarray) -> np.ndarray:
    """Return the medians over the last axis."""
    return np.median(values, axis=-1)


def pair_median(values: np.ndarray) -> np.ndarray:
    """Return the medians of the means of all pairs of values of the last axis, each value with itself too."""
    one, other = np.triu_indices(values.shape[-1])
    return row_median((values[..., one] + values[..., other]) / 2)


def bootstrap_error(
    values: np.ndarray, estimate: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator
) -> float:
    """Return the standard error of an estimate by the bootstrap, without the bias of few values.

    Args:
        values: (n,).
        estimate: (..., n) -> (...).
        rng: draws the values.
    """
    count = len(values)
    picks = rng.integers(0, count, (RESAMPLES, count))
    return float(np.std(estimate(values[picks]))) * math.sqrt(count / (count - 1))
