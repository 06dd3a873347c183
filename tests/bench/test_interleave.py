"""Calls in turns, with clocks that are known."""

from functools import partial
from types import SimpleNamespace

import pytest

from zoo.bench import interleave
from zoo.bench.interleave import Seconds, median_ratio


class Machine:
    """Calls that take a known time, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def call(self, name: str, seconds: float) -> None:
        self.now += seconds
        self.log.append(name)

    def clock(self) -> float:
        return self.now

    def interleave(self, costs: dict[str, float], passes: int, **options) -> dict[str, list[Seconds]]:
        calls = {name: partial(self.call, name, cost) for name, cost in costs.items()}
        return interleave.interleave(calls, passes, cpu_clock=self.clock, **options)


def test_turns(monkeypatch):
    """Warm-up and preparation do not count; every call of a block does, and the order changes."""
    machine = Machine()
    monkeypatch.setattr(interleave, "time", SimpleNamespace(perf_counter=machine.clock))
    times = machine.interleave(
        {"a": 1.0, "b": 2.0}, 2, warm_up=1, block=2, prepare=lambda name: machine.call(f"prepare {name}", 10)
    )
    assert times == {"a": [Seconds(1.0, 1.0)] * 4, "b": [Seconds(2.0, 2.0)] * 4}
    turn = {name: [f"prepare {name}", name, name] for name in "ab"}
    assert machine.log == turn["a"] + turn["b"] + turn["b"] + turn["a"] + turn["b"] + turn["a"]


def test_median_of_ratios():
    """Pass by pass: a machine that is half as fast in one pass changes nothing."""
    a, b = [Seconds(2, 3), Seconds(4, 6), Seconds(2, 3)], [Seconds(1, 1), Seconds(2, 2), Seconds(1, 1)]
    assert median_ratio(a, b) == pytest.approx((2, 3))
