"""Times of all-reduces: known cases, and a link that is found again from its times."""

import numpy as np
import pytest

from zoo.bench.scale import collectives
from zoo.bench.scale.cluster import Cluster
from zoo.bench.scale.collectives import Link, Sample

LINK = Link(1e-5, 1e-9)


def test_two_processes_send_their_bytes_once():
    assert collectives.within_host(LINK, 2, 1e6) == pytest.approx(2e-5 + 1e-3)
    assert collectives.within_host(LINK, 1, 1e6) == 0


def test_between_hosts_the_latency_is_logarithmic_and_the_bytes_approach_twice():
    small = [collectives.between_hosts(LINK, hosts, 0) for hosts in (1, 2, 4, 128)]
    assert small == pytest.approx([0, 2e-5, 4e-5, 14e-5])
    large = [collectives.between_hosts(Link(0, 1e-9), hosts, 1e9) for hosts in (1, 2, 4, 128)]
    assert large == pytest.approx([0, 1, 1.5, 2 * 127 / 128])


def test_levels_add_up():
    slow = Link(5e-5, 4e-9)
    seconds = collectives.all_reduce(LINK, slow, Cluster(4, 8), 1e6)
    assert seconds == pytest.approx(14e-5 + 1.75e-3 + 4 * 5e-5 + 6e-3)


def test_buckets_pay_the_latency_each():
    cluster = Cluster(1, 2)
    whole = collectives.bucketed(LINK, LINK, cluster, 1e6, 1)
    assert collectives.bucketed(LINK, LINK, cluster, 1e6, 5) == pytest.approx(whole + 4 * 2e-5)


def test_a_gather_brings_the_bytes_of_all_others():
    link = Link(0, 1e-9)
    assert collectives.all_gather(link, link, Cluster(1, 8), 1e6) == pytest.approx(7e-3)
    assert collectives.all_gather(link, link, Cluster(2, 8), 1e6) == pytest.approx(7e-3 + 8e-3)


def samples(link, noise=0.0):
    generator = np.random.default_rng(0)
    return [
        Sample(n, size, collectives.within_host(link, n, size) * np.exp(noise * generator.standard_normal()))
        for n in (2, 4, 8)
        for size in 4 ** np.arange(8) * 1024
    ]


def test_a_link_is_found_again():
    fit = collectives.fit_link(samples(LINK))
    assert fit.link == pytest.approx(LINK) and fit.spread < 1e-6


def test_a_link_is_found_again_in_noise():
    fit = collectives.fit_link(samples(LINK, 0.1))
    assert fit.link == pytest.approx(LINK, rel=0.15)
    assert 0.05 < fit.spread < 0.15


@pytest.mark.parametrize("link", [Link(1e-5, 0.0), Link(0.0, 1e-9)])
def test_a_term_that_is_not_there_is_not_negative(link):
    found = collectives.fit_link(samples(link, 0.2)).link
    assert min(found) >= 0
    assert max(found) == pytest.approx(max(link), rel=0.3)
