"""Quantiles of the times of updates, without pauses, by the clock of the host or of the device."""

import numpy as np
import pytest

from zoo.logs.step_times import StepTimes, slowest


@pytest.fixture
def clock(monkeypatch):
    """Time in seconds that the test sets."""
    now = [50.0]
    monkeypatch.setattr("zoo.logs.step_times.time.perf_counter", lambda: now[0])
    return now


def no_event():
    return None


def train(times, clock, seconds, waits=None):
    """Do updates that take so long, and wait for data so long."""
    waited = times._waited
    for index, duration in enumerate(seconds):
        clock[0] += duration
        waited += waits[index] if waits else 0.0
        times.add(waited)


def test_quantiles_are_numpys(clock):
    rng = np.random.default_rng(0)
    times = StepTimes(no_event)
    train(times, clock, [9.0])
    times.read()
    for count in (1, 2, 20, 1000):
        seconds, waits = rng.gamma(2.0, 0.1, count), rng.gamma(1.0, 0.01, count)
        train(times, clock, seconds.tolist(), waits.tolist())
        read = times.read()
        for got, expected in ((read["step_ms"], seconds), (read["data_wait_ms"], waits)):
            for name, percent in (("p50", 50), ("p90", 90), ("p99", 99)):
                assert got[name] == pytest.approx(1000 * np.percentile(expected, percent), rel=1e-6)
            assert got["sum"] == pytest.approx(1000 * expected.sum()) and got["max"] == pytest.approx(
                1e3 * max(expected)
            )
        assert (read["step_ms"]["count"], read["step_ms"]["clock"]) == (count, "host") and "first" not in read[
            "step_ms"
        ]


def test_the_first_update_of_the_process_is_apart(clock):
    """Frameworks compile in it."""
    times = StepTimes(no_event)
    train(times, clock, [30.0, 1.0, 2.0, 3.0], [5.0, 0.1, 0.2, 0.3])
    read = times.read()
    assert read["step_ms"]["p50"] == pytest.approx(2000) and read["step_ms"]["count"] == 3
    assert read["step_ms"]["max"] == pytest.approx(3000) and read["step_ms"]["first"] == pytest.approx(30000)
    assert read["data_wait_ms"]["max"] == pytest.approx(300)
    train(times, clock, [7.0, 1.0])
    assert times.read()["step_ms"]["max"] == pytest.approx(7000)


def test_a_first_update_alone_is_told_and_marked(clock):
    times = StepTimes(no_event)
    train(times, clock, [30.0])
    step_ms = times.read()["step_ms"]
    assert step_ms["p50"] == step_ms["first"] == pytest.approx(30000) and step_ms["count"] == 1


def test_pauses_are_left_out_and_the_rest_is_not(clock):
    """A log line before and preparations after an evaluation belong to the update that follows."""
    times = StepTimes(no_event)
    train(times, clock, [9.0])
    times.read()
    train(times, clock, [1.0])
    clock[0] += 0.25  # a log line
    for duration in (100.0, 400.0):  # a save, an evaluation
        times.pause()
        clock[0] += duration
        times.resume()
        clock[0] += 0.125
    train(times, clock, [1.0])
    read = times.read()["step_ms"]
    assert read["sum"] == pytest.approx(1000 + 250 + 2 * 125 + 1000) and read["max"] == pytest.approx(1500)


class Event:
    """An event of a device that needs twice the time that launching takes."""

    def __init__(self, host_seconds):
        self.milliseconds = 2000 * host_seconds

    def elapsed_time(self, later):
        return later.milliseconds - self.milliseconds


def test_the_device_is_timed_by_its_own_events(clock):
    times = StepTimes(lambda: Event(clock[0]))
    train(times, clock, [9.0, 1.0, 2.0])
    read = times.read()["step_ms"]
    assert read["clock"] == "device" and read["sum"] == pytest.approx(6000) and read["first"] == pytest.approx(18000)


def test_the_slowest_rank_and_the_one_that_waited_longest():
    def rank(step, wait):
        return {"step_ms": {"sum": step, "p50": step / 2}, "data_wait_ms": {"sum": wait, "p50": wait / 2}}

    assert slowest([rank(8, 1), rank(6, 3), rank(7, 2)]) == {
        "step_ms": {"sum": 8, "p50": 4},
        "data_wait_ms": {"sum": 3, "p50": 1.5},
    }
