"""The Paddle nets and trainer: the cases of tests/zoo/trainer/paddle/cases.py, run without PyTorch beside them."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("case", frameworks.names("zoo.trainer.paddle.cases"))
def test_in_paddle(case):
    frameworks.check("paddle", "zoo.trainer.paddle.cases", case)
