"""Throughput, times of updates without pauses, and the cause of waiting for data where the bottleneck is known."""

import pytest

from zoo.data.stages import COLLATE, DECODE, READ, TRANSFORM
from zoo.logs import timing
from zoo.logs.timing import CauseLog, Interval, StepTimes, find_cause


@pytest.fixture
def clock(monkeypatch):
    """Time in seconds that the test sets."""
    now = [50.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
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


# 100 samples in 10 s; the loop waited for half of it. One reading thread was busy all the time, mostly decoding.
DECODING = Interval(
    elapsed=10.0,
    wait=5.0,
    reading=5.0,
    transport=0.1,
    samples=100,
    stages={READ: 0.5, DECODE: 8.0, TRANSFORM: 1.4, COLLATE: 0.1},
    workers=1,
    threads=1,
    cores=1,
)


def stages(**seconds):
    return {**dict.fromkeys((READ, DECODE, TRANSFORM, COLLATE), 0.0), **seconds}


@pytest.mark.parametrize(
    "changes, name, remedy",
    [
        ({}, DECODE, "files that decode faster"),
        ({"stages": stages(read=8.0, decode=1.0)}, READ, "data.threads"),
        ({"stages": stages(transform=8.0, decode=1.0)}, TRANSFORM, "smaller images"),
        ({"stages": stages(collate=8.0, decode=1.0)}, COLLATE, "train.batch"),
        ({"cores": 8}, "workers", "set data.workers=2"),  # two threads, as the loop takes 10 s of reading in 5 s
        ({"cores": 8, "wait": 7.5}, "workers", "set data.workers=4"),
        ({"cores": 8, "wait": 10.0}, "workers", "set data.workers=8"),  # no more than there are cores
        ({"cores": 8, "wait": 7.5, "threads": 2}, "workers", "set data.workers=2"),
        ({"cores": 8, "workers": 0}, "workers", "set data.workers=2"),
        ({"cores": 8, "wait": 7.5, "workers": 4}, DECODE, "zoo data prepare"),
        ({"reading": 1.0, "transport": 4.0, "cores": 8}, "transport", "data.workers=0"),
    ],
)
def test_the_cause_and_its_remedy(changes, name, remedy):
    cause = find_cause(DECODING._replace(**changes))
    assert cause.name == name and remedy in cause.message


def test_a_cause_is_news_until_the_loop_no_longer_waits_for_it():
    causes, idle = CauseLog(), DECODING._replace(wait=0.0)
    other = DECODING._replace(cores=8)
    intervals = [idle, DECODING, DECODING, other, DECODING, idle, DECODING]
    names = [cause and cause.name for cause in map(causes.news, intervals)]
    assert names == [None, DECODE, None, "workers", DECODE, None, DECODE]


def test_short_intervals_are_joined():
    causes = CauseLog()
    short = DECODING._replace(elapsed=0.5, wait=0.25, reading=0.25, transport=0.0, samples=5, stages=stages(decode=0.5))
    assert causes.news(short._replace(elapsed=0.25)) is None and causes.news(short._replace(elapsed=0.25)) is None
    cause = causes.news(short)
    assert cause.name == DECODE
    assert cause.interval == DECODING._replace(
        elapsed=1.0, wait=0.75, reading=0.75, transport=0.0, samples=15, stages=stages(decode=1.5)
    )
    assert causes.news(short) is None and causes.news(short._replace(wait=0.0, elapsed=30.0)) is None
    assert causes.news(DECODING).name == DECODE  # the loop had not waited in between
