"""The closed form: the time of an update on any number of hosts and cards."""

import math
from typing import NamedTuple

import numpy as np

from zoo.bench.scale import collectives
from zoo.bench.scale.calibration import Calibration, Messages, Run
from zoo.bench.scale.cluster import Cluster
from zoo.bench.scale.collectives import Link
from zoo.bench.scale.order import expected_maximum
from zoo.data.errors import UserError

BACKWARD = 2 / 3  # share of the backward pass in the computing of an update: twice the operations of the forward pass
SMALL = 4096  # bytes of the statistics of a synchronized batch norm
NO_LINK = Link(0.0, 0.0)


class Prediction(NamedTuple):
    """The mean time of an update and its parts, in seconds.

    Attributes:
        cluster: hosts and cards.
        samples: per update, over all processes.
        seconds: of an update.
        compute: of a process on average, beside the others of its host.
        waiting: for the slowest process.
        all_reduce: what of the messages the backward pass does not hide.
        input: in which a host reads the samples of an update; in parallel with all else.
    """

    cluster: Cluster
    samples: int
    seconds: float
    compute: float
    waiting: float
    all_reduce: float
    input: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    @property
    def limit(self) -> str:
        """The longest part: compute (with the wait for the slowest), all-reduce or input."""
        parts = {"compute": self.compute + self.waiting, "all-reduce": self.all_reduce}
        return "input" if self.input >= self.seconds else max(parts, key=lambda name: parts[name])


class Model(NamedTuple):
    """A calibration with what is derived from it once.

    Attributes:
        calibration: what was measured.
        intra: link between the cards of a host; None if no all-reduce was timed.
        inter: link between hosts; None if it is not known.
        overlap: share of the backward pass during which all-reduces progress.
        surplus: seconds that messages of a run on one host took beyond all this, per share that a card sends.
        between: run on several hosts that the growth with the hosts is taken from, before `inter`.
    """

    calibration: Calibration
    intra: Link | None
    inter: Link | None
    overlap: float
    between: Run | None
    surplus: float = 0.0


def build(calibration: Calibration, inter: Link | None = None) -> Model:
    """Derive the model of a calibration. inter: link between hosts, if it is known."""
    intra = collectives.fit_link(calibration.sweep).link if calibration.sweep else None
    largest = max((run for run in calibration.runs if run.cluster.hosts > 1), key=_hosts_of, default=None)
    model = Model(calibration, intra, inter, default_overlap(calibration), largest)
    local = [run for run in calibration.runs if run.cluster.hosts == 1 and run.cluster.cards > 1]
    if intra and local:
        return _fit_run(model, max(local, key=lambda run: run.cluster.cards))
    return model


def predict(model: Model, cluster: Cluster) -> Prediction:
    """Predict the time of an update.

    Raises:
        UserError: the calibration lacks what the prediction needs.
    """
    if cluster.hosts > 1 and model.between:
        return _grow(model, model.between, cluster)
    if cluster.hosts > 1 and model.inter is None:
        raise UserError(
            f"{cluster}: nothing is known of the connection between hosts; give --inter-bandwidth and --inter-latency, "
            "or add a run on several hosts to `runs` of the calibration"
        )
    return _sum(model, cluster, model.inter or NO_LINK)


def growth(hosts: int, messages: Messages) -> float:
    """Return what the time between hosts is proportional to.

    That of gradients to the bytes that a host sends, 2(h-1)/h; that of many small all-reduces to the messages one after
    the other, log2(h).
    """
    return math.log2(hosts) if messages.synchronized else collectives.share_sent(hosts)


def default_overlap(calibration: Calibration) -> float:
    """Return the share of the backward pass that hides all-reduces where no run has shown it.

    Buckets become ready evenly during the backward pass, the first one after its own share of it. On a CPU the messages
    take the time of the cores that compute.
    """
    return 0.0 if calibration.is_cpu else ideal_overlap(calibration)


def ideal_overlap(calibration: Calibration) -> float:
    """Return the share of the backward pass from the first ready bucket to its end."""
    return 1 - 1 / calibration.messages.buckets


def exposed(seconds: float, buckets: int, window: float) -> float:
    """Return what of all-reduces of `seconds` in all is not hidden: the last bucket at least.

    Args:
        seconds: of all buckets.
        buckets: their number.
        window: seconds of the backward pass during which they progress.
    """
    return max(seconds / buckets, seconds - window)


def _sum(model: Model, cluster: Cluster, inter: Link) -> Prediction:
    """Add up the parts for a link between hosts."""
    calibration, messages = model.calibration, model.calibration.messages
    own = calibration.seconds_of(cluster.cards)
    compute = expected_maximum(own, 1)
    slowest = expected_maximum(own, cluster.size)
    all_reduce = 0.0
    if cluster.size > 1:
        intra = _intra(model, cluster)
        seconds = collectives.bucketed(intra, inter, cluster, messages.gradients, messages.buckets)
        all_reduce = exposed(seconds, messages.buckets, model.overlap * BACKWARD * compute)
        all_reduce += messages.synchronized * collectives.all_reduce(intra, inter, cluster, SMALL)
        all_reduce += 2 * collectives.all_gather(intra, inter, cluster, messages.gathered) if messages.gathered else 0.0
        all_reduce += model.surplus * collectives.share_sent(cluster.cards)
    reading = cluster.cards * calibration.batch / calibration.input_rate(cluster.cards)
    total = max(slowest + all_reduce, reading)
    return Prediction(cluster, cluster.size * calibration.batch, total, compute, slowest - compute, all_reduce, reading)


def _grow(model: Model, run: Run, cluster: Cluster) -> Prediction:
    """Continue the time between hosts of a measured run: T(h) = T(1) + (T(h0) - T(1)) growth(h) / growth(h0)."""
    one_host = _sum(model, Cluster(1, cluster.cards), NO_LINK)
    base = _sum(model, Cluster(1, run.cluster.cards), NO_LINK)
    excess = max(float(np.mean(run.seconds)) - base.seconds, 0.0)
    messages = model.calibration.messages
    between = excess * growth(cluster.hosts, messages) / growth(run.cluster.hosts, messages)
    return one_host._replace(
        cluster=cluster,
        samples=cluster.size * model.calibration.batch,
        seconds=one_host.seconds + between,
        all_reduce=one_host.all_reduce + between,
    )


def _intra(model: Model, cluster: Cluster) -> Link:
    if cluster.cards == 1:
        return NO_LINK
    if model.intra is None:
        raise UserError(
            f"{cluster}: the calibration has no all-reduce within a host; calibrate with --processes 1,2 or more"
        )
    return model.intra


def _fit_run(model: Model, run: Run) -> Model:
    """Return the model that comes closest to a run on one host: by its overlap, or by a surplus if it has none."""
    without = _sum(model._replace(overlap=0.0), run.cluster, NO_LINK)
    hidden = without.compute + without.waiting + without.all_reduce - float(np.mean(run.seconds))
    if hidden < 0:
        return model._replace(overlap=0.0, surplus=-hidden / collectives.share_sent(run.cluster.cards))
    overlap = hidden / (BACKWARD * without.compute)
    return model._replace(overlap=min(overlap, ideal_overlap(model.calibration)))


def _hosts_of(run: Run) -> int:
    return run.cluster.hosts
