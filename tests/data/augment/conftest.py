"""What upstream projects computed (tests/golden/augment.npz, described in README.txt there), and their draws."""

from functools import cache

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN
from zoo.data.augment import Target


@cache
def load() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "augment.npz") as file:
        return {name: file[name] for name in file.files}


class Scripted:
    """A random generator whose methods return the given values in turn, whatever their arguments."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def _next(self, *_, **__):
        return self.draws.pop(0)

    random = uniform = integers = permutation = beta = standard_normal = _next


@pytest.fixture
def golden():
    return load()


@pytest.fixture
def target():
    return Target(20, 16, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
