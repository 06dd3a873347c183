"""The steps after which ranks exchange signals, by world size and the time of a step."""

import time

import pytest

from zoo.distributed.group import Polling


class Alone:
    """Group whose other ranks have nothing to tell."""

    def __init__(self, rank, size, announced=()):
        self.rank, self.size, self.announced = rank, size, list(announced)

    def concatenate(self, items):
        return [*self.announced, *items]


def exchanges(monkeypatch, size, step, last):
    """Return the steps of the exchanges of rank 0, whose steps take `step` seconds."""
    polling, clock, found = Polling(Alone(0, size)), [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for done in range(1, last + 1):
        clock[0] += step
        if polling.is_due(done):
            found.append(done)
            assert polling.exchange(done, [{"signal": 15}]) == [{"signal": 15}]
    return found


@pytest.mark.parametrize(
    "size, step, expected",
    [
        (1, 0.001, [1, 2, 3, 4, 5, 6]),
        (16, 0.001, [1, 2, 3, 4, 5, 6]),
        (64, 0.0499, [1, 2, 14, 26, 38]),  # 0.64 s
        (1024, 0.0499, [1, 2, 207]),  # 10.24 s
        (1024, 20.0, [1, 2, 3, 4, 5, 6]),
        (64, 1e-9, [1, 2, 66, 130]),  # never more steps than ranks
    ],
)
def test_exchanges(monkeypatch, size, step, expected):
    last = min(expected[-1] + 3, 6 if expected[-1] == 6 else 10**6)
    assert exchanges(monkeypatch, size, step, last) == expected


def test_the_other_ranks_follow_rank_0():
    polling = Polling(Alone(1, 64, announced=[3]))
    assert polling.exchange(1, [7]) == [7]
    assert [done for done in range(1, 6) if polling.is_due(done)] == [4, 5]
