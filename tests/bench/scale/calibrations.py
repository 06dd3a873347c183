"""Calibrations that are made up from known parameters."""

import numpy as np

from zoo.bench.options import Cluster
from zoo.bench.scale import model
from zoo.bench.scale.calibration import Calibration, Messages, Run, Sample
from zoo.bench.scale.model import Link

INTRA, INTER = Link(1e-5, 1e-10), Link(3e-5, 1e-9)
MESSAGES = Messages(gradients=100_000_000, buckets=4)


def make(runs=(), device="cuda:0 (V100)", messages=MESSAGES, noise=0.0, **changes):
    """Return a calibration of 0.3 s per update of 32 samples.

    runs: (cluster, seconds) of whole runs; noise: relative standard deviation of the updates.
    """
    values = np.random.default_rng(0).standard_normal(60)
    steps = 0.3 * np.exp(noise * (values - values.mean()))
    sweep = [Sample(n, size, model.within_host(INTRA, n, size)) for n in (2, 4, 8) for size in (10**4, 10**6, 10**8)]
    base = Calibration(
        "resnet50",
        "torch",
        device,
        32,
        {1: [list(steps)]},
        {1: [1000.0, 1010.0, 990.0], 8: [4000.0]},
        sweep,
        messages,
        [Run(cluster, [seconds] * 10) for cluster, seconds in runs],
    )
    return base._replace(**changes)


def seconds(calibration, cluster, inter=None):
    return model.predict(model.build(calibration, inter), cluster).seconds


def known(cluster, overlap, inter=INTER, messages=MESSAGES):
    """Return the seconds that the closed form must give without noise."""
    total = model.bucketed(INTRA, inter, cluster, messages.gradients, messages.buckets)
    hidden = min(overlap * model.BACKWARD * 0.3, total * (1 - 1 / messages.buckets))
    return 0.3 + total - hidden


ONE, EIGHT = Cluster(1, 1), Cluster(1, 8)
