"""The MindSpore nets and trainer: the cases of tests/in_mindspore*.py, run without PyTorch beside them."""

import pytest

from tests.helpers import frameworks

MODULES = ("zoo.trainer.mindspore.cases_models", "zoo.trainer.mindspore.cases", "zoo.trainer.mindspore.cases_face")


@pytest.mark.parametrize("module, case", [(module, case) for module in MODULES for case in frameworks.names(module)])
def test_in_mindspore(module, case):
    frameworks.check("mindspore", module, case)
