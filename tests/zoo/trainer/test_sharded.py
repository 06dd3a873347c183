"""A class matrix that is split over 2, 3 and 4 ranks does what one rank does, in every framework."""

import os
import subprocess
from functools import cache

import numpy as np
import pytest

from tests.helpers.processes import ROOT, environment, launcher, needs
from tests.zoo.trainer.sharded_worker import CASES
from zoo.frameworks import FRAMEWORKS
from zoo.trainer import sharding

SIZES = (2, 3, 4)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """(framework, ranks) -> the arrays of every case, made when first asked for."""

    @cache
    def make(framework, size):
        needs(framework)
        folder = tmp_path_factory.mktemp(f"{framework}{size}")
        by = launcher("alone" if size == 1 else "mpirun", size, None)
        if by[0] is None:
            pytest.skip("mpirun is not installed")
        done = subprocess.run(
            [*by, "-m", "tests.zoo.trainer.sharded_worker", framework, str(folder)],
            cwd=ROOT,
            text=True,
            env={**environment(), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return {name[:-4]: dict(np.load(os.path.join(folder, name))) for name in os.listdir(folder)}

    return make


def compare(found, expected, loss, weight):
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=loss)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=10 * loss)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if not name.startswith("scaler") and name not in ("losses", "norms"):
            assert np.abs(found[name] - value).max() <= weight * np.abs(value).max(), name


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ranks_do_what_one_does(computed, framework, size):
    """Losses to 1e-6, weights and momentum after ten updates to 1e-5; 11 classes, which no number of ranks divides."""
    for case in CASES if size == 2 else ["plain"]:
        compare(computed(framework, size)[case], computed(framework, 1)[case], 1e-6, 1e-5)


@pytest.mark.parametrize("size", (1, 2))
@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "torch"])
def test_frameworks_agree(computed, framework, size):
    """The drawn rows of Partial FC too."""
    for case in (*CASES, "drawn"):
        compare(computed(framework, size)[case], computed("torch", size)[case], 1e-6, 1e-5)


@pytest.mark.parametrize("size", (1, *SIZES))
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_one_rank_s_infinity_stops_nobody(computed, framework, size):
    """All ranks skip that update, change nothing, and go on with the next; the rank that has it names the tensor."""
    rows = computed(framework, size)["upset"]["ranks"]
    assert rows[:, :6].tolist() == [[1, 1, 1, 1, 0, 1]] * size
    assert rows[:, 6].tolist() == [0] * (size - 1) + [1]


@pytest.mark.parametrize("size", (1, *SIZES))
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_partial_fc_touches_the_drawn_rows_alone(computed, framework, size):
    """Weight and momentum of exactly the rows that shards.sample draws, all positives among them."""
    assert computed(framework, size)["sampled"]["right"].all()


def test_rows_are_balanced():
    for count in (4, 9, 11, 85742):
        for size in (1, 2, 3, 4):
            parts = [sharding.row_range(count, rank, size) for rank in range(size)]
            assert parts[0][0] == 0 and parts[-1][1] == count
            assert all(before[1] == after[0] for before, after in zip(parts, parts[1:]))
            lengths = [last - first for first, last in parts]
            assert max(lengths) - min(lengths) <= 1 and lengths == sorted(lengths, reverse=True)
    eighths = [last - first for first, last in (sharding.row_range(85742, rank, 8) for rank in range(8))]
    assert eighths == [10718] * 6 + [10717] * 2


def test_rows_of_partial_fc():
    """Rising, unique, with all positives; the others even over the rest; a function of seed, rank and number."""
    positives = np.array([0, 3, 4, 9])
    counts = np.zeros(12)
    for number in range(3000):
        rows = sharding.sample_active_rows(positives, 12, 6, 1, 0, number)
        assert len(rows) == 6 and (np.diff(rows) > 0).all() and set(positives) <= set(rows)
        counts[rows] += 1
    assert (counts[positives] == 3000).all()
    others = np.delete(counts, positives)
    assert np.abs(others - 3000 * 2 / 8).max() < 5 * np.sqrt(3000 * 0.25 * 0.75)
    again = [
        sharding.sample_active_rows(positives, 1000, 100, seed, rank, number).tolist()
        for seed, rank, number in ((1, 0, 5), (1, 0, 5), (2, 0, 5), (1, 1, 5), (1, 0, 6))
    ]
    assert again[0] == again[1] and all(again[0] != other for other in again[2:])
    assert sharding.sample_active_rows(np.arange(12), 12, 12, 1, 0, 0).tolist() == list(range(12))


def test_how_many_rows_an_update_uses():
    """A share, but room for all positives that a batch may have, and no more than there are."""
    assert sharding.num_active_rows(1000, 0.1, 32) == 100
    assert sharding.num_active_rows(1000, 0.0001, 32) == 32
    assert sharding.num_active_rows(20, 0.1, 32) == 20
