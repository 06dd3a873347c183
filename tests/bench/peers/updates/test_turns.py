from collections import Counter
from functools import partial

import pytest

from zoo.bench.peers.updates import turns


def test_every_contender_has_its_turn_in_every_pass():
    log = []
    updates = {name: partial(turns.timed, partial(log.append, name)) for name in "abc"}
    times = turns.measure(updates, 2, 4)
    assert Counter(log) == {"a": 6, "b": 6, "c": 6}
    assert all(Counter(log[at : at + 3]) == Counter("abc") for at in range(0, 18, 3))
    assert {name: len(passes) for name, passes in times.items()} == {"a": 4, "b": 4, "c": 4}
    assert all(seconds["wall"] >= 0 and seconds["cpu"] >= 0 for passes in times.values() for seconds in passes)


@pytest.mark.parametrize("names", ["a", "ab", "abcd"])
def test_each_is_first_and_last_equally_often(names):
    orders = [turns.rotated(list(names), number) for number in range(2 * len(names))]
    assert all(sorted(order) == list(names) for order in orders)
    assert Counter(order[0] for order in orders) == Counter(order[-1] for order in orders) == Counter(names * 2)


def test_ratios_are_those_of_the_passes():
    """In the last pass the machine was twice as slow, for both."""
    times = {
        turns.OURS: [{"wall": 1.0, "cpu": 2.0}, {"wall": 1.1, "cpu": 2.0}, {"wall": 2.0, "cpu": 4.0}],
        "peer": [{"wall": 2.0, "cpu": 2.0}, {"wall": 2.0, "cpu": 2.5}, {"wall": 4.0, "cpu": 5.0}],
    }
    ours, peer = turns.rows(times)
    assert ours == {"name": turns.OURS, "wall_ms": 1100, "cpu_ms": 2000, "wall_ratio": 1, "cpu_ratio": 1}
    assert peer == {"name": "peer", "wall_ms": 2000, "cpu_ms": 2500, "wall_ratio": 0.5, "cpu_ratio": 0.8}
    assert turns.table("x", [ours, peer]) == [
        "| x | this trainer | 1100 |  | 2000 |  |",
        "|  | peer | 2000 | 0.50 | 2500 | 0.80 |",
    ]
