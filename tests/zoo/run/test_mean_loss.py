"""The loss of a log interval: the mean of its updates, over processes of a run, too."""

import math

import pytest

from zoo.run.meters import MeanLoss


def read(result):
    return {"loss": result, "scale": 1.0}


def test_results_are_read_when_the_mean_is_needed():
    seen = []
    losses = MeanLoss(lambda result: seen.append(result) or read(result))
    for result in (4.0, 1.0, 1.0):
        losses.add(result)
    assert not seen and losses.take() == ({"loss": 1.0, "scale": 1.0}, 2.0)
    losses.add(7.0)
    assert losses.take()[1] == 7.0 and seen == [4.0, 1.0, 1.0, 7.0]
    losses.add(5.0)
    assert losses.take(ends_interval=False)[1] == 5.0
    losses.add(1.0)
    assert losses.take()[1] == 3.0
    losses.add(math.nan)
    assert math.isnan(losses.take()[1])


@pytest.mark.parametrize(
    "rank, size, expected",
    [(0, 2, (10.0 + 1.0) / 3), (1, 2, (20.0 + 1.0) / 3), (0, 1, (30.0 + 1.0) / 3), (0, 3, (30.0 + 1.0) / 3),
     (2, 3, 1.0 / 3)],
)  # fmt: skip
def test_an_interval_goes_on_in_another_process(rank, size, expected):
    losses = MeanLoss(read, [(10.0, 2), (20.0, 2)], rank, size)
    losses.add(1.0)
    assert losses.so_far()[1] == 3 and losses.take()[1] == expected
    losses.add(5.0)
    assert losses.take()[1] == 5.0
