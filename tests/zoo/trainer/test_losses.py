"""The cases of loss_cases.py in every framework."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.loss_cases"))
def test_losses(framework, module, case):
    frameworks.check(framework, module, case)
