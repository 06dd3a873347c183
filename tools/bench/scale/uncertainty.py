"""Error bars: predictions from calibrations that are drawn again, with an error of the model itself."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.bench.scale import collectives, model
from zoo.bench.scale.calibration import Calibration, Run
from zoo.bench.scale.cluster import Cluster, doublings
from zoo.bench.scale.collectives import Link

DRAWS = 200
INTERVAL = (5, 95)  # percentiles
# Standard deviations of the logarithm of a prediction beyond what was measured. 68 % of the independent tables in
# tools/bench/scale/dlperf.py have smaller errors.
PER_HOST_DOUBLING = 0.036  # beyond the hosts of a measured run
FIRST_HOSTS = 0.13  # from one host to several when no run on several hosts was measured
PER_CARD_DOUBLING = 0.052  # beyond the processes of a measured run within a host


class Interval(NamedTuple):
    """Samples per second: 5th and 95th percentile."""

    low: float
    high: float


def intervals(
    calibration: Calibration, clusters: Sequence[Cluster], inter: Link | None = None, draws: int = DRAWS, seed: int = 0
) -> list[Interval]:
    """Compute the error bars of predictions.

    Each draw resamples the rounds and the timed updates within, the passes over the input and the runs, varies the
    all-reduces by the spread around their fit, takes any overlap from none to the ideal one where no run has shown it,
    and multiplies by an error of the model that grows with the distance from what was measured.

    Args:
        calibration: what was measured.
        clusters: to predict.
        inter: link between hosts, if it is known.
        draws: number of repetitions.
        seed: of the draws.
    """
    generator = np.random.default_rng(seed)
    spread = collectives.fit_link(calibration.sweep).spread if calibration.sweep else 0.0
    errors = np.array([model_error(calibration, cluster) for cluster in clusters])
    rates = []
    for _ in range(draws):
        drawn = model.build(_resample(calibration, spread, generator), inter)
        if not _shows_overlap(calibration):
            drawn = drawn._replace(overlap=generator.uniform(0, max(model.ideal_overlap(calibration), 1e-9)))
        predicted = np.array([model.predict(drawn, cluster).samples_per_s for cluster in clusters])
        rates.append(predicted * np.exp(errors * generator.standard_normal()))
    low, high = np.percentile(rates, INTERVAL, axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high)]


def model_error(calibration: Calibration, cluster: Cluster) -> float:
    """Return the standard deviation of the logarithm of a prediction that is due to the model."""
    runs = [run.cluster for run in calibration.runs]
    cards = max((run.cards for run in runs), default=1)
    hosts = max((run.hosts for run in runs), default=1)
    variance = doublings(cards, cluster.cards) * PER_CARD_DOUBLING**2
    if cluster.hosts > 1 and hosts == 1:
        variance += FIRST_HOSTS**2
    variance += doublings(max(hosts, 2), cluster.hosts) * PER_HOST_DOUBLING**2
    return float(np.sqrt(variance))


def _shows_overlap(calibration: Calibration) -> bool:
    return any(run.cluster.hosts == 1 and run.cluster.cards > 1 for run in calibration.runs)


def _resample(calibration: Calibration, spread: float, generator: np.random.Generator) -> Calibration:
    def again(values: Sequence[float]) -> list[float]:
        return list(generator.choice(values, len(values)))

    def pick(count: int) -> np.ndarray:
        return generator.integers(count, size=count)

    factor = float(np.exp(spread * generator.standard_normal()))  # shared: other sizes are off in the same direction
    return calibration._replace(
        steps={n: [again(rounds[i]) for i in pick(len(rounds))] for n, rounds in calibration.steps.items()},
        input={n: again(values) for n, values in calibration.input.items()},
        sweep=[sample._replace(seconds=sample.seconds * factor) for sample in calibration.sweep],
        runs=[Run(run.cluster, again(run.seconds)) for run in calibration.runs],
    )
