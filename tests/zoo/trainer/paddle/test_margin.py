"""The margin objective in Paddle: the cases of tests/zoo/trainer/paddle/cases_margin.py, run without PyTorch beside them."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("case", frameworks.names("zoo.trainer.paddle.cases_margin"))
def test_in_paddle(case):
    frameworks.check("paddle", "zoo.trainer.paddle.cases_margin", case)
