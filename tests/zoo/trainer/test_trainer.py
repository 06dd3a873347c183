"""The trainer interface in every framework: the cases of trainer_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.trainer_cases"))
def test_trainer(framework, module, case):
    frameworks.check(framework, module, case)
