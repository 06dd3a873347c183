"""Times of all-reduces, from a latency and a bandwidth per link.

Within a host, a ring: 2(p-1) messages of 1/p of the bytes, one after the other. Between hosts, recursive halving and
doubling: 2 log2(h) messages, of 1/2, 1/4 ... of the bytes and back. So each host sends 2(p-1)/p and 2(h-1)/h of the
bytes, which is the least possible, and the latency grows with the logarithm of the hosts.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.bench.scale.cluster import Cluster


class Link(NamedTuple):
    """A connection between two cards or two hosts.

    Attributes:
        latency: seconds per message.
        seconds_per_byte: 1 / bandwidth.
    """

    latency: float
    seconds_per_byte: float


class Sample(NamedTuple):
    """An all-reduce that was timed. size: bytes; seconds: median over repeats."""

    processes: int
    size: int
    seconds: float


class LinkFit(NamedTuple):
    """A link and the spread of the measurements around it: standard deviation of the logarithm."""

    link: Link
    spread: float


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


def fit_link(samples: Sequence[Sample]) -> LinkFit:
    """Fit the link within a host to timed all-reduces by least squares of relative errors; neither term is negative.

    Args:
        samples: of at least two different sizes, with 2 processes or more.
    """
    seconds = np.array([sample.seconds for sample in samples])
    rounds = np.array([2 * (sample.processes - 1) for sample in samples], float)
    sent = np.array([share_sent(sample.processes) * sample.size for sample in samples])
    matrix = np.stack([rounds, sent], 1) / seconds[:, None]
    solution = np.linalg.lstsq(matrix, np.ones(len(samples)), rcond=None)[0]
    if solution.min() < 0:  # then the best of the two terms alone
        alone = [matrix[:, i].sum() / (matrix[:, i] ** 2).sum() for i in (0, 1)]
        errors = [((matrix[:, i] * alone[i] - 1) ** 2).sum() for i in (0, 1)]
        best = int(np.argmin(errors))
        solution = np.array([alone[i] if i == best else 0.0 for i in (0, 1)])
    link = Link(float(solution[0]), float(solution[1]))
    expected = rounds * link.latency + sent * link.seconds_per_byte
    spread = float(np.sqrt(np.mean(np.log(seconds / expected) ** 2)))
    return LinkFit(link, spread)
