"""The cases of clip_cases.py in every framework."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.clip_cases"))
def test_clipping(framework, module, case):
    frameworks.check(framework, module, case)
