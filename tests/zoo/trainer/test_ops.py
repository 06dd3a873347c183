"""The cases of ops_cases.py in every framework."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.ops_cases"))
def test_ops(framework, module, case):
    frameworks.check(framework, module, case)
