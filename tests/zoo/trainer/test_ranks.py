"""The cases of rank_cases.py in every framework."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.rank_cases"))
def test_ranks(framework, module, case):
    frameworks.check(framework, module, case)
