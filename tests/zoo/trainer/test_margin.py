"""The margin objective and its class matrix in every framework: the cases of margin_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.margin_cases"))
def test_margin(framework, module, case):
    frameworks.check(framework, module, case)
