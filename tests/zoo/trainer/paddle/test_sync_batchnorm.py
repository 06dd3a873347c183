"""Batch normalisation over all ranks in Paddle: the cases of tests/zoo/trainer/paddle/cases_synchronised.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("case", frameworks.names("zoo.trainer.paddle.cases_sync_batchnorm"))
def test_in_paddle(case):
    frameworks.check("paddle", "zoo.trainer.paddle.cases_sync_batchnorm", case)
