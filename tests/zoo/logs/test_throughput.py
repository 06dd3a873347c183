"""Throughput between log lines, without evaluation and saving."""

import pytest

from zoo.logs.throughput import Throughput


@pytest.fixture
def clock(monkeypatch):
    """Time in seconds that the test sets."""
    now = [0.0]
    monkeypatch.setattr("zoo.logs.throughput.time.perf_counter", lambda: now[0])
    return now


def test_pauses_are_left_out(clock):
    throughput = Throughput()
    throughput.add(30)
    clock[0] = 2.0
    throughput.pause()
    clock[0] = 100.0
    throughput.resume()
    throughput.add(10)
    clock[0] = 102.0
    assert throughput.read(1.0) == {"samples_per_s": 10.0, "data_wait_fraction": 0.25}
    assert throughput.elapsed == 4.0


def test_each_reading_starts_a_new_interval(clock):
    throughput = Throughput()
    throughput.add(8)
    clock[0] = 2.0
    throughput.read(0.5)
    throughput.add(4)
    clock[0] = 4.0
    assert throughput.read(2.0) == {"samples_per_s": 2.0, "data_wait_fraction": 0.75}
