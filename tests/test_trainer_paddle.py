"""The Paddle nets and trainer: the cases of tests/in_paddle.py, run without PyTorch beside them."""
import pytest

from tests import frameworks


@pytest.mark.parametrize("case", frameworks.names("in_paddle"))
def test_in_paddle(case):
    frameworks.check("paddle", "in_paddle", case)
