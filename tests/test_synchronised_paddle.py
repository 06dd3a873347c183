"""Batch normalisation over all ranks in Paddle: the cases of tests/in_paddle_synchronised.py."""
import pytest

from tests import frameworks


@pytest.mark.parametrize("case", frameworks.names("in_paddle_synchronised"))
def test_in_paddle(case):
    frameworks.check("paddle", "in_paddle_synchronised", case)
