"""The margin objective in Paddle: the cases of tests/in_paddle_margin.py, run without PyTorch beside them."""
import pytest

from tests import frameworks


@pytest.mark.parametrize("case", frameworks.names("in_paddle_margin"))
def test_in_paddle(case):
    frameworks.check("paddle", "in_paddle_margin", case)
