"""The closed form: known parameters give known times, fits find them again, and error bars grow with the distance."""

import numpy as np
import pytest

from tests.bench.scale.calibrations import EIGHT, INTER, ONE, known, make, seconds
from zoo.bench.options import Cluster
from zoo.bench.scale import model
from zoo.bench.scale.calibration import Messages, Sample
from zoo.bench.scale.model import Link
from zoo.data.errors import UserError

LINK = Link(1e-5, 1e-9)


def test_between_hosts_the_latency_is_logarithmic_and_the_bytes_approach_twice():
    small = [model.between_hosts(LINK, hosts, 0) for hosts in (1, 2, 4, 128)]
    assert small == pytest.approx([0, 2e-5, 4e-5, 14e-5])
    large = [model.between_hosts(Link(0, 1e-9), hosts, 1e9) for hosts in (1, 2, 4, 128)]
    assert large == pytest.approx([0, 1, 1.5, 2 * 127 / 128])


def test_levels_add_up():
    slow = Link(5e-5, 4e-9)
    seconds = model.all_reduce(LINK, slow, Cluster(4, 8), 1e6)
    assert seconds == pytest.approx(14e-5 + 1.75e-3 + 4 * 5e-5 + 6e-3)


def test_buckets_pay_the_latency_each():
    cluster = Cluster(1, 2)
    whole = model.bucketed(LINK, LINK, cluster, 1e6, 1)
    assert model.bucketed(LINK, LINK, cluster, 1e6, 5) == pytest.approx(whole + 4 * 2e-5)


def test_a_gather_brings_the_bytes_of_all_others():
    link = Link(0, 1e-9)
    assert model.all_gather(link, link, Cluster(1, 8), 1e6) == pytest.approx(7e-3)
    assert model.all_gather(link, link, Cluster(2, 8), 1e6) == pytest.approx(7e-3 + 8e-3)


def samples(link, noise=0.0):
    generator = np.random.default_rng(0)
    return [
        Sample(n, size, model.within_host(link, n, size) * np.exp(noise * generator.standard_normal()))
        for n in (2, 4, 8)
        for size in 4 ** np.arange(8) * 1024
    ]


def test_a_link_is_found_again_in_noise():
    fit = model.fit_link(samples(LINK, 0.1))
    assert fit.link == pytest.approx(LINK, rel=0.15)
    assert 0.05 < fit.spread < 0.15


@pytest.mark.parametrize("link", [Link(1e-5, 0.0), Link(0.0, 1e-9)])
def test_a_term_that_is_not_there_is_not_negative(link):
    found = model.fit_link(samples(link, 0.2)).link
    assert min(found) >= 0
    assert max(found) == pytest.approx(max(link), rel=0.3)


def test_equal_values_have_no_maximum_beyond_them():
    assert model.expected_maximum([0.5, 0.5, 0.5], 1024) == pytest.approx(0.5)
    assert model.expected_maximum([0.25], 8) == pytest.approx(0.25)


@pytest.mark.parametrize("n", [2, 8, 64, 1024])
def test_an_exponential_distribution_has_the_harmonic_numbers(n):
    """The mean of the largest of n is 1 + 1/2 + ... + 1/n; a sample of 200 has no values as rare as 1 in 1024."""
    sample = -np.log1p(-(np.arange(200) + 0.5) / 200)
    assert model.expected_maximum(sample, n) == pytest.approx(sum(1 / np.arange(1, n + 1)), rel=0.05)


@pytest.mark.parametrize("n", [4, 32])
def test_random_draws_agree(n):
    generator = np.random.default_rng(1)
    sample = generator.lognormal(0, 0.1, 400)
    drawn = generator.lognormal(0, 0.1, (20000, n)).max(axis=1).mean()
    assert model.expected_maximum(sample, n) == pytest.approx(drawn, rel=0.02)


def test_one_process_takes_its_mean_time():
    prediction = model.predict(model.build(make(noise=0.1)), ONE)
    assert prediction.seconds == pytest.approx(np.mean(make(noise=0.1).steps[1][0]))
    assert prediction.samples_per_s == pytest.approx(32 / prediction.seconds)
    assert prediction.limit == "compute" and prediction.all_reduce == prediction.waiting == 0


@pytest.mark.parametrize("cluster", [Cluster(1, 2), EIGHT, Cluster(2, 8), Cluster(4, 8), Cluster(128, 8)])
def test_terms_add_up(cluster):
    assert seconds(make(), cluster, INTER) == pytest.approx(known(cluster, 0.75))
    assert seconds(make(device="cpu (2 threads)"), cluster, INTER) == pytest.approx(known(cluster, 0.0))


def test_noise_makes_all_wait():
    calm, noisy = make(), make(noise=0.1)
    for cluster in (EIGHT, Cluster(4, 8), Cluster(128, 8)):
        wait = model.predict(model.build(noisy, INTER), cluster).waiting
        assert 0.03 < wait < 0.2 and model.predict(model.build(calm, INTER), cluster).waiting == pytest.approx(0)


@pytest.mark.parametrize("overlap", [0.0, 0.02, 0.05])
def test_the_overlap_is_found_again(overlap):
    run = (EIGHT, known(EIGHT, overlap))
    built = model.build(make(runs=[run]))
    assert built.overlap == pytest.approx(overlap, abs=1e-9)
    assert model.predict(built, Cluster(1, 4)).seconds == pytest.approx(known(Cluster(1, 4), overlap))


def test_a_slower_run_than_without_overlap_adds_to_the_messages():
    built = model.build(make(runs=[(EIGHT, 1.0)]))
    assert built.overlap == 0.0 and model.predict(built, EIGHT).seconds == pytest.approx(1.0)
    two = Cluster(1, 2)
    extra = model.predict(built, two).seconds - known(two, 0.0)
    assert extra == pytest.approx((1.0 - known(EIGHT, 0.0)) / 1.75)


