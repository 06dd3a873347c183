"""Checkpointed activations in every framework: the cases of checkpointing_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.checkpointing_cases"))
def test_checkpointing(framework, module, case):
    frameworks.check(framework, module, case)
