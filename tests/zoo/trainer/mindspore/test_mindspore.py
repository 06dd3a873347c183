"""MindSpore alone: the cases of cases.py."""

import pytest

from tests.helpers import frameworks

MODULE = "zoo.trainer.mindspore.cases"


@pytest.mark.slow
@pytest.mark.parametrize("case", frameworks.names(MODULE))
def test_mindspore(case):
    frameworks.check("mindspore", MODULE, case)
