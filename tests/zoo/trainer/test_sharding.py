"""Rows of sharded parameters, and those that an update with Partial FC uses."""

from itertools import pairwise

import numpy as np
import pytest

from zoo.models.resnet import spec as resnet
from zoo.trainer import sharding


@pytest.mark.parametrize("world_size", (1, 2, 3, 4))
@pytest.mark.parametrize("num_rows", (4, 9, 11, 85742))
def test_row_ranges_are_contiguous_and_balanced(num_rows, world_size):
    ranges = [sharding.row_range(num_rows, rank, world_size) for rank in range(world_size)]
    assert ranges[0][0] == 0 and ranges[-1][1] == num_rows
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    lengths = [last - first for first, last in ranges]
    assert max(lengths) - min(lengths) <= 1 and lengths == sorted(lengths, reverse=True)


def test_the_first_ranks_have_one_row_more():
    lengths = [last - first for first, last in (sharding.row_range(85742, rank, 8) for rank in range(8))]
    assert lengths == [10718] * 6 + [10717] * 2


def test_all_positives_are_sampled_and_the_others_uniformly():
    """Sorted and unique."""
    positives, counts = np.array([0, 3, 4, 9]), np.zeros(12)
    for step in range(3000):
        rows = sharding.sample_active_rows(positives, 12, 6, 1, 0, step)
        assert len(rows) == 6 and (np.diff(rows) > 0).all() and set(positives) <= set(rows)
        counts[rows] += 1
    assert (counts[positives] == 3000).all()
    negatives = np.delete(counts, positives)
    assert np.abs(negatives - 3000 * 2 / 8).max() < 5 * np.sqrt(3000 * 0.25 * 0.75)
    assert sharding.sample_active_rows(np.arange(12), 12, 12, 1, 0, 0).tolist() == list(range(12))


def test_a_sample_is_a_function_of_seed_rank_and_step():
    positives = np.array([0, 3, 4, 9])
    first, same, *others = (
        sharding.sample_active_rows(positives, 1000, 100, seed, rank, step).tolist()
        for seed, rank, step in ((1, 0, 5), (1, 0, 5), (2, 0, 5), (1, 1, 5), (1, 0, 6))
    )
    assert first == same and all(first != other for other in others)


def test_the_positives_are_those_of_the_batch_on_this_rank():
    """-1 marks the classes of other ranks."""
    rows = np.array([[7, -1, 3], [3, -1, 7]])
    chosen = sharding.choose_active_rows(rows, 100, 0.2, 1, 0, 5)
    np.testing.assert_array_equal(chosen, sharding.sample_active_rows(np.array([3, 7]), 100, 20, 1, 0, 5))
    assert chosen.dtype == np.int64


def test_enough_rows_for_every_label_and_no_more_than_there_are():
    assert sharding.num_active_rows(1000, 0.1, 32) == 100
    assert sharding.num_active_rows(1000, 0.0001, 32) == 32
    assert sharding.num_active_rows(20, 0.1, 32) == 20


def test_tensors_are_divided_over_ranks_by_size():
    assert sharding.partition({"a": 1, "b": 6, "c": 3, "d": 3}, 2) == {"b": 0, "c": 1, "d": 1, "a": 0}
    assert sharding.partition({"a": 5}, 3) == {"a": 0}
    sizes = {
        name: int(np.prod(shape)) for name, shape in resnet.shapes(resnet.Arch(depth=50, num_classes=1000)).items()
    }
    ranks = sharding.partition(sizes, 2)
    shares = [sum(size for name, size in sizes.items() if ranks[name] == rank) for rank in (0, 1)]
    assert max(shares) < 0.5001 * sum(sizes.values())
