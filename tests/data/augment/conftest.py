"""What upstream projects computed, and the target of its images."""

import pytest

from tests.data.augment.golden import load
from zoo.data.augment import Target


@pytest.fixture
def golden():
    return load()


@pytest.fixture
def target():
    return Target(20, 16, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
