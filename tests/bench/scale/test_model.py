"""The closed form: known parameters give known times, and fits find them again."""

import numpy as np
import pytest

from tests.bench.scale.calibrations import EIGHT, INTER, ONE, known, make, seconds
from zoo.bench.scale import model
from zoo.bench.scale.calibration import Messages
from zoo.bench.scale.cluster import Cluster
from zoo.data.errors import UserError


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


def test_a_slow_network_limits():
    calibration = make(messages=Messages(10**10, 4))
    assert model.predict(model.build(calibration, INTER), Cluster(4, 8)).limit == "all-reduce"


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
