"""Simulation of a cluster that is not there: updates, buckets and readers, event by event."""

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from zoo.bench.options import Cluster
from zoo.bench.scale import model
from zoo.bench.scale.calibration import Calibration, Messages
from zoo.bench.scale.model import Link

READ_AHEAD = 2  # updates that a host may have read before they are used
WARM_UP = READ_AHEAD + 1  # updates that are simulated and not counted
QUANTILES = 2000  # of the computing time, for the closed form


class Setup(NamedTuple):
    """A cluster and its workload."""

    cluster: Cluster  # hosts and cards
    step: float  # mean seconds in which a process computes an update
    noise: float  # standard deviation of these seconds over their mean, each update and process for itself
    batch: int  # samples per process and update
    messages: Messages  # messages of an update
    intra: Link  # link between the cards of a host
    inter: Link  # link between hosts
    input_rate: float = float("inf")  # samples per second that a host reads; infinite: all samples are there


def simulate(setup: Setup, updates: int, seed: int = 0) -> np.ndarray:
    """Simulate updates one after the other; return the seconds of each, (updates,).

    In each, every process draws its computing time, a log-normal one. It may begin when its host has read its samples
    and the update before is done. Its buckets become ready evenly over the backward pass. A bucket is all-reduced when
    it is ready everywhere and the one before it is done. The update ends with the last bucket.
    """
    generator = np.random.default_rng(seed)
    cluster, messages, links = setup.cluster, setup.messages, (setup.intra, setup.inter, setup.cluster)
    sigma = np.sqrt(np.log1p(setup.noise**2))
    reading = cluster.cards * setup.batch / setup.input_rate
    blocking = 0.0  # messages that nothing hides
    if cluster.size > 1:
        blocking = messages.synchronized * model.all_reduce(*links, model.SMALL)
        blocking += 2 * model.all_gather(*links, messages.gathered) if messages.gathered else 0.0
    bucket = model.all_reduce(*links, messages.gradients / messages.buckets)
    # When each bucket is ready, as a share of the computing time.
    shares = (1 - model.BACKWARD) + model.BACKWARD * (np.arange(messages.buckets) + 1) / messages.buckets
    ends = [0.0]
    read_at = 0.0  # when a host has read the samples of the newest update
    for number in range(WARM_UP + updates):
        room = ends[number - READ_AHEAD] if number >= READ_AHEAD else 0.0  # a host reads no further ahead
        read_at = max(read_at, room) + reading
        start = max(ends[-1], read_at)
        computing = setup.step * np.exp(sigma * generator.standard_normal(cluster.size) - sigma**2 / 2)
        done = 0.0
        for moment in start + blocking + computing.max() * shares:
            done = max(done, moment) + bucket
        ends.append(float(done))
    return np.diff(ends)[WARM_UP:]


def closed_form(setup: Setup) -> model.Prediction:
    """Return the prediction of the closed form for a cluster."""
    sigma = np.sqrt(np.log1p(setup.noise**2))
    quantiles = norm.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES)
    computing = setup.step * np.exp(sigma * quantiles - sigma**2 / 2)
    cards = setup.cluster.cards
    rates = {cards: [setup.input_rate]} if np.isfinite(setup.input_rate) else {}
    measured = Calibration("simulated", "", "", setup.batch, {cards: [list(computing)]}, rates, [], setup.messages, {})
    overlap = model.ideal_overlap(measured)
    return model.predict(model.Model(measured, setup.intra, setup.inter, overlap), setup.cluster)
