"""Evaluation in 16 bits in every framework: the cases of evaluation_cases.py."""

import pytest

from tests.helpers import frameworks


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.trainer.evaluation_cases"))
def test_evaluation(framework, module, case):
    frameworks.check(framework, module, case)
