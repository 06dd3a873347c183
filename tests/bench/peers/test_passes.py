"""The order and the arithmetic of the passes, with a clock that reads advance."""

import pytest

from zoo.bench.peers import passes
from zoo.bench.peers.contender import Contender
from zoo.bench.peers.passes import Seconds


@pytest.fixture
def clock(monkeypatch):
    """A dictionary of wall and CPU seconds that replaces all clocks."""
    now = {"wall": 0.0, "cpu": 0.0}
    monkeypatch.setattr(passes.time, "perf_counter", lambda: now["wall"])
    monkeypatch.setattr(passes.time, "process_time", lambda: now["cpu"])
    monkeypatch.setattr(passes, "_cpu_seconds", lambda: now["cpu"])
    monkeypatch.setattr(passes, "_settle", lambda: None)
    return now


def contender(name, clock, wall, cpu, log, closed=None):
    """A loader whose batches take these times; batch 0 takes a minute."""

    def read(number):
        log.append((name, number))
        clock["wall"] += wall if number else 60
        clock["cpu"] += cpu if number else 60

    def stream():
        try:
            for number in range(10**6):
                read(number)
                yield number
        finally:
            if closed is not None:
                closed.append(name)

    return Contender("files", name, read, stream)


def test_one_thread_reads_the_same_batches_in_turn(clock):
    log = []
    contenders = [contender("a", clock, 2.0, 1.0, log), contender("b", clock, 4.0, 3.0, log)]
    times = passes.one_thread(contenders, batch=4, batches=2, passes=3)
    assert times == [[Seconds(0.5, 0.25)] * 3, [Seconds(1.0, 0.75)] * 3]  # the first batch is not timed
    assert log[:2] == [("a", 0), ("b", 0)]
    assert log[2:] == [(name, 1 + 2 * turn + i) for turn in range(3) for name in "ab" for i in range(2)]


def test_streams_are_drained_before_their_turn_and_closed(clock):
    log, closed = [], []
    contenders = [contender("a", clock, 2.0, 1.0, log, closed), contender("b", clock, 4.0, 3.0, log, closed)]
    times = passes.worker_processes(contenders, batch=4, batches=2, passes=3)
    assert times == [[Seconds(0.5, 0.25)] * 3, [Seconds(1.0, 0.75)] * 3]
    turns = [name for name, _ in log[2:]]
    assert turns == (["a"] * (passes.BUFFERED + 2) + ["b"] * (passes.BUFFERED + 2)) * 3
    assert closed == ["a", "b"]


def test_all_streams_are_closed_when_one_fails(clock):
    def fails():
        yield 0
        raise OSError("gone")

    closed = []
    contenders = [contender("a", clock, 1.0, 1.0, [], closed), Contender("files", "b", print, fails)]
    with pytest.raises(OSError, match="gone"):
        passes.worker_processes(contenders, batch=1, batches=1, passes=1)
    assert closed == ["a"]


def test_a_turn_begins_when_the_processes_rest(monkeypatch):
    used = iter([0.0, 0.1, 0.2, 0.25, 0.3, 0.305, 9.0])
    monkeypatch.setattr(passes, "_cpu_seconds", lambda: next(used))
    monkeypatch.setattr(passes.time, "sleep", lambda _: None)
    passes._settle()
    assert next(used) == 9.0
