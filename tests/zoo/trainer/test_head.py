"""Products of 16 bits and chunks of logits in every framework: the cases of head_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.head_cases"))
def test_head(framework, module, case):
    frameworks.check(framework, module, case)
