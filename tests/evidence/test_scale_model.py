"""The closed form: known parameters give known times, fits find them again; published tables; the simulation."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import norm

from evidence.scale import model, published
from evidence.scale.calibration import Calibration, Messages, Sample
from evidence.scale.model import Link
from zoo.bench.options import Cluster
from zoo.data.errors import UserError

INTRA, INTER = Link(1e-5, 1e-10), Link(3e-5, 1e-9)
MESSAGES = Messages(gradients=100_000_000, buckets=4)
ONE, EIGHT = Cluster(1, 1), Cluster(1, 8)


def make(noise=0.0, **changes):
    """Return a calibration of 0.3 s per update of 32 samples. noise: relative standard deviation of the updates."""
    values = np.random.default_rng(0).standard_normal(60)
    steps = 0.3 * np.exp(noise * (values - values.mean()))
    sweep = [Sample(n, size, model.within_host(INTRA, n, size)) for n in (2, 4, 8) for size in (10**4, 10**6, 10**8)]
    rates = {1: [1000.0, 1010.0, 990.0], 8: [4000.0]}
    base = Calibration("resnet50", "torch", "cuda:0 (V100)", 32, {1: [list(steps)]}, rates, sweep, MESSAGES, {})
    return base._replace(**changes)


def seconds(calibration, cluster, inter=None):
    return model.predict(model.build(calibration, inter), cluster).seconds


def known(cluster, overlap, inter=INTER):
    """Return the seconds that the closed form must give without noise."""
    total = model.bucketed(INTRA, inter, cluster, MESSAGES.gradients, MESSAGES.buckets)
    hidden = min(overlap * model.BACKWARD * 0.3, total * (1 - 1 / MESSAGES.buckets))
    return 0.3 + total - hidden


LINK = Link(1e-5, 1e-9)


def samples(link, noise=0.0):
    generator = np.random.default_rng(0)
    return [
        Sample(n, size, model.within_host(link, n, size) * np.exp(noise * generator.standard_normal()))
        for n in (2, 4, 8)
        for size in 4 ** np.arange(8) * 1024
    ]


def test_a_link_is_found_again_in_noise():
    link, spread = model.fit_link(samples(LINK, 0.1))
    assert link == pytest.approx(LINK, rel=0.15) and 0.05 < spread < 0.15


@pytest.mark.parametrize("n", [2, 8, 64, 1024])
def test_an_exponential_distribution_has_the_harmonic_numbers(n):
    """The mean of the largest of n is 1 + 1/2 + ... + 1/n; a sample of 200 has no values as rare as 1 in 1024."""
    sample = -np.log1p(-(np.arange(200) + 0.5) / 200)
    assert model.expected_maximum(sample, n) == pytest.approx(sum(1 / np.arange(1, n + 1)), rel=0.05)


@pytest.mark.parametrize("cluster", [Cluster(1, 2), EIGHT, Cluster(2, 8), Cluster(4, 8), Cluster(128, 8)])
def test_terms_add_up(cluster):
    assert seconds(make(), cluster, INTER) == pytest.approx(known(cluster, 0.75))
    assert seconds(make(device="cpu (2 threads)"), cluster, INTER) == pytest.approx(known(cluster, 0.0))


@pytest.mark.parametrize("overlap", [0.0, 0.02, 0.05])
def test_the_overlap_is_found_again(overlap):
    built = model.build(make(runs={8: [known(EIGHT, overlap)]}))
    assert built.overlap == pytest.approx(overlap, abs=1e-9)
    assert model.predict(built, Cluster(1, 4)).seconds == pytest.approx(known(Cluster(1, 4), overlap))


def test_a_slower_run_than_without_overlap_adds_to_the_messages():
    built = model.build(make(runs={8: [1.0]}))
    assert built.overlap == 0.0 and model.predict(built, EIGHT).seconds == pytest.approx(1.0)
    two = Cluster(1, 2)
    extra = model.predict(built, two).seconds - known(two, 0.0)
    assert extra == pytest.approx((1.0 - known(EIGHT, 0.0)) / 1.75)


def test_a_slow_input_limits():
    calibration = make(input={1: [100.0], 8: [200.0]})
    prediction = model.predict(model.build(calibration), EIGHT)
    assert prediction.limit == "input" and prediction.seconds == pytest.approx(8 * 32 / 200)
    assert seconds(calibration, Cluster(1, 4)) == pytest.approx(4 * 32 / np.interp(4, [1, 8], [100, 200]))
    assert model.predict(model.build(calibration), Cluster(1, 16)).input == pytest.approx(16 * 32 / 200)


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


def test_they_hold_the_prediction():
    calibration = make(noise=0.05, runs={8: [0.35] * 10})
    built, bars = model.build(calibration, INTER), model.intervals(calibration, CLUSTERS, INTER)
    widths = [high / low for low, high in bars]
    assert widths[2:] == sorted(widths[2:])
    for cluster, (low, high) in zip(CLUSTERS, bars):
        assert low * (1 - 1e-9) <= model.predict(built, cluster).samples_per_s <= high * (1 + 1e-9)


def test_a_measured_run_leaves_only_its_own_spread():
    calibration = make(noise=0.05, runs={8: [0.4] * 10})
    low, high = model.intervals(calibration, [EIGHT])[0]
    assert low == pytest.approx(8 * 32 / 0.4) and high == pytest.approx(8 * 32 / 0.4)


REPORT, REPORTS, INDEPENDENT = published.validate(), published.tables("report"), published.tables("independent")


def test_the_largest_rows_are_predicted():
    assert {row.name: round(row.error, 3) for row in REPORT["held_out"]} == {
        "TSM Paddle amp": 0.005,
        "DeepLabV3+ PyTorch fp32": 0.037,
        "DeepLabV3+ PyTorch fp16": 0.018,
        "ResNet50 MindSpore fp32": 0.016,
        "ResNet50 MindSpore fp16": -0.060,
        "ArcFace Paddle fp32": 0.059,
    }


def test_the_reports_are_not_among_the_tables_that_were_fitted():
    reports = {speed for table in REPORTS for speed in table.rows.values()}
    assert not reports & {speed for table in INDEPENDENT for speed in table.rows.values()}
    assert len(INDEPENDENT) == len({tuple(table.rows.values()) for table in INDEPENDENT}) == 89


FORMS = {
    "bytes that a host sends": model.share_sent,
    "rounds of messages": math.log2,
    "all hosts in a ring": lambda hosts: float(hosts - 1),
    "once, as soon as there are two hosts": lambda hosts: float(hosts > 1),
}


def errors_of(growth):
    return published.errors(published.predict_by_growth(table, growth) for table in INDEPENDENT)


def test_the_form_of_growth_is_the_best_of_those_compared():
    """Of 32 cards from 8 and 16, in tables that are none of the reports."""
    means = {name: round(errors_of(growth).mean(), 3) for name, growth in FORMS.items()}
    assert list(means.values()) == [0.034, 0.064, 0.146, 0.062]


def left_out():
    """Predict 16 cards of each README from one host, with the constant of all other READMEs."""
    for name in {table.name for table in INDEPENDENT}:
        constant = published.seconds_per_mb([table for table in INDEPENDENT if table.name != name])
        for table in (table for table in INDEPENDENT if table.name == name):
            yield from (row for row in published.predict_from_host(table, constant) if row.cards == 16)


def test_the_errors_of_the_model_are_those_of_the_independent_tables():
    ring = [table.predicted(8, published.continue_ring(table)) for table in INDEPENDENT if 4 in table.rows]
    for rows, deviation in ((ring, model.PER_CARD_DOUBLING), (left_out(), model.FIRST_HOSTS)):
        assert np.percentile(published.errors(rows), 68) == pytest.approx(deviation, rel=0.1)
    assert np.percentile(errors_of(model.share_sent), 68) == pytest.approx(model.PER_HOST_DOUBLING, rel=0.1)


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


def simulate(setup, updates, seed=0):
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


def closed_form(setup):
    """Return the prediction of the closed form for a cluster."""
    sigma = np.sqrt(np.log1p(setup.noise**2))
    quantiles = norm.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES)
    computing = setup.step * np.exp(sigma * quantiles - sigma**2 / 2)
    cards = setup.cluster.cards
    rates = {cards: [setup.input_rate]} if np.isfinite(setup.input_rate) else {}
    measured = Calibration("simulated", "", "", setup.batch, {cards: [list(computing)]}, rates, [], setup.messages, {})
    overlap = model.ideal_overlap(measured)
    return model.predict(model.Model(measured, setup.intra, setup.inter, overlap), setup.cluster)


def setup_of(cluster, **changes):
    return Setup(cluster, 0.35, 0.02, 128, Messages(100_000_000, 4), Link(5e-6, 1e-11), Link(2e-5, 1e-10))._replace(
        **changes
    )


@pytest.mark.parametrize("cluster", [Cluster(1, 8), Cluster(4, 8), Cluster(128, 8)], ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise": 0.1},
        {"messages": Messages(100_000_000, 1)},
        {"messages": Messages(20_000_000_000, 8)},  # longer than the backward pass
        {"messages": Messages(100_000_000, 4, synchronized=140)},
        {"messages": Messages(100_000_000, 4, gathered=1_000_000)},
        {"input_rate": 900.0},
    ],
    ids=["plain", "noise", "one bucket", "network", "small messages", "gather", "input"],
)
def test_the_simulation_agrees(cluster, changes):
    setup = setup_of(cluster, **changes)
    assert np.array_equal(simulate(setup, 3), simulate(setup, 3))
    simulated = simulate(setup, 60, seed=1).mean()
    assert closed_form(setup).seconds == pytest.approx(simulated, rel=0.03 if "noise" in changes else 0.015)
