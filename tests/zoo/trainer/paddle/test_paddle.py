"""Paddle alone: the cases of cases.py."""

import pytest

from tests.helpers import frameworks

MODULE = "zoo.trainer.paddle.cases"


@pytest.mark.slow
@pytest.mark.parametrize("case", frameworks.names(MODULE))
def test_paddle(case):
    frameworks.check("paddle", MODULE, case)
