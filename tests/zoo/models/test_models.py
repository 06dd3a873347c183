"""The models in every framework: the cases of model_cases.py."""

import pytest

from tests.helpers import frameworks

SLOW = (
    "case_tsm_blockres_equals_upstream",
    "case_tsm_non_local_equals_upstream",
    "case_tsm_of_101_layers_equals_upstream",
)
PARAMETERS = [
    pytest.param(*parameter.values, id=parameter.id, marks=[pytest.mark.slow])
    if parameter.values[2] in SLOW
    else parameter
    for parameter in frameworks.parameters("zoo.models.model_cases")
]


@pytest.mark.parametrize("framework, module, case", PARAMETERS)
def test_models(framework, module, case):
    frameworks.check(framework, module, case)
