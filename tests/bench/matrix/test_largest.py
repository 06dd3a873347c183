"""The search for the largest batch."""

import pytest

from zoo.bench.matrix.largest import LIMIT, largest


@pytest.mark.parametrize("true", [1, 2, 3, 7, 8, 15, 16, 17, 100, 1000, 1023, 5000])
@pytest.mark.parametrize("start", [1, 8, 300])
def test_the_answer_fits_and_little_more_would(true, start):
    tried = []

    def fits(batch):
        tried.append(batch)
        return batch <= true

    found = largest(fits, start)
    assert found <= true <= found + max(1, found // 16) - (found < 32)
    assert len(tried) == len(set(tried)) <= 20


def test_nothing_fits():
    assert largest(lambda batch: False, 16) == 0


def test_everything_fits():
    assert LIMIT // 2 < largest(lambda batch: True, 24) <= LIMIT
