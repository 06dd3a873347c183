"""The closed form of the time of an update on any number of hosts and cards, and the error bars of its predictions.

All-reduces take a latency and a bandwidth per link. Within a host, a ring: 2(p-1) messages of 1/p of the bytes, one
after the other. Between hosts, recursive halving and doubling: 2 log2(h) messages, of 1/2, 1/4 ... of the bytes and
back. So each host sends 2(p-1)/p and 2(h-1)/h of the bytes, which is the least possible, and the latency grows with the
logarithm of the hosts.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evidence.scale.calibration import Calibration, Sample
from zoo.bench.options import Cluster
from zoo.data.errors import UserError
from zoo.data.extras import optimize

BACKWARD = 2 / 3  # share of the backward pass in the computing of an update: twice the operations of the forward pass
SMALL = 4096  # bytes of the statistics of a synchronized batch norm
TAIL = 0.9  # quantile beyond which a measured distribution is continued as an exponential one
POINTS = 4000  # of the numerical integral
DRAWS = 200
INTERVAL = (5, 95)  # percentiles
# Standard deviations of the logarithm of a prediction beyond what was measured. 68 % of the independent tables in
# published.csv have smaller errors.
PER_HOST_DOUBLING = 0.036  # beyond two hosts
FIRST_HOSTS = 0.13  # from one host to several
PER_CARD_DOUBLING = 0.052  # beyond the processes of a measured run within a host


class Link(NamedTuple):
    """A connection between two cards or two hosts."""

    latency: float  # seconds per message
    seconds_per_byte: float  # 1 / bandwidth


def share_sent(n: int) -> float:
    """Return the share of the bytes that each of n participants sends in an all-reduce: 2(n-1)/n."""
    return 2 * (n - 1) / n


def host_rounds(hosts: int) -> int:
    """Return the messages, one after the other, of an all-reduce between hosts."""
    return 2 * math.ceil(math.log2(hosts))


def within_host(link: Link, processes: int, size: float) -> float:
    """Return the seconds of an all-reduce of `size` bytes between the processes of a host."""
    return 2 * (processes - 1) * link.latency + share_sent(processes) * size * link.seconds_per_byte


def between_hosts(link: Link, hosts: int, size: float) -> float:
    """Return the seconds of an all-reduce of `size` bytes between hosts."""
    return host_rounds(hosts) * link.latency + share_sent(hosts) * size * link.seconds_per_byte


def all_reduce(intra: Link, inter: Link, cluster: Cluster, size: float) -> float:
    """Return the seconds of an all-reduce of `size` bytes: within each host, then between hosts."""
    return within_host(intra, cluster.cards, size) + between_hosts(inter, cluster.hosts, size)


def bucketed(intra: Link, inter: Link, cluster: Cluster, size: float, buckets: int) -> float:
    """Return the seconds of all-reduces of `size` bytes in equal buckets, one after the other."""
    return buckets * all_reduce(intra, inter, cluster, size / buckets)


def all_gather(intra: Link, inter: Link, cluster: Cluster, size: float) -> float:
    """Return the seconds in which every process receives `size` bytes from each of the others."""
    seconds = (cluster.cards - 1) * (intra.latency + size * intra.seconds_per_byte)
    received = (cluster.hosts - 1) * cluster.cards * size
    return seconds + host_rounds(cluster.hosts) / 2 * inter.latency + received * inter.seconds_per_byte


def fit_link(samples: Sequence[Sample]) -> tuple[Link, float]:
    """Fit the link within a host to timed all-reduces by least squares of relative errors; neither term is negative.

    Args:
        samples: all-reduces of at least two sizes, with 2 processes or more.

    Returns:
        The link, and the spread of the measurements around it: standard deviation of the logarithm.
    """
    seconds = np.array([sample.seconds for sample in samples])
    rounds = np.array([2 * (sample.processes - 1) for sample in samples], float)
    sent = np.array([share_sent(sample.processes) * sample.size for sample in samples])
    matrix = np.stack([rounds, sent], 1) / seconds[:, None]
    units = matrix.max(axis=0)  # numbers of a similar size
    solution = optimize.nnls(matrix / units, np.ones(len(samples)))[0] / units
    spread = float(np.sqrt(np.mean(np.log(matrix @ solution) ** 2)))
    return Link(*map(float, solution)), spread


NO_LINK = Link(0.0, 0.0)


def expected_maximum(sample: Sequence[float] | np.ndarray, n: int) -> float:
    """Estimate the mean of the largest of n independent draws; that of one draw is the sample's mean.

    A sample has no values as rare as one in n draws. So the distribution beyond its TAIL quantile is an exponential one
    with the mean excess that was measured there.
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


class Prediction(NamedTuple):
    """The mean time of an update and its parts, in seconds."""

    cluster: Cluster  # hosts and cards
    samples: int  # per update, over all processes
    seconds: float  # mean time of an update
    compute: float  # computing time of a process on average, beside the others of its host
    waiting: float  # for the slowest process
    all_reduce: float  # time of the messages that the backward pass does not hide
    input: float  # time to read the samples of an update; in parallel with all else

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    @property
    def limit(self) -> str:
        """The longest part: compute (with the wait for the slowest), all-reduce or input."""
        parts = {"compute": self.compute + self.waiting, "all-reduce": self.all_reduce}
        return "input" if self.input >= self.seconds else max(parts, key=lambda name: parts[name])


