"""The recorded arithmetic of every framework: the cases of arithmetic_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.arithmetic_cases"))
def test_arithmetic(framework, module, case):
    frameworks.check(framework, module, case)
