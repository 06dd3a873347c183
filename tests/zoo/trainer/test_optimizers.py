"""Every optimizer in every framework: the cases of optimizer_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.optimizer_cases"))
def test_optimizers(framework, module, case):
    frameworks.check(framework, module, case)
