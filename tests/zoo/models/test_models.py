"""The models in every framework: the cases of model_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.models.model_cases"))
def test_models(framework, module, case):
    frameworks.check(framework, module, case)
