"""Two updates of a small model in every framework, so that the fast tests cover all three."""

import pytest

from tests.helpers import frameworks
from zoo.frameworks import FRAMEWORKS


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_updates(framework):
    frameworks.check(framework, "zoo.trainer.smoke_cases", "case_two_updates_follow_the_formulas", timeout=120)
