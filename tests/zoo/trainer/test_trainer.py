"""The trainer interface in every framework: the cases of update_cases, state_cases and device_image_cases."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize(
    "framework, module, case",
    frameworks.parameters("zoo.trainer.update_cases", "zoo.trainer.state_cases", "zoo.trainer.device_image_cases"),
)
def test_trainer(framework, module, case):
    frameworks.check(framework, module, case)
