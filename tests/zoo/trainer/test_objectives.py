"""The cases of objective_cases.py in every framework."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.objective_cases"))
def test_objectives(framework, module, case):
    frameworks.check(framework, module, case)
