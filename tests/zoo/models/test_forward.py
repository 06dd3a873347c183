"""Forward passes of all models against numpy, in every framework: the cases of forward_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.models.forward_cases"))
def test_forward(framework, module, case):
    frameworks.check(framework, module, case)