class Model(NamedTuple):
    """A calibration with what is derived from it once."""

    calibration: Calibration  # what was measured
    intra: Link | None  # link between the cards of a host; None if no all-reduce was timed
    inter: Link | None  # link between hosts; None if it is not known
    overlap: float  # share of the backward pass during which all-reduces progress
    # seconds that the messages of a measured run took beyond all this, per share that a card sends
    surplus: float = 0.0


def build(calibration: Calibration, inter: Link | None = None) -> Model:
    """Derive the model of a calibration. inter: link between hosts, if it is known."""
    intra = fit_link(calibration.sweep)[0] if calibration.sweep else None
    # On a CPU the messages take the time of the cores that compute.
    overlap = 0.0 if calibration.is_cpu else ideal_overlap(calibration)
    model = Model(calibration, intra, inter, overlap)
    return _fit_run(model, max(calibration.runs)) if intra and calibration.runs else model


def ideal_overlap(calibration: Calibration) -> float:
    """Return the share of the backward pass from the first ready bucket to its end.

    Buckets become ready evenly during the backward pass, the first one after its own share of it.
    """
    return 1 - 1 / calibration.messages.buckets


def predict(model: Model, cluster: Cluster) -> Prediction:
    """Predict the time of an update.

    Raises:
        UserError: the calibration lacks what the prediction needs.
    """
    if cluster.hosts > 1 and model.inter is None:
        raise UserError(
            f"{cluster}: nothing is known of the connection between hosts; give --inter-bandwidth and --inter-latency"
        )
    if cluster.cards > 1 and model.intra is None:
        raise UserError(
            f"{cluster}: the calibration has no all-reduce within a host; calibrate with --processes 1,2 or more"
        )
    intra, inter = model.intra or NO_LINK, model.inter or NO_LINK
    calibration, messages = model.calibration, model.calibration.messages
    own = calibration.seconds_of(cluster.cards)
    compute = expected_maximum(own, 1)
    slowest = expected_maximum(own, cluster.size)
    sent = 0.0
    if cluster.size > 1:
        seconds = bucketed(intra, inter, cluster, messages.gradients, messages.buckets)
        sent = max(seconds / messages.buckets, seconds - model.overlap * BACKWARD * compute)  # the last one is exposed
        sent += messages.synchronized * all_reduce(intra, inter, cluster, SMALL)
        sent += 2 * all_gather(intra, inter, cluster, messages.gathered) if messages.gathered else 0.0
        sent += model.surplus * share_sent(cluster.cards)
    reading = cluster.cards * calibration.batch / calibration.input_rate(cluster.cards)
    total = max(slowest + sent, reading)
    return Prediction(cluster, cluster.size * calibration.batch, total, compute, slowest - compute, sent, reading)


def _fit_run(model: Model, processes: int) -> Model:
    """Return the model that comes closest to a measured run: by its overlap, or by a surplus if it has none."""
    without = predict(model._replace(overlap=0.0), Cluster(1, processes))
    measured = float(np.mean(model.calibration.runs[processes]))
    hidden = without.compute + without.waiting + without.all_reduce - measured
    if hidden < 0:
        return model._replace(overlap=0.0, surplus=-hidden / share_sent(processes))
    overlap = hidden / (BACKWARD * without.compute)
    return model._replace(overlap=min(overlap, ideal_overlap(model.calibration)))


def intervals(
    calibration: Calibration, clusters: Sequence[Cluster], inter: Link | None = None
) -> list[tuple[float, float]]:
    """Compute the error bars of predictions: the 5th and the 95th percentile of the samples per second.

    Each draw resamples the rounds and the timed updates within, the passes over the input and the runs, varies the
    all-reduces by the spread around their fit, takes any overlap from none to the ideal one where no run has shown it,
    and multiplies by an error of the model that grows with the distance from what was measured.
    """
    generator = np.random.default_rng(0)
    spread = fit_link(calibration.sweep)[1] if calibration.sweep else 0.0
    errors = np.array([model_error(calibration, cluster) for cluster in clusters])
    rates = []
    for _ in range(DRAWS):
        drawn = build(_resample(calibration, spread, generator), inter)
        if not calibration.runs:
            drawn = drawn._replace(overlap=generator.uniform(0, max(ideal_overlap(calibration), 1e-9)))
        predicted = np.array([predict(drawn, cluster).samples_per_s for cluster in clusters])
        rates.append(predicted * np.exp(errors * generator.standard_normal()))
    low, high = np.percentile(rates, INTERVAL, axis=0)
    return [(float(a), float(b)) for a, b in zip(low, high)]


def model_error(calibration: Calibration, cluster: Cluster) -> float:
    """Return the standard deviation of the logarithm of a prediction that is due to the model."""
    variance = max(math.log2(cluster.cards / max(calibration.runs, default=1)), 0.0) * PER_CARD_DOUBLING**2
    if cluster.hosts > 1:
        variance += FIRST_HOSTS**2 + math.log2(cluster.hosts / 2) * PER_HOST_DOUBLING**2
    return math.sqrt(variance)


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
        runs={n: again(seconds) for n, seconds in calibration.runs.items()},
    )
