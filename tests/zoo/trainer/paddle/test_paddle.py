"""Paddle alone: the cases of cases.py and cpu_cases.py."""

import pytest

from tests.helpers import frameworks

MODULES = ("zoo.trainer.paddle.cases", "zoo.trainer.paddle.cpu_cases")


@pytest.mark.slow
@pytest.mark.parametrize("module, case", [(module, case) for module in MODULES for case in frameworks.names(module)])
def test_paddle(module, case):
    frameworks.check("paddle", module, case)