def test_a_run_on_two_hosts_tells_the_time_between_hosts():
    """The bytes that a host sends: 1 at two hosts, 1.5 at four, 1.75 at eight."""
    one_host = known(EIGHT, 0.75)
    calibration = make(runs=[(Cluster(2, 8), one_host + 0.04)])
    times = [seconds(calibration, Cluster(hosts, 8)) - one_host for hosts in (1, 2, 4, 8)]
    assert times == pytest.approx([0, 0.04, 0.06, 0.07])


def test_small_messages_grow_with_the_logarithm_of_the_hosts():
    messages = Messages(100_000_000, 4, synchronized=140)
    calibration = make(messages=messages)
    one_host = seconds(calibration, EIGHT)
    calibration = make(messages=messages, runs=[(Cluster(2, 8), one_host + 0.04)])
    times = [seconds(calibration, Cluster(hosts, 8)) - one_host for hosts in (2, 4, 16)]
    assert times == pytest.approx([0.04, 0.08, 0.16])


def test_small_messages_are_not_hidden():
    plain, synchronized = make(), make(messages=Messages(100_000_000, 4, synchronized=140))
    extra = seconds(synchronized, Cluster(4, 8), INTER) - seconds(plain, Cluster(4, 8), INTER)
    assert extra == pytest.approx(140 * (14 * 1e-5 + 4 * 3e-5 + 4096 * (1.75e-10 + 1.5e-9)))


def test_embeddings_of_all_cards_arrive_at_each():
    plain, split = make(), make(messages=Messages(100_000_000, 4, gathered=10**6))
    extra = seconds(split, Cluster(2, 8), INTER) - seconds(plain, Cluster(2, 8), INTER)
    assert extra == pytest.approx(2 * (7 * (1e-5 + 1e-4) + 3e-5 + 8e-3))


def test_a_slow_input_limits():
    calibration = make(input={1: [100.0], 8: [200.0]})
    prediction = model.predict(model.build(calibration), EIGHT)
    assert prediction.limit == "input" and prediction.seconds == pytest.approx(8 * 32 / 200)
    assert seconds(calibration, Cluster(1, 4)) == pytest.approx(4 * 32 / np.interp(4, [1, 8], [100, 200]))
    assert model.predict(model.build(calibration), Cluster(1, 16)).input == pytest.approx(16 * 32 / 200)


def test_processes_that_share_cores_are_slower():
    calibration = make(steps={1: [[0.3]], 2: [[0.5]]}, device="cpu (1 threads)")
    means = [float(calibration.seconds_of(n).mean()) for n in (1, 2, 3, 4)]
    assert means == pytest.approx([0.3, 0.5, 0.7, 0.9])
    assert make().seconds_of(8).mean() == pytest.approx(0.3)


def test_a_slow_round_slows_all_and_makes_nobody_wait():
    calibration = make(steps={1: [[0.2, 0.2], [0.4, 0.4]]})
    prediction = model.predict(model.build(calibration), EIGHT)
    assert prediction.compute == pytest.approx(0.3) and prediction.waiting == pytest.approx(0)
    uneven = make(steps={1: [[0.2, 0.4], [0.4, 0.2]]})
    assert model.predict(model.build(uneven), EIGHT).waiting > 0.08


def test_what_is_missing_is_named():
    with pytest.raises(UserError, match="--inter-bandwidth and --inter-latency"):
        seconds(make(), Cluster(2, 8))
    with pytest.raises(UserError, match="--processes 1,2"):
        seconds(make(sweep=[]), EIGHT)


CLUSTERS = [ONE, EIGHT, Cluster(2, 8), Cluster(4, 8), Cluster(128, 8)]


def widths(calibration, inter=INTER):
    return [np.log(bar.high / bar.low) for bar in model.intervals(calibration, CLUSTERS, inter, draws=100)]


def test_they_hold_the_prediction():
    calibration = make(noise=0.05, runs=[(EIGHT, 0.35)])
    built = model.build(calibration, INTER)
    for cluster, bar in zip(CLUSTERS, model.intervals(calibration, CLUSTERS, INTER)):
        assert bar.low <= model.predict(built, cluster).samples_per_s * (1 + 1e-9)
        assert bar.high >= model.predict(built, cluster).samples_per_s * (1 - 1e-9)


def test_a_measured_run_leaves_only_its_own_spread():
    calibration = make(noise=0.05, runs=[(EIGHT, 0.4)])
    low, high = model.intervals(calibration, [EIGHT])[0]
    assert low == pytest.approx(8 * 32 / 0.4) and high == pytest.approx(8 * 32 / 0.4)


def test_they_grow_with_the_distance():
    assert widths(make(noise=0.05)) == sorted(widths(make(noise=0.05)))


def test_a_run_on_two_hosts_narrows_them():
    measured = make(runs=[(Cluster(2, 8), known(Cluster(2, 8), 0.75))])
    assert widths(measured)[3] < 0.6 * widths(make())[3]


def test_the_interval_is_that_of_the_model_where_nothing_else_varies():
    """Four hosts of a calibration with two: one doubling; 5 % to 95 % of a normal distribution are 3.29 sigma."""
    calibration = make(runs=[(EIGHT, known(EIGHT, 0.75)), (Cluster(2, 8), known(Cluster(2, 8), 0.75))], input={})
    assert model.model_error(calibration, Cluster(4, 8)) == pytest.approx(model.PER_HOST_DOUBLING)
    bar = model.intervals(calibration, [Cluster(4, 8)], draws=500)[0]
    assert np.log(bar.high / bar.low) == pytest.approx(3.29 * model.PER_HOST_DOUBLING, rel=0.15)
