"""The cause of waiting for data, from intervals whose bottleneck is known."""

import pytest

from zoo.data.stages import COLLATE, DECODE, READ, TRANSFORM
from zoo.logs.data_wait import LIMIT, CauseLog, Interval, find_cause, worst

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


def test_the_message():
    assert find_cause(DECODING._replace(cores=4, threads=2)).message == (
        "waiting for data 50% of the time, for decoding: a sample takes 100 ms (read 5%, decode 80%, transform 14%, "
        "collate 1%) with data.workers=1 and data.threads=2 on 4 core(s); zoo data prepare writes files that decode "
        "faster (docs/data.md)"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"wait": LIMIT * 10},
        {"wait": 0.0},
        {"samples": 0, "stages": stages()},  # what it took had been read before
    ],
)
def test_no_cause_where_the_loop_hardly_waits(changes):
    assert find_cause(DECODING._replace(**changes)) is None


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


def test_the_rank_that_waits_longest_counts():
    intervals = [DECODING._replace(wait=wait)._asdict() for wait in (1.0, 9.0, 3.0)]
    assert worst(intervals) == DECODING._replace(wait=9.0)
    assert DECODING._replace(wait=20.0).share == 1.0 and DECODING._replace(elapsed=0.0, wait=0.0).share == 0.0
