"""Order statistics: how long the slowest of n processes takes, when all wait for each other after each update."""

from collections.abc import Sequence

import numpy as np

TAIL = 0.9  # quantile beyond which a measured distribution is continued as an exponential one
POINTS = 4000  # of the numerical integral


def expected_maximum(sample: Sequence[float] | np.ndarray, n: int) -> float:
    """Estimate the mean of the largest of n independent draws; that of one draw is the sample's mean.

    A sample has no values as rare as one in n draws. So the distribution beyond its TAIL quantile is an exponential one
    with the mean excess that was measured there.

    Args:
        sample: measured values.
        n: number of draws, at least 1.
    """
    values = np.sort(np.asarray(sample, float))
    if n == 1:
        return float(values.mean())
    edge = float(np.quantile(values, TAIL))
    beyond = values[values > edge]
    excess = float(beyond.mean() - edge) if len(beyond) else 0.0
    v = (np.arange(POINTS) + 0.5) / POINTS

    def mean_of_maximum(draws: int) -> float:
        """Integrate the quantile function at v^(1/draws) over v."""
        u = v ** (1 / draws)
        tail = np.where(u > TAIL, excess * np.log((1 - TAIL) / np.maximum(1 - u, 1e-300)), 0.0)
        return float((np.quantile(values, np.minimum(u, TAIL)) + tail).mean())

    return float(values.mean()) + mean_of_maximum(n) - mean_of_maximum(1)
